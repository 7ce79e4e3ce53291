//! Copies of rows: columns and tiles move, and nothing beside them.
#![allow(clippy::unwrap_used)]

use super::calls::{Host, N, WORDS, at, code};
use super::subject::{Around, On, Subject};
use crate::driver::sim::Schedule;
use crate::driver::step::{Step, Touched};
use crate::driver::{CopyMemory, CopyRows, CopySide, DevicePtr, DriverCall, DriverError, Fact};

on_every_subject![
    copies_of_rows_move_the_rows_and_nothing_beside,
    a_column_of_many_rows_moves_every_byte,
    one_row_is_a_copy_in_one_piece_whatever_the_pitches,
    a_column_can_be_copied_to_another_of_the_same_memory,
    copies_of_no_rows_or_empty_ones_do_nothing,
    copies_of_rows_run_in_the_order_of_their_stream,
    copies_of_rows_are_ordered_by_waits,
    a_copy_of_rows_is_enqueued_and_waits_for_nothing,
    columns_beside_each_other_need_no_order,
    the_host_may_use_a_column_while_another_is_copied,
    a_copy_of_rows_that_is_out_of_order_is_refused_and_does_nothing,
];

/// What memory holds before.
const BEFORE: u8 = 0xA5;

pub(super) fn device(ptr: DevicePtr, pitch: usize) -> CopySide {
    CopySide { memory: CopyMemory::Device(ptr), pitch, plane_pitch: 0 }
}

pub(super) fn host(host: Host, pitch: usize) -> CopySide {
    CopySide { memory: CopyMemory::Host(host.ptr()), pitch, plane_pitch: 0 }
}

/// So many rows of so many bytes.
fn rows(dst: CopySide, src: CopySide, row: usize, rows: usize) -> CopyRows {
    CopyRows { dst, src, row, rows, planes: 1 }
}

/// No two bytes near each other are the same.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 7 + i / 256 + 1) as u8).collect()
}

/// `into`, with rows of `from`. Each is given with the offset of its first row and its pitch.
fn with_rows(
    (mut into, to, to_pitch): (Vec<u8>, usize, usize),
    (from, at, pitch): (&[u8], usize, usize),
    (row, rows): (usize, usize),
) -> Vec<u8> {
    for i in 0..rows {
        let (there, here) = (to + i * to_pitch, at + i * pitch);
        into[there..there + row].copy_from_slice(&from[here..here + row]);
    }
    into
}

fn copies_of_rows_move_the_rows_and_nothing_beside(on: &Subject) {
    const EXTENT: usize = 16_384;
    let s = on.stream();
    let (x, y) = (on.alloc(EXTENT, &s), on.alloc(EXTENT, &s));
    let sent = pattern(EXTENT);
    let (from, to) = (on.pinned_with(&sent), on.pinned(EXTENT));
    // The last of these leaves nothing between its rows.
    for (row, count, gaps) in [
        (1, 2, [0, 1, 2]),
        (1, 100, [7, 0, 63]),
        (3, 9, [1, 5, 2]),
        (4, 256, [4, 12, 28]),
        (64, 20, [64, 192, 1]),
        (255, 7, [1, 769, 257]),
        (8, 33, [0, 0, 0]),
    ] {
        let [up, within, down] = gaps.map(|gap| row + gap);
        for (first, other) in [(0, 0), (5, 64), (64, 3)] {
            on.write(to, &[0xEE; EXTENT]);
            on.fill(x, BEFORE, EXTENT, &s);
            on.fill(y, !BEFORE, EXTENT, &s);
            let copy_rows = |dst, src| on.copy_rows(&rows(dst, src, row, count), &s);
            copy_rows(device(at(x, first), within), host(from.at(other), up));
            copy_rows(device(at(y, other), down), device(at(x, first), within));
            copy_rows(host(to.at(first), up), device(at(y, other), down));
            let [in_x, in_y] = [x, y].map(|ptr| on.read(ptr, EXTENT, &s));
            let what = format!("{count} rows of {row}, {gaps:?} apart, at {first} and {other}");
            let shape = (row, count);
            let x = with_rows((vec![BEFORE; EXTENT], first, within), (&sent, other, up), shape);
            assert!(in_x == x, "up: {what}");
            let y = with_rows((vec![!BEFORE; EXTENT], other, down), (&x, first, within), shape);
            assert!(in_y == y, "within: {what}");
            let back = with_rows((vec![0xEE; EXTENT], first, up), (&y, other, down), shape);
            assert!(on.bytes(to, EXTENT) == back, "down: {what}");
        }
    }
}

