//! Page-locked memory.
#![allow(clippy::unwrap_used)]

use super::calls::{N, WORDS};
use super::subject::Subject;

on_every_subject![
    page_locked_memory_is_aligned_to_64_bytes,
    page_locked_memory_is_the_hosts_to_read_and_write,
    page_locked_memory_can_be_freed_and_had_again,
    page_locked_memory_can_be_had_while_a_stream_is_held,
    a_copy_may_touch_any_part_of_page_locked_memory,
];

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
