//! Copies of planes: blocks of volumes move, and nothing beside them.
#![allow(clippy::unwrap_used)]

use super::calls::{Host, N, WORDS, at, code};
use super::subject::{Around, On, Subject};
use crate::driver::sim::Schedule;
use crate::driver::step::{Step, Touched};
use crate::driver::{CopyMemory, CopyRows, CopySide, DevicePtr, DriverCall, DriverError, Fact};

on_every_subject![
    copies_of_planes_move_the_rows_and_nothing_beside,
    a_block_of_many_planes_moves_every_byte,
    a_block_can_be_copied_to_another_of_the_same_memory,
    copies_of_no_planes_or_empty_ones_do_nothing,
    copies_of_planes_run_in_the_order_of_their_stream,
    copies_of_planes_are_enqueued_and_wait_for_nothing,
    blocks_beside_each_other_need_no_order,
    the_host_may_use_what_is_between_the_rows_of_a_block,
    a_copy_of_planes_that_is_out_of_order_is_refused_and_does_nothing,
];

/// What memory holds before.
const BEFORE: u8 = 0xA5;

fn device(ptr: DevicePtr, pitch: usize, plane_pitch: usize) -> CopySide {
    CopySide { memory: CopyMemory::Device(ptr), pitch, plane_pitch }
}

fn host(host: Host, pitch: usize, plane_pitch: usize) -> CopySide {
    CopySide { memory: CopyMemory::Host(host.ptr()), pitch, plane_pitch }
}

/// No two bytes near each other are the same.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 7 + i / 256 + 1) as u8).collect()
}

/// `into`, with rows of `from`. Each is given with the offset of its first row, and its pitches.
fn with_planes(
    (mut into, to, [to_pitch, to_plane]): (Vec<u8>, usize, [usize; 2]),
    (from, at, [pitch, plane]): (&[u8], usize, [usize; 2]),
    [row, rows, planes]: [usize; 3],
) -> Vec<u8> {
    for j in 0..planes {
        for i in 0..rows {
            let (there, here) = (to + j * to_plane + i * to_pitch, at + j * plane + i * pitch);
            into[there..there + row].copy_from_slice(&from[here..here + row]);
        }
    }
    into
}

fn copies_of_planes_move_the_rows_and_nothing_beside(on: &Subject) {
    const EXTENT: usize = 16_384;
    let s = on.stream();
    let (x, y) = (on.alloc(EXTENT, &s), on.alloc(EXTENT, &s));
    let sent = pattern(EXTENT);
    let (from, to) = (on.pinned_with(&sent), on.pinned(EXTENT));
    // Bytes of a row, rows and planes; bytes between rows, and rows between planes, of each side. Those
    // of one row, and those that leave nothing between them, are copies of planes as well.
    for (shape, gaps) in [
        ([1, 2, 2], [(0, 0), (1, 1), (2, 3)]),
        ([3, 5, 7], [(1, 0), (0, 2), (5, 1)]),
        ([4, 1, 9], [(12, 3), (4, 0), (0, 0)]),
        ([16, 4, 5], [(0, 1), (16, 1), (48, 4)]),
        ([64, 3, 4], [(1, 0), (0, 0), (192, 2)]),
        ([255, 2, 3], [(1, 2), (769, 0), (257, 1)]),
        ([8, 6, 2], [(0, 0), (0, 0), (0, 0)]),
    ] {
        let [row, rows, planes] = shape;
        let [up, within, down] = gaps.map(|(gap, more)| {
            let pitch = row + gap;
            [pitch, pitch * (rows + more)]
        });
        for (first, other) in [(0, 0), (5, 64), (64, 3)] {
            on.write(to, &[0xEE; EXTENT]);
            on.fill(x, BEFORE, EXTENT, &s);
            on.fill(y, !BEFORE, EXTENT, &s);
            let copy = |dst, src| on.copy_rows(&CopyRows { dst, src, row, rows, planes }, &s);
            let on_device = |ptr, [pitch, plane]: [usize; 2]| device(ptr, pitch, plane);
            let on_host = |host_at, [pitch, plane]: [usize; 2]| host(host_at, pitch, plane);
            copy(on_device(at(x, first), within), on_host(from.at(other), up));
            copy(on_device(at(y, other), down), on_device(at(x, first), within));
            copy(on_host(to.at(first), up), on_device(at(y, other), down));
            let [in_x, in_y] = [x, y].map(|ptr| on.read(ptr, EXTENT, &s));
            let what = format!("{shape:?}, {gaps:?} apart, at {first} and {other}");
            let x = with_planes((vec![BEFORE; EXTENT], first, within), (&sent, other, up), shape);
            assert!(in_x == x, "up: {what}");
            let y = with_planes((vec![!BEFORE; EXTENT], other, down), (&x, first, within), shape);
            assert!(in_y == y, "within: {what}");
            let back = with_planes((vec![0xEE; EXTENT], first, up), (&y, other, down), shape);
            assert!(on.bytes(to, EXTENT) == back, "down: {what}");
        }
    }
}