fn a_column_of_many_rows_moves_every_byte(on: &Subject) {
    const ROWS: usize = 20_000;
    const PITCH: usize = 24;
    let s = on.stream();
    let sent = pattern(4 * ROWS);
    let (from, to) = (on.pinned_with(&sent), on.pinned(4 * ROWS));
    let (x, y) = (on.alloc(ROWS * PITCH, &s), on.alloc(ROWS * PITCH, &s));
    on.copy_rows(&rows(device(at(x, 4), PITCH), host(from, 4), 4, ROWS), &s);
    on.copy_rows(&rows(device(at(y, 8), PITCH), device(at(x, 4), PITCH), 4, ROWS), &s);
    on.copy_rows(&rows(host(to, 4), device(at(y, 8), PITCH), 4, ROWS), &s);
    on.finish(&on.record(&s));
    assert!(on.bytes(to, 4 * ROWS) == sent);
}

fn one_row_is_a_copy_in_one_piece_whatever_the_pitches(on: &Subject) {
    let s = on.stream();
    let (x, y) = (on.filled(1, N, &s), on.filled(2, N, &s));
    let (from, to) = (on.pinned_with(&[3; N]), on.pinned_with(&[4; N]));
    for pitch in [0, 7, 8, usize::MAX] {
        let expected = [vec![3; 8], vec![2; N - 8]].concat();
        on.copy_rows(&rows(device(x, pitch), host(from, 0), 8, 1), &s);
        on.copy_rows(&rows(device(y, 0), device(x, pitch), 8, 1), &s);
        on.copy_rows(&rows(host(to, pitch), device(y, 1 << 40), N, 1), &s);
        on.finish(&on.record(&s));
        assert_eq!(on.bytes(to, N), expected, "{pitch}");
    }
}

fn a_column_can_be_copied_to_another_of_the_same_memory(on: &Subject) {
    let s = on.stream();
    let sent = pattern(N);
    let (x, from) = (on.alloc(N, &s), on.pinned_with(&sent));
    on.up(x, from, N, &s);
    on.copy_rows(&rows(device(at(x, 8), 16), device(x, 16), 4, N / 16), &s);
    let expected = with_rows((sent.clone(), 8, 16), (&sent, 0, 16), (4, N / 16));
    assert_eq!(on.read(x, N, &s), expected);
}

fn copies_of_no_rows_or_empty_ones_do_nothing(on: &Subject) {
    let s = on.stream();
    let (x, y) = (on.filled(1, N, &s), on.filled(2, N, &s));
    let memory = on.pinned_with(&[3; N]);
    let held = on.hold(&s);
    for (row, count) in [(0, 0), (0, 1), (0, 4), (4, 0)] {
        on.copy_rows(&rows(device(x, 16), host(memory, 16), row, count), &s);
        on.copy_rows(&rows(host(memory, 16), device(x, 16), row, count), &s);
        on.copy_rows(&rows(device(y, 16), device(x, 16), row, count), &s);
    }
    let end = on.record(&s);
    on.let_pass();
    assert!(!on.done(&end));
    held.open();
    on.finish(&end);
    assert_eq!(on.bytes(memory, N), [3; N]);
    assert_eq!(on.read(x, N, &s), [1; N]);
    assert_eq!(on.read(y, N, &s), [2; N]);
}

/// 4 bytes in every 16 of `N`.
pub(super) fn column(dst: CopySide, src: CopySide) -> CopyRows {
    rows(dst, src, 4, N / 16)
}

fn copies_of_rows_run_in_the_order_of_their_stream(on: &Subject) {
    let s = on.stream();
    let (x, y) = (on.filled(0, N, &s), on.filled(0, N, &s));
    let (from, to) = (on.pinned_with(&[5; N]), on.pinned_with(&[0; N]));
    let held = on.hold(&s);
    on.copy_rows(&column(device(x, 16), host(from, 16)), &s);
    on.increment(x, WORDS, &s);
    on.copy_rows(&column(device(at(y, 4), 16), device(x, 16)), &s);
    on.fill(x, 9, N, &s);
    on.increment(y, WORDS, &s);
    on.copy_rows(&column(host(to, 16), device(at(y, 4), 16)), &s);
    on.fill(y, 9, N, &s);
    let end = on.record(&s);
    held.open();
    on.finish(&end);
    let row = [[7, 5, 5, 5], [0; 4], [0; 4], [0; 4]].concat();
    assert_eq!(on.bytes(to, N), row.repeat(N / 16));
}

