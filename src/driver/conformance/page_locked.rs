//! Page-locked memory.
#![allow(clippy::unwrap_used)]

use super::calls::{N, WORDS, code};
use super::subject::Subject;
use crate::driver::{DriverError, HostKind};

on_every_subject![
    page_locked_memory_is_aligned_to_64_bytes,
    page_locked_memory_is_the_hosts_to_read_and_write,
    page_locked_memory_can_be_freed_and_had_again,
    page_locked_memory_can_be_had_while_a_stream_is_held,
    a_copy_may_touch_any_part_of_page_locked_memory,
    write_combined_memory_is_page_locked_and_can_be_read_and_written,
    registered_memory_keeps_its_bytes,
    copies_of_registered_memory_are_enqueued_and_do_not_wait,
    a_copy_may_touch_any_part_of_registered_memory,
    memory_is_registered_once,
    memory_that_overlaps_page_locked_memory_is_not_registered,
    memory_that_was_unregistered_can_be_registered_again,
    what_is_not_registered_is_not_unregistered,
    registered_memory_and_allocated_memory_end_by_their_own_calls,
    nothing_cannot_be_registered,
];

/// More than a page, so that two pieces of one block of ordinary memory lie on pages of their own.
const PIECE: usize = 64 << 10;

fn page_locked_memory_is_aligned_to_64_bytes(on: &Subject) {
    for bytes in [1, 63, 64, 65, 1_000, 4_097, 1 << 20] {
        let host = on.pinned(bytes);
        assert_eq!(host.address() % 64, 0, "{bytes} bytes at {:#x}", host.address());
        on.host_free(host);
    }
}

fn page_locked_memory_is_the_hosts_to_read_and_write(on: &Subject) {
    let bytes: Vec<u8> = (0..4_097).map(|i| i as u8).collect();
    let host = on.pinned_with(&bytes);
    assert_eq!(on.bytes(host, bytes.len()), bytes);
    on.host_free(host);
}

fn page_locked_memory_can_be_freed_and_had_again(on: &Subject) {
    let s = on.stream();
    let x = on.filled(0, N, &s);
    for value in 1..=5 {
        let (from, to) = (on.pinned_with(&[value; N]), on.pinned(N));
        on.up(x, from, N, &s);
        on.down(to, x, N, &s);
        on.finish(&on.record(&s));
        assert_eq!(on.bytes(to, N), [value; N]);
        on.host_free(from);
        on.host_free(to);
    }
}

fn page_locked_memory_can_be_had_while_a_stream_is_held(on: &Subject) {
    let (s, t) = (on.stream(), on.stream());
    let x = on.filled(1, N, &t);
    let held = on.hold(&s);
    let to = on.pinned(N);
    on.increment(x, WORDS, &t);
    on.down(to, x, N, &t);
    on.finish(&on.record(&t));
    assert_eq!(on.bytes(to, N), [2, 1, 1, 1].repeat(N / 4));
    held.open();
}

fn a_copy_may_touch_any_part_of_page_locked_memory(on: &Subject) {
    let s = on.stream();
    let from = on.pinned_with(&(0..=255).collect::<Vec<u8>>());
    let to = on.pinned_with(&[0xEE; 256]);
    let x = on.alloc(256, &s);
    for (offset, bytes) in [(0, 1), (3, 5), (100, 33), (255, 1)] {
        on.up(x, from.at(offset), bytes, &s);
        on.down(to.at(offset), x, bytes, &s);
    }
    on.finish(&on.record(&s));
    let mut expected = [0xEE; 256];
    for i in (0..1).chain(3..8).chain(100..133).chain(255..256) {
        expected[i] = i as u8;
    }
    assert_eq!(on.bytes(to, 256), expected);
}

fn write_combined_memory_is_page_locked_and_can_be_read_and_written(on: &Subject) {
    let (s, t) = (on.stream(), on.stream());
    let x = on.alloc(N, &s);
    let (from, to) = (on.pinned_as(N, HostKind::WriteCombined), on.pinned(N));
    assert_eq!(from.address() % 64, 0);
    on.write(from, &[7; N]);
    let held = on.hold(&t);
    on.up(x, from, N, &s);
    on.down(to, x, N, &s);
    on.finish(&on.record(&s));
    assert_eq!((on.bytes(to, N), on.bytes(from, N)), (vec![7; N], vec![7; N]));
    held.open();
}

fn registered_memory_keeps_its_bytes(on: &Subject) {
    let bytes: Vec<u8> = (0..3 * PIECE).map(|i| (i * 7) as u8).collect();
    let memory = on.ordinary(&bytes);
    on.register(memory, bytes.len()).unwrap();
    assert!(on.bytes(memory, bytes.len()) == bytes);
    on.write(memory, &[9; 5]);
    on.unregister(memory).unwrap();
    assert_eq!((on.bytes(memory, 5), on.bytes(memory.at(5), 5)), (vec![9; 5], bytes[5..10].into()));
}