fn a_block_of_many_planes_moves_every_byte(on: &Subject) {
    let (row, rows, planes) = (4, 10, 500);
    let (pitch, plane_pitch) = (24, 24 * 11);
    let s = on.stream();
    let sent = pattern(row * rows * planes);
    let (from, to) = (on.pinned_with(&sent), on.pinned(sent.len()));
    let (x, y) = (on.alloc(plane_pitch * planes, &s), on.alloc(plane_pitch * planes, &s));
    let inside = |ptr, offset| device(at(ptr, offset), pitch, plane_pitch);
    let packed = |memory| host(memory, row, row * rows);
    let copy = |dst, src| on.copy_rows(&CopyRows { dst, src, row, rows, planes }, &s);
    copy(inside(x, 4), packed(from));
    copy(inside(y, 8), inside(x, 4));
    copy(packed(to), inside(y, 8));
    on.finish(&on.record(&s));
    assert!(on.bytes(to, sent.len()) == sent);
}

/// 4 bytes in every 8, of two rows in every four: 8 planes, as `N` is 256.
fn block(dst: CopySide, src: CopySide) -> CopyRows {
    CopyRows { dst, src, row: 4, rows: 2, planes: N / 32 }
}

fn in_block(ptr: DevicePtr, offset: usize) -> CopySide {
    device(at(ptr, offset), 8, 32)
}

fn host_block(memory: Host, offset: usize) -> CopySide {
    host(memory.at(offset), 8, 32)
}

/// What each plane of `N` bytes is, by what its eight words are.
fn planes(words: [u8; 8]) -> Vec<u8> {
    words.map(|word| [word; 4]).concat().repeat(N / 32)
}

fn a_block_can_be_copied_to_another_of_the_same_memory(on: &Subject) {
    let s = on.stream();
    let sent = pattern(N);
    let (x, from) = (on.alloc(N, &s), on.pinned_with(&sent));
    on.up(x, from, N, &s);
    on.copy_rows(&block(in_block(x, 20), in_block(x, 0)), &s);
    let expected = with_planes((sent.clone(), 20, [8, 32]), (&sent, 0, [8, 32]), [4, 2, N / 32]);
    assert_eq!(on.read(x, N, &s), expected);
}