fn copies_of_rows_are_ordered_by_waits(on: &Subject) {
    let (s, t) = (on.stream(), on.stream());
    let (x, y) = (on.filled(0, N, &s), on.filled(0, N, &s));
    let (from, to) = (on.pinned_with(&[5; N]), on.pinned_with(&[0; N]));
    let held = on.hold(&s);
    on.copy_rows(&column(device(x, 16), host(from, 16)), &s);
    on.wait(&t, &on.record(&s));
    on.copy_rows(&column(device(y, 16), device(x, 16)), &t);
    on.wait(&s, &on.record(&t));
    on.copy_rows(&column(host(to, 16), device(y, 16)), &s);
    let end = on.record(&s);
    on.let_pass();
    assert!(!on.done(&end));
    held.open();
    on.finish(&end);
    let row = [[5; 4], [0; 4], [0; 4], [0; 4]].concat();
    assert_eq!(on.bytes(to, N), row.repeat(N / 16));
}

fn a_copy_of_rows_is_enqueued_and_waits_for_nothing(on: &Subject) {
    let s = on.stream();
    let (x, y) = (on.filled(1, N, &s), on.filled(2, N, &s));
    let (from, to) = (on.pinned_with(&[3; N]), on.pinned_with(&[4; N]));
    let held = on.hold(&s);
    for i in 0..999 {
        on.copy_rows(
            &match i % 3 {
                0 => column(device(x, 16), host(from, 16)),
                1 => column(device(at(y, 8), 16), device(x, 16)),
                _ => column(host(to, 16), device(at(y, 8), 16)),
            },
            &s,
        );
    }
    let end = on.record(&s);
    on.let_pass();
    assert!(!on.done(&end));
    assert_eq!(on.bytes(to, N), [4; N]);
    held.open();
    on.finish(&end);
    assert_eq!(on.bytes(to, N), [[3; 4], [4; 4], [4; 4], [4; 4]].concat().repeat(N / 16));
}

/// Neither waits for the other, and that is no race.
fn columns_beside_each_other_need_no_order(on: &Subject) {
    let (s, t) = (on.stream(), on.stream());
    let (x, y) = (on.filled(1, N, &s), on.filled(2, N, &s));
    let (from, to) = (on.pinned_with(&[3; N]), on.pinned_with(&[4; N]));
    let (first, second) = (on.hold(&s), on.hold(&t));
    // The one writes what the other leaves out, and the other way about.
    on.copy_rows(&column(device(x, 16), host(from, 16)), &s);
    on.copy_rows(&column(device(at(x, 8), 16), device(y, 16)), &t);
    on.copy_rows(&column(device(at(y, 4), 16), device(at(x, 4), 16)), &s);
    on.copy_rows(&column(host(to, 16), device(x, 16)), &s);
    on.copy_rows(&column(host(to.at(8), 16), device(at(x, 8), 16)), &t);
    let ends = [on.record(&s), on.record(&t)];
    second.open();
    on.finish(&ends[1]);
    assert!(!on.done(&ends[0]));
    first.open();
    on.finish(&ends[0]);
    let row = |each: [u8; 4]| each.map(|byte| [byte; 4]).concat().repeat(N / 16);
    assert_eq!(on.bytes(to, N), row([3, 4, 2, 4]));
    assert_eq!(on.read(x, N, &s), row([3, 1, 2, 1]));
    assert_eq!(on.read(y, N, &s), row([2, 1, 2, 2]));
}

