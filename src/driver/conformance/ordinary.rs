//! Copies whose host memory is ordinary, not page-locked. It is left open when the bytes are read or
//! written: by the call, or at any time until the stream has come past the copy.
//!
//! A call may wait until the copy is done, so no stream is held here: it is only kept busy.

use super::calls::{Host, N, WORDS};
use super::subject::Subject;
use crate::driver::StreamHandle;

on_every_subject![
    bytes_of_ordinary_memory_are_on_the_device_when_the_stream_has_come_so_far,
    bytes_are_in_ordinary_memory_when_the_stream_has_come_so_far,
    copies_of_ordinary_memory_are_in_the_order_of_their_stream,
    a_stream_that_waits_for_a_copy_of_ordinary_memory_finds_its_bytes,
    ordinary_memory_is_the_hosts_again_when_the_copy_is_done,
    a_copy_touches_no_more_of_ordinary_memory_than_it_is_told,
    copies_of_nothing_leave_ordinary_memory_alone,
];

/// Around what CUDA stages in one go (64 KiB), and more.
const SIZES: [usize; 7] = [1, 255, 4_097, 65_535, 65_536, 65_537, (1 << 20) + 3];

fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 7 + seed + 1) as u8).collect()
}

/// Keeps the stream busy while the next calls are made.
fn busy(on: &Subject, stream: &StreamHandle) {
    on.delay(2_000_000, stream);
}

fn bytes_of_ordinary_memory_are_on_the_device_when_the_stream_has_come_so_far(on: &Subject) {
    let s = on.stream();
    for (seed, bytes) in SIZES.into_iter().enumerate() {
        let from = on.ordinary(&pattern(bytes, seed));
        let x = on.alloc(bytes, &s);
        busy(on, &s);
        on.fill(x, 0, bytes, &s);
        on.up(x, from, bytes, &s);
        on.finish(&on.record(&s));
        assert!(on.read(x, bytes, &s) == pattern(bytes, seed), "{bytes} bytes");
    }
}

fn bytes_are_in_ordinary_memory_when_the_stream_has_come_so_far(on: &Subject) {
    let s = on.stream();
    for (seed, bytes) in SIZES.into_iter().enumerate() {
        let (from, to) = (on.pinned_with(&pattern(bytes, seed)), on.ordinary(&vec![0xEE; bytes]));
        let x = on.alloc(bytes, &s);
        busy(on, &s);
        on.up(x, from, bytes, &s);
        on.down(to, x, bytes, &s);
        on.finish(&on.record(&s));
        assert!(on.bytes(to, bytes) == pattern(bytes, seed), "{bytes} bytes");
    }
}

fn copies_of_ordinary_memory_are_in_the_order_of_their_stream(on: &Subject) {
    let s = on.stream();
    let x = on.filled(0, N, &s);
    let froms = [1, 3, 5].map(|value| on.ordinary(&[value; N]));
    let mut tos: Vec<Host> = Vec::new();
    busy(on, &s);
    for from in froms {
        on.up(x, from, N, &s);
        on.increment(x, WORDS, &s);
        let to = on.ordinary(&[0xEE; N]);
        on.down(to, x, N, &s);
        on.fill(x, 0xFF, N, &s);
        tos.push(to);
    }
    on.finish(&on.record(&s));
    for (to, value) in tos.into_iter().zip([1, 3, 5]) {
        assert_eq!(on.bytes(to, N), [value + 1, value, value, value].repeat(N / 4));
    }
    assert_eq!(on.read(x, N, &s), [0xFF; N]);
}

fn a_stream_that_waits_for_a_copy_of_ordinary_memory_finds_its_bytes(on: &Subject) {
    let (s, t) = (on.stream(), on.stream());
    let x = on.filled(0, N, &s);
    let (from, to) = (on.ordinary(&[4; N]), on.ordinary(&[0xEE; N]));
    busy(on, &s);
    on.up(x, from, N, &s);
    on.wait(&t, &on.record(&s));
    on.increment(x, WORDS, &t);
    busy(on, &t);
    on.wait(&s, &on.record(&t));
    on.down(to, x, N, &s);
    on.finish(&on.record(&s));
    assert_eq!(on.bytes(to, N), [5, 4, 4, 4].repeat(N / 4));
}

fn ordinary_memory_is_the_hosts_again_when_the_copy_is_done(on: &Subject) {
    let s = on.stream();
    let x = on.filled(0, N, &s);
    let memory = on.ordinary(&[1; N]);
    for value in 1..6 {
        busy(on, &s);
        on.up(x, memory, N, &s);
        on.finish(&on.record(&s)); // it is to stay as it is until here
        on.write(memory, &[9; N]);
        on.increment(x, WORDS, &s);
        on.down(memory, x, N, &s);
        on.finish(&on.record(&s)); // and to be let alone until here
        let found = on.bytes(memory, N);
        assert_eq!(found, [value + 1, value, value, value].repeat(N / 4));
        on.write(memory, &[value + 1; N]);
    }
    on.let_pass();
    assert_eq!(on.bytes(memory, N), [6; N]);
}

fn a_copy_touches_no_more_of_ordinary_memory_than_it_is_told(on: &Subject) {
    let s = on.stream();
    let x = on.filled(7, N, &s);
    let (from, to) = (on.ordinary(&pattern(N, 0)), on.ordinary(&[0xEE; N]));
    let ranges = [(0, 1), (3, 5), (100, 33), (255, 1)];
    for (offset, bytes) in ranges {
        on.up(super::calls::at(x, offset), from.at(offset), bytes, &s);
        on.down(to.at(offset), super::calls::at(x, offset), bytes, &s);
    }
    on.finish(&on.record(&s));
    let (mut on_device, mut on_host) = ([7; N].to_vec(), [0xEE; N].to_vec());
    for i in ranges.into_iter().flat_map(|(offset, bytes)| offset..offset + bytes) {
        on_device[i] = pattern(N, 0)[i];
        on_host[i] = pattern(N, 0)[i];
    }
    assert_eq!(on.read(x, N, &s), on_device);
    assert_eq!(on.bytes(to, N), on_host);
}

fn copies_of_nothing_leave_ordinary_memory_alone(on: &Subject) {
    let s = on.stream();
    let x = on.filled(7, N, &s);
    let memory = on.ordinary(&[1; N]);
    on.up(x, memory, 0, &s);
    on.down(memory, x, 0, &s);
    on.finish(&on.record(&s));
    assert_eq!((on.bytes(memory, N), on.read(x, N, &s)), (vec![1; N], vec![7; N]));
}