fn copies_of_no_planes_or_empty_ones_do_nothing(on: &Subject) {
    let s = on.stream();
    let (x, y) = (on.filled(1, N, &s), on.filled(2, N, &s));
    let memory = on.pinned_with(&[3; N]);
    let held = on.hold(&s);
    for (row, rows, planes) in [(0, 0, 0), (4, 2, 0), (0, 2, 2), (4, 0, 2), (4, 1, 0)] {
        let copy = |dst, src| on.copy_rows(&CopyRows { dst, src, row, rows, planes }, &s);
        copy(in_block(x, 0), host_block(memory, 0));
        copy(host_block(memory, 0), in_block(x, 0));
        copy(in_block(y, 0), in_block(x, 0));
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

fn copies_of_planes_run_in_the_order_of_their_stream(on: &Subject) {
    let s = on.stream();
    let (x, y) = (on.filled(0, N, &s), on.filled(0, N, &s));
    let (from, to) = (on.pinned_with(&[5; N]), on.pinned_with(&[0; N]));
    let held = on.hold(&s);
    on.copy_rows(&block(in_block(x, 0), host_block(from, 0)), &s);
    on.increment(x, WORDS, &s);
    on.copy_rows(&block(in_block(y, 4), in_block(x, 0)), &s);
    on.fill(x, 9, N, &s);
    on.increment(y, WORDS, &s);
    on.copy_rows(&block(host_block(to, 0), in_block(y, 4)), &s);
    on.fill(y, 9, N, &s);
    let end = on.record(&s);
    held.open();
    on.finish(&end);
    let row = [[7, 5, 5, 5], [0; 4]].concat();
    assert_eq!(on.bytes(to, N), [row.clone(), row, vec![0; 16]].concat().repeat(N / 32));
}

fn copies_of_planes_are_enqueued_and_wait_for_nothing(on: &Subject) {
    let s = on.stream();
    let (x, y) = (on.filled(1, N, &s), on.filled(2, N, &s));
    let (from, to) = (on.pinned_with(&[3; N]), on.pinned_with(&[4; N]));
    let held = on.hold(&s);
    for i in 0..999 {
        on.copy_rows(
            &match i % 3 {
                0 => block(in_block(x, 0), host_block(from, 0)),
                1 => block(in_block(y, 4), in_block(x, 0)),
                _ => block(host_block(to, 0), in_block(y, 4)),
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
    assert_eq!(on.bytes(to, N), planes([3, 4, 3, 4, 4, 4, 4, 4]));
}

/// Neither waits for the other, and that is no race.
fn blocks_beside_each_other_need_no_order(on: &Subject) {
    let (s, t) = (on.stream(), on.stream());
    let (x, y) = (on.filled(1, N, &s), on.filled(2, N, &s));
    let (from, to) = (on.pinned_with(&[3; N]), on.pinned_with(&[4; N]));
    let (first, second) = (on.hold(&s), on.hold(&t));
    // Side by side in the rows, and above each other in the planes.
    on.copy_rows(&block(in_block(x, 0), host_block(from, 0)), &s);
    on.copy_rows(&block(in_block(x, 4), in_block(y, 0)), &t);
    on.copy_rows(&block(in_block(y, 4), in_block(x, 16)), &s);
    on.copy_rows(&block(host_block(to, 0), in_block(x, 0)), &s);
    on.copy_rows(&block(host_block(to, 20), in_block(x, 4)), &t);
    let ends = [on.record(&s), on.record(&t)];
    second.open();
    on.finish(&ends[1]);
    assert!(!on.done(&ends[0]));
    first.open();
    on.finish(&ends[0]);
    assert_eq!(on.bytes(to, N), planes([3, 4, 3, 4, 4, 2, 4, 2]));
    assert_eq!(on.read(x, N, &s), planes([3, 2, 3, 2, 1, 1, 1, 1]));
    assert_eq!(on.read(y, N, &s), planes([2, 1, 2, 1, 2, 2, 2, 2]));
}

fn the_host_may_use_what_is_between_the_rows_of_a_block(on: &Subject) {
    let s = on.stream();
    let x = on.filled(1, N, &s);
    let memory = on.pinned_with(&[3; N]);
    let held = on.hold(&s);
    on.copy_rows(&block(host_block(memory, 0), in_block(x, 0)), &s);
    let end = on.record(&s);
    for plane in 0..N / 32 {
        // Beside the rows, and what lies behind them up to the next plane.
        for (offset, row, rows) in [(4, 4, 2), (16, 16, 1)] {
            let ptr = memory.at(32 * plane + offset).ptr();
            on.driver.tell(Fact::HostAccess { ptr, row, rows, pitch: 8, writes: true });
        }
        on.write(memory.at(32 * plane + 4), &[4; 4]);
        on.write(memory.at(32 * plane + 16), &[5; 16]);
    }
    held.open();
    on.finish(&end);
    assert_eq!(on.bytes(memory, N), planes([1, 4, 1, 3, 5, 5, 5, 5]));
}

fn a_copy_of_planes_that_is_out_of_order_is_refused_and_does_nothing(on: &Subject) {
    let s = on.stream();
    let (x, y) = (on.filled(1, N, &s), on.filled(2, N, &s));
    let memory = on.pinned_with(&[3; N]);
    // Rows that overlap or are too far apart, planes that overlap, and planes that do not begin with a row.
    let pitches = [(0, 32), (3, 33), (1 << 31, 1 << 32), (usize::MAX, usize::MAX)].into_iter();
    let pitches = pitches.chain([(8, 0), (8, 8), (8, 12), (8, 20), (8, 33)]);
    let wrong = |right: CopyRows| {
        pitches.clone().flat_map(move |(pitch, plane_pitch)| {
            let of = |side| CopySide { pitch, plane_pitch, ..side };
            let (dst, src) = (of(right.dst), of(right.src));
            [CopyRows { dst, ..right }, CopyRows { src, ..right }]
        })
    };
    let one_row = CopyRows { rows: 1, ..block(in_block(x, 0), in_block(y, 0)) };
    let dst = CopySide { plane_pitch: 12, ..one_row.dst };
    let all = wrong(block(in_block(x, 0), host_block(memory, 0)))
        .chain(wrong(block(host_block(memory, 0), in_block(x, 0))))
        .chain(wrong(block(in_block(y, 0), in_block(x, 0))))
        .chain([CopyRows { dst, ..one_row }])
        .chain([block(host_block(memory, 0), host_block(memory, 4))]);
    for copy in all {
        let told = code(on.try_copy_rows(&copy, &s));
        assert_eq!(told, Some(DriverError::INVALID_VALUE), "{copy:?}");
    }
    on.increment(x, WORDS, &s);
    assert_eq!(on.read(x, N, &s), [2, 1, 1, 1].repeat(N / 4));
    assert_eq!(on.read(y, N, &s), [2; N]);
    assert_eq!(on.bytes(memory, N), [3; N]);
}

/// The copies as the log has them, and the races that were reported.
fn watched(
    schedule: Schedule,
    second: impl Fn(DevicePtr, DevicePtr) -> CopyRows,
) -> (Vec<Vec<Touched>>, usize) {
    let on = On::Simulated(schedule).subject(Around::Watched);
    let (s, t) = (on.stream(), on.stream());
    let (x, y) = (on.filled(1, N, &s), on.filled(2, N, &s));
    on.copy_rows(&block(in_block(x, 0), in_block(y, 0)), &s);
    on.copy_rows(&second(x, y), &t);
    on.let_pass();
    let (log, races) = on.seen().unwrap();
    let copies = log.into_iter().filter_map(|logged| match logged.step {
        Step::Work { call: DriverCall::CopyPlanes, name: "copy_planes", touched, .. } => {
            Some(touched.into_vec())
        }
        _ => None,
    });
    (copies.collect(), races.len())
}

#[test]
fn blocks_with_a_byte_in_common_race_and_the_log_has_their_planes() {
    for schedule in [Schedule::Eager, Schedule::Stepped, Schedule::Lazy, Schedule::random(1)] {
        let beside = |x, y| block(in_block(x, 4), in_block(y, 20));
        let (logged, races) = watched(schedule, beside);
        assert_eq!((logged.len(), races), (2, 0), "{schedule:?}");
        let shape = |touched: &Touched| (touched.bytes, touched.row, touched.pitch, touched.writes);
        let sides = [false, true].map(|writes| vec![(12, 4, 8, writes); N / 32]).concat();
        let of_first: Vec<_> = logged[0].iter().map(shape).collect();
        assert_eq!(of_first, sides);
        let starts: Vec<_> = logged[0].iter().map(|touched| touched.start % 32).collect();
        assert!(starts.iter().all(|start| *start == starts[0]), "{starts:?}");
        let meeting = |x, y| block(in_block(x, 11), in_block(y, 20));
        assert!(watched(schedule, meeting).1 > 0, "a write beside a write: {schedule:?}");
    }
}