fn the_host_may_use_a_column_while_another_is_copied(on: &Subject) {
    let s = on.stream();
    let (x, y) = (on.filled(1, N, &s), on.filled(2, N, &s));
    let memory = on.pinned_with(&[3; N]);
    let held = on.hold(&s);
    on.copy_rows(&column(host(memory, 16), device(x, 16)), &s);
    on.copy_rows(&column(device(y, 16), host(memory.at(4), 16)), &s);
    let end = on.record(&s);
    let tell = |offset, writes| {
        let (ptr, row, rows) = (memory.at(offset).ptr(), 4, N / 16);
        on.driver.tell(Fact::HostAccess { ptr, row, rows, pitch: 16, writes });
    };
    tell(4, false);
    tell(8, true);
    for i in 0..N / 16 {
        assert_eq!(on.bytes(memory.at(16 * i + 4), 4), [3; 4]);
        on.write(memory.at(16 * i + 8), &[4; 4]);
    }
    held.open();
    on.finish(&end);
    let row = |each: [u8; 4]| each.map(|byte| [byte; 4]).concat().repeat(N / 16);
    assert_eq!(on.bytes(memory, N), row([1, 3, 4, 3]));
    assert_eq!(on.read(y, N, &s), row([3, 2, 2, 2]));
}

fn a_copy_of_rows_that_is_out_of_order_is_refused_and_does_nothing(on: &Subject) {
    let s = on.stream();
    let (x, y) = (on.filled(1, N, &s), on.filled(2, N, &s));
    let memory = on.pinned_with(&[3; N]);
    let wrong = |right: CopyRows| {
        let CopyRows { dst, src, .. } = right;
        [0, 1, 3, 1 << 31, usize::MAX].into_iter().flat_map(move |pitch| {
            let (dst, src) = (CopySide { pitch, ..dst }, CopySide { pitch, ..src });
            [CopyRows { dst, ..right }, CopyRows { src, ..right }]
        })
    };
    let between_hosts = [1, 2].map(|count| rows(host(memory, 8), host(memory.at(4), 8), 4, count));
    let all = wrong(column(device(x, 16), host(memory, 16)))
        .chain(wrong(column(host(memory, 16), device(x, 16))))
        .chain(wrong(column(device(y, 16), device(x, 16))))
        .chain(between_hosts);
    for copy in all {
        let told = code(on.try_copy_rows(&copy, &s));
        assert_eq!(told, Some(DriverError::INVALID_VALUE), "{copy:?}");
    }
    on.increment(x, WORDS, &s);
    assert_eq!(on.read(x, N, &s), [2, 1, 1, 1].repeat(N / 4));
    assert_eq!(on.read(y, N, &s), [2; N]);
    assert_eq!(on.bytes(memory, N), [3; N]);
}

/// Both sides of each copy as the log has them, and the races that were reported.
fn watched(
    schedule: Schedule,
    second: impl Fn(&Subject, DevicePtr, DevicePtr) -> CopyRows,
) -> (Vec<Vec<Touched>>, usize) {
    let on = On::Simulated(schedule).subject(Around::Watched);
    let (s, t) = (on.stream(), on.stream());
    let (x, y) = (on.filled(1, N, &s), on.filled(2, N, &s));
    on.copy_rows(&column(device(x, 16), device(y, 16)), &s);
    on.copy_rows(&second(&on, x, y), &t);
    on.let_pass();
    let (log, races) = on.seen().unwrap();
    let copies = log.into_iter().filter_map(|logged| match logged.step {
        Step::Work { call: DriverCall::CopyRows, name: "copy_rows", touched, .. } => {
            Some(touched.into_vec())
        }
        _ => None,
    });
    (copies.collect(), races.len())
}

#[test]
fn columns_with_a_byte_in_common_race_and_the_log_has_their_rows() {
    for schedule in [Schedule::Eager, Schedule::Stepped, Schedule::Lazy, Schedule::random(1)] {
        let (logged, races) =
            watched(schedule, |_, x, y| column(device(at(x, 3), 16), device(at(y, 4), 16)));
        assert_eq!(races, 1, "a write beside a write: {schedule:?}");
        let shape = |touched: &Touched| (touched.bytes, touched.row, touched.pitch, touched.writes);
        let sides = [(N - 12, 4, 16, false), (N - 12, 4, 16, true)];
        assert!(logged.iter().all(|sides_of| sides_of.iter().map(shape).eq(sides)), "{logged:?}");

        // Another pitch: they meet in the third row, and not before.
        let reads = |first| {
            move |_: &Subject, x, y| rows(device(at(y, 4), 16), device(at(x, first), 18), 1, 4)
        };
        assert_eq!(watched(schedule, reads(12)).1, 1, "a read beside a write: {schedule:?}");
        assert_eq!(watched(schedule, reads(4)).1, 0, "{schedule:?}");
    }
}
