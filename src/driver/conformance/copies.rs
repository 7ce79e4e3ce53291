//! Copies and fills move the bytes that they name, and no others.
#![allow(clippy::unwrap_used)]

use super::calls::{N, WORDS, at, code};
use super::subject::Subject;
use crate::driver::{DriverError, Fill};

on_every_subject![
    copies_of_any_size_and_place_move_their_bytes_and_no_others,
    large_copies_move_every_byte,
    fills_of_each_unit_set_their_units_and_nothing_beside,
    fills_of_rows_leave_what_is_between_the_rows,
    the_high_bytes_of_a_fills_value_are_not_used,
    copies_and_fills_of_nothing_do_nothing,
    a_fill_that_is_out_of_order_is_refused_and_does_nothing,
];

/// Odd ones, and those around what hardware likes.
const SIZES: [usize; 10] = [1, 2, 3, 7, 15, 64, 255, 1_000, 4_097, 65_537];
const OFFSETS: [usize; 5] = [0, 1, 3, 16, 253];
/// What memory holds before.
const BEFORE: u8 = 0xA5;

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 7 + 1) as u8).collect()
}

/// `into`, from `offset` on, replaced by `bytes`.
fn written(mut into: Vec<u8>, offset: usize, bytes: &[u8]) -> Vec<u8> {
    into[offset..offset + bytes.len()].copy_from_slice(bytes);
    into
}

fn copies_of_any_size_and_place_move_their_bytes_and_no_others(on: &Subject) {
    let s = on.stream();
    let all = SIZES[SIZES.len() - 1] + 2 * 256;
    let (x, y) = (on.alloc(all, &s), on.alloc(all, &s));
    let (from, to) = (on.pinned_with(&pattern(all)), on.pinned(all));
    for bytes in SIZES {
        let extent = bytes + 2 * 256;
        for offset in OFFSETS {
            let other = OFFSETS[(offset + bytes) % OFFSETS.len()];
            on.write(to, &vec![0xEE; extent]);
            on.fill(x, BEFORE, extent, &s);
            on.fill(y, !BEFORE, extent, &s);
            on.up(at(x, offset), from, bytes, &s);
            on.copy(at(y, other), at(x, offset), bytes, &s);
            on.down(to.at(offset), at(y, other), bytes, &s);
            let seen = [on.read(x, extent, &s), on.read(y, extent, &s)];
            let sent = pattern(bytes);
            let what = format!("{bytes} bytes at {offset}, copied to {other}");
            assert!(seen[0] == written(vec![BEFORE; extent], offset, &sent), "up: {what}");
            assert!(seen[1] == written(vec![!BEFORE; extent], other, &sent), "within: {what}");
            let expected = written(vec![0xEE; extent], offset, &sent);
            assert!(on.bytes(to, extent) == expected, "down: {what}");
        }
    }
}

fn large_copies_move_every_byte(on: &Subject) {
    const BYTES: usize = (1 << 20) + 3;
    let s = on.stream();
    let sent = pattern(BYTES);
    let (from, to) = (on.pinned_with(&sent), on.pinned(BYTES));
    let (x, y) = (on.alloc(BYTES, &s), on.alloc(BYTES, &s));
    on.up(x, from, BYTES, &s);
    on.copy(y, x, BYTES, &s);
    on.down(to, y, BYTES, &s);
    on.free(x, &s);
    on.free(y, &s);
    on.finish(&on.record(&s));
    assert!(on.bytes(to, BYTES) == sent);
    on.host_free(from);
    on.host_free(to);
}

fn fills_of_each_unit_set_their_units_and_nothing_beside(on: &Subject) {
    const EXTENT: usize = 8_192;
    let s = on.stream();
    let x = on.alloc(EXTENT, &s);
    for (unit, value) in [(1_u8, 0xF1), (2, 0xF2E1), (4, 0xF4E3_D2C1_u32)] {
        let width = usize::from(unit);
        for columns in [1, 2, 3, 5, 31, 255, 1_001] {
            for start in [0, 1, 7, 64] {
                on.fill(x, BEFORE, EXTENT, &s);
                let dst = at(x, start * width);
                on.try_fill(Fill { dst, unit, value, columns, rows: 1, pitch: 0 }, &s).unwrap();
                let units = value.to_le_bytes()[..width].repeat(columns);
                let expected = written(vec![BEFORE; EXTENT], start * width, &units);
                let seen = on.read(x, EXTENT, &s);
                assert!(seen == expected, "{columns} units of {unit} at {start}");
            }
        }
    }
}