fn copies_of_registered_memory_are_enqueued_and_do_not_wait(on: &Subject) {
    let s = on.stream();
    let x = on.filled(0, N, &s);
    let from = on.ordinary(&[0xEE; 3 * PIECE]);
    let to = from.at(2 * PIECE);
    on.write(from, &[1; N]);
    on.register(from, N).unwrap();
    on.register(to, N).unwrap();
    let held = on.hold(&s);
    on.up(x, from, N, &s);
    on.down(to, x, N, &s);
    let done = on.record(&s);
    // What it holds when the copy comes to run is what is copied.
    on.write(from, &[2; N]);
    assert!(!on.done(&done));
    assert_eq!(on.bytes(to, N), [0xEE; N]);
    held.open();
    on.finish(&done);
    assert_eq!(on.bytes(to, N), [2; N]);
    on.unregister(from).unwrap();
    on.unregister(to).unwrap();
    assert_eq!(on.bytes(to, N), [2; N]);
}

fn a_copy_may_touch_any_part_of_registered_memory(on: &Subject) {
    let s = on.stream();
    let memory = on.ordinary(&(0..=255).collect::<Vec<u8>>());
    // Neither end of it on a page, or aligned at all.
    let (memory, bytes) = (memory.at(3), 250);
    on.register(memory, bytes).unwrap();
    let x = on.alloc(N, &s);
    for (offset, bytes) in [(0, 1), (7, 100), (249, 1)] {
        on.up(x, memory.at(offset), bytes, &s);
        let first = (3 + offset) as u8;
        let found = on.read(x, bytes, &s);
        assert_eq!(found, (first..).take(bytes).collect::<Vec<u8>>());
    }
    on.unregister(memory).unwrap();
}

fn memory_is_registered_once(on: &Subject) {
    let memory = on.ordinary(&[1; 3 * PIECE]);
    on.register(memory.at(PIECE), PIECE).unwrap();
    for (offset, bytes) in
        [(PIECE, PIECE), (0, 3 * PIECE), (0, PIECE + 1), (2 * PIECE - 1, PIECE), (PIECE + 5, 1)]
    {
        let again = code(on.register(memory.at(offset), bytes));
        let expected = Some(DriverError::HOST_MEMORY_ALREADY_REGISTERED);
        assert_eq!(again, expected, "{bytes} bytes from {offset}");
    }
    on.unregister(memory.at(PIECE)).unwrap();
    on.register(memory, 3 * PIECE).unwrap();
    on.unregister(memory).unwrap();
}

fn memory_that_overlaps_page_locked_memory_is_not_registered(on: &Subject) {
    let pinned = on.pinned(4 * PIECE);
    for (offset, bytes) in [(0, 4 * PIECE), (PIECE, PIECE), (PIECE + 5, 1)] {
        let refused = code(on.register(pinned.at(offset), bytes));
        assert_eq!(refused, Some(DriverError::INVALID_VALUE));
    }
    on.host_free(pinned);
}

fn memory_that_was_unregistered_can_be_registered_again(on: &Subject) {
    let s = on.stream();
    let x = on.alloc(N, &s);
    let memory = on.ordinary(&[1; 2 * PIECE]);
    for value in 1..=3 {
        on.register(memory, 2 * PIECE).unwrap();
        on.write(memory, &[value; N]);
        on.up(x, memory, N, &s);
        assert_eq!(on.read(x, N, &s), [value; N]);
        on.unregister(memory).unwrap();
    }
}

fn what_is_not_registered_is_not_unregistered(on: &Subject) {
    let memory = on.ordinary(&[1; 3 * PIECE]);
    let not_registered = Some(DriverError::HOST_MEMORY_NOT_REGISTERED);
    assert_eq!(code(on.unregister(memory)), not_registered);
    on.register(memory, PIECE).unwrap();
    assert_eq!(code(on.unregister(memory.at(2 * PIECE))), not_registered);
    on.unregister(memory).unwrap();
    assert_eq!(code(on.unregister(memory)), not_registered);
}

fn registered_memory_and_allocated_memory_end_by_their_own_calls(on: &Subject) {
    let (memory, pinned) = (on.ordinary(&[1; PIECE]), on.pinned(PIECE));
    on.register(memory, PIECE).unwrap();
    assert!(on.try_host_free(memory).is_err());
    assert!(on.unregister(pinned).is_err());
    on.unregister(memory).unwrap();
    on.host_free(pinned);
}

fn nothing_cannot_be_registered(on: &Subject) {
    let memory = on.ordinary(&[1; N]);
    assert_eq!(code(on.register(memory, 0)), Some(DriverError::INVALID_VALUE));
}