fn fills_of_rows_leave_what_is_between_the_rows(on: &Subject) {
    const EXTENT: usize = 16_384;
    let s = on.stream();
    let x = on.alloc(EXTENT, &s);
    for (unit, value) in [(1_u8, 0xF1), (2, 0xF2E1), (4, 0xF4E3_D2C1_u32)] {
        let width = usize::from(unit);
        for (columns, rows, gap) in [(1, 2, 0), (1, 7, 1), (3, 5, 4), (33, 40, 2), (5, 3, 900)] {
            let pitch = (columns + gap) * width;
            on.fill(x, BEFORE, EXTENT, &s);
            let dst = at(x, 2 * width);
            on.try_fill(Fill { dst, unit, value, columns, rows, pitch }, &s).unwrap();
            let row = value.to_le_bytes()[..width].repeat(columns);
            let mut expected = vec![BEFORE; EXTENT];
            for i in 0..rows {
                expected = written(expected, 2 * width + i * pitch, &row);
            }
            let seen = on.read(x, EXTENT, &s);
            assert!(seen == expected, "{rows} rows of {columns} units of {unit}, {pitch} apart");
        }
    }
}

fn the_high_bytes_of_a_fills_value_are_not_used(on: &Subject) {
    let s = on.stream();
    let x = on.filled(BEFORE, N, &s);
    for (unit, expected) in [(1, [4; 4]), (2, [4, 3, 4, 3])] {
        for rows in [1, 2] {
            let columns = 4 / usize::from(unit) / rows;
            let pitch = 4 / rows;
            let fill = Fill { dst: x, unit, value: 0x0102_0304, columns, rows, pitch };
            on.try_fill(fill, &s).unwrap();
            assert_eq!(on.read(x, 4, &s), expected, "{fill:?}");
        }
    }
}

fn copies_and_fills_of_nothing_do_nothing(on: &Subject) {
    let s = on.stream();
    let (x, y) = (on.filled(1, N, &s), on.filled(2, N, &s));
    let host = on.pinned_with(&[3; N]);
    let held = on.hold(&s);
    on.up(x, host, 0, &s);
    on.down(host, x, 0, &s);
    on.copy(y, x, 0, &s);
    on.fill(x, 4, 0, &s);
    let end = on.record(&s);
    on.let_pass();
    assert!(!on.done(&end));
    held.open();
    on.finish(&end);
    assert_eq!(on.bytes(host, N), [3; N]);
    assert_eq!(on.read(x, N, &s), [1; N]);
    assert_eq!(on.read(y, N, &s), [2; N]);
}

fn a_fill_that_is_out_of_order_is_refused_and_does_nothing(on: &Subject) {
    let s = on.stream();
    let x = on.filled(1, N, &s);
    let fill = Fill { dst: x, unit: 4, value: u32::MAX, columns: 4, rows: 2, pitch: 32 };
    for wrong in [
        Fill { unit: 0, ..fill },
        Fill { unit: 3, ..fill },
        Fill { unit: 8, rows: 1, ..fill },
        Fill { dst: at(x, 2), ..fill },
        Fill { dst: at(x, 1), unit: 2, ..fill },
        Fill { dst: at(x, 2), rows: 1, ..fill },
        Fill { pitch: 12, ..fill },
        Fill { pitch: 18, ..fill },
    ] {
        let told = code(on.try_fill(wrong, &s));
        assert_eq!(told, Some(DriverError::INVALID_VALUE), "{wrong:?}");
    }
    on.increment(x, WORDS, &s);
    assert_eq!(on.read(x, N, &s), [2, 1, 1, 1].repeat(N / 4));
}
