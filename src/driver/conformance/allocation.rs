//! Device memory, allocated and freed in the order of streams.
#![allow(clippy::unwrap_used)]

use super::calls::{N, WORDS};
use super::subject::Subject;
use crate::driver::{DevicePtr, DriverError};

on_every_subject![
    device_memory_is_aligned_to_256_bytes_and_nobody_elses,
    memory_is_there_for_work_behind_its_allocation,
    memory_is_there_for_a_stream_that_waits_for_its_allocation,
    memory_can_be_freed_on_another_stream_that_waits_for_its_users,
    contents_stay_until_memory_is_freed,
    memory_allocated_again_on_its_stream_has_the_bytes_of_its_time,
    memory_is_given_to_no_other_stream_before_its_free_is_reached,
    memory_may_be_given_to_a_stream_that_waits_for_its_free,
    a_free_comes_after_readers_that_its_stream_waited_for,
    the_device_says_how_much_memory_is_free,
    the_pool_keeps_freed_memory_until_it_is_trimmed,
    a_trim_leaves_what_is_allocated,
];

// A GPU's pool keeps what it took before it refused, and leaves other processes nothing.
on_every_subject![in_a_process_of_its_own:
    more_memory_than_there_is_is_refused_and_that_passes,
];

fn device_memory_is_aligned_to_256_bytes_and_nobody_elses(on: &Subject) {
    let s = on.stream();
    let mut live: Vec<(DevicePtr, usize)> = Vec::new();
    for bytes in [1, 2, 255, 256, 257, 1_000, 4_097, 1 << 20, 1, 3 << 20, 255] {
        let ptr = on.alloc(bytes, &s);
        assert_eq!(ptr.0 % 256, 0, "{bytes} bytes at {ptr:?}");
        for (other, length) in &live {
            let apart = ptr.0 + bytes as u64 <= other.0 || other.0 + *length as u64 <= ptr.0;
            assert!(apart, "{bytes} at {ptr:?}, {length} at {other:?}");
        }
        live.push((ptr, bytes));
    }
    for (value, (ptr, bytes)) in live.iter().enumerate() {
        on.fill(*ptr, value as u8, *bytes, &s);
    }
    for (value, (ptr, bytes)) in live.into_iter().enumerate() {
        assert!(on.read(ptr, bytes, &s).iter().all(|byte| usize::from(*byte) == value));
        on.free(ptr, &s);
    }
}

fn memory_is_there_for_work_behind_its_allocation(on: &Subject) {
    let s = on.stream();
    let to = on.pinned(N);
    let held = on.hold(&s);
    let x = on.alloc(N, &s);
    on.fill(x, 1, N, &s);
    on.down(to, x, N, &s);
    on.free(x, &s);
    let end = on.record(&s);
    held.open();
    on.finish(&end);
    assert_eq!(on.bytes(to, N), [1; N]);
}

fn memory_is_there_for_a_stream_that_waits_for_its_allocation(on: &Subject) {
    let (s, t) = (on.stream(), on.stream());
    let held = on.hold(&s);
    let x = on.alloc(N, &s);
    on.wait(&t, &on.record(&s));
    on.fill(x, 1, N, &t);
    on.increment(x, WORDS, &t);
    let end = on.record(&t);
    held.open();
    on.finish(&end);
    assert_eq!(on.read(x, N, &t), [2, 1, 1, 1].repeat(N / 4));
}

fn memory_can_be_freed_on_another_stream_that_waits_for_its_users(on: &Subject) {
    let (s, t) = (on.stream(), on.stream());
    let to = on.pinned(N);
    let x = on.filled(1, N, &s);
    let held = on.hold(&s);
    on.down(to, x, N, &s);
    on.wait(&t, &on.record(&s));
    on.free(x, &t);
    let y = on.alloc(N, &t);
    on.fill(y, 9, N, &t);
    let end = on.record(&t);
    held.open();
    on.finish(&end);
    assert_eq!(on.bytes(to, N), [1; N]);
    assert_eq!(on.read(y, N, &t), [9; N]);
}

fn contents_stay_until_memory_is_freed(on: &Subject) {
    let (s, t) = (on.stream(), on.stream());
    let x = on.filled(1, N, &s);
    let held = on.hold(&s);
    let y = on.alloc(N, &s);
    on.fill(y, 2, N, &s);
    for value in 10..60 {
        for stream in [&s, &t] {
            let other = on.alloc(N, stream);
            on.fill(other, value, N, stream);
            on.free(other, stream);
        }
    }
    let end = on.record(&s);
    held.open();
    on.finish(&end);
    on.finish(&on.record(&t));
    assert_eq!(on.read(x, N, &s), [1; N]);
    assert_eq!(on.read(y, N, &s), [2; N]);
}

fn memory_allocated_again_on_its_stream_has_the_bytes_of_its_time(on: &Subject) {
    let s = on.stream();
    let copies: Vec<_> = (0..10).map(|_| on.pinned(N)).collect();
    let held = on.hold(&s);
    for (value, to) in copies.iter().enumerate() {
        let x = on.alloc(N, &s);
        on.fill(x, value as u8, N, &s);
        on.down(*to, x, N, &s);
        on.free(x, &s);
    }
    let end = on.record(&s);
    held.open();
    on.finish(&end);
    for (value, to) in copies.into_iter().enumerate() {
        assert_eq!(on.bytes(to, N), [value as u8; N]);
    }
}

fn memory_is_given_to_no_other_stream_before_its_free_is_reached(on: &Subject) {
    let (s, t) = (on.stream(), on.stream());
    let to = on.pinned(N);
    let x = on.filled(1, N, &s);
    let held = on.hold(&s);
    on.down(to, x, N, &s);
    on.free(x, &s);
    let freed = on.record(&s);
    let others: Vec<_> = (0..20)
        .map(|_| {
            let y = on.alloc(N, &t);
            on.fill(y, 9, N, &t);
            y
        })
        .collect();
    on.finish(&on.record(&t)); // without waiting for the other stream
    assert!(!on.done(&freed));
    held.open();
    on.finish(&freed);
    assert_eq!(on.bytes(to, N), [1; N]);
    for y in others {
        assert_eq!(on.read(y, N, &t), [9; N]);
    }
}

fn memory_may_be_given_to_a_stream_that_waits_for_its_free(on: &Subject) {
    let (s, t) = (on.stream(), on.stream());
    let to = on.pinned(N);
    let x = on.filled(1, N, &s);
    let held = on.hold(&s);
    on.down(to, x, N, &s);
    on.free(x, &s);
    on.wait(&t, &on.record(&s));
    let y = on.alloc(N, &t);
    on.fill(y, 9, N, &t);
    let end = on.record(&t);
    on.let_pass();
    assert!(!on.done(&end));
    held.open();
    on.finish(&end);
    assert_eq!(on.bytes(to, N), [1; N]);
    assert_eq!(on.read(y, N, &t), [9; N]);
}

fn a_free_comes_after_readers_that_its_stream_waited_for(on: &Subject) {
    let (s, t) = (on.stream(), on.stream());
    let to = on.pinned(N);
    let x = on.filled(1, N, &s);
    let held = on.hold(&t);
    on.down(to, x, N, &t);
    on.wait(&s, &on.record(&t));
    on.free(x, &s);
    let y = on.alloc(N, &s);
    on.fill(y, 9, N, &s);
    let end = on.record(&s);
    on.let_pass();
    assert!(!on.done(&end));
    held.open();
    on.finish(&end);
    assert_eq!(on.bytes(to, N), [1; N]);
    assert_eq!(on.read(y, N, &s), [9; N]);
}

fn more_memory_than_there_is_is_refused_and_that_passes(on: &Subject) {
    let s = on.stream();
    let x = on.filled(1, N, &s);
    let total = usize::try_from(on.driver.info().total_memory).unwrap();
    for bytes in [total + (1 << 30), total * 2, total + (1 << 30)] {
        let refused = on.driver.alloc(bytes, &s).unwrap_err();
        assert_eq!(refused.code(), DriverError::OUT_OF_MEMORY);
        assert!(!refused.is_sticky());
        on.increment(x, WORDS, &s);
    }
    let y = on.filled(2, N, &s);
    assert_eq!(on.read(x, N, &s), [4, 1, 1, 1].repeat(N / 4));
    assert_eq!(on.read(y, N, &s), [2; N]);
}

fn the_device_says_how_much_memory_is_free(on: &Subject) {
    let free = on.driver.memory_free().unwrap();
    assert!(free > 0 && free <= on.driver.info().total_memory, "{free}");
}

/// More than what a GPU takes for its pool at a time.
const MUCH: usize = 256 << 20;

fn the_pool_keeps_freed_memory_until_it_is_trimmed(on: &Subject) {
    let s = on.stream();
    on.driver.pool_trim(0, None).unwrap();
    let before = on.driver.pool_usage().unwrap();
    let x = on.alloc(MUCH, &s);
    let held = on.driver.pool_usage().unwrap();
    assert!(held.used >= before.used + MUCH as u64, "{before:?} {held:?}");
    assert!(held.reserved >= held.used, "{held:?}");
    on.free(x, &s);
    let freed = on.record(&s);
    on.finish(&freed);
    let kept = on.driver.pool_usage().unwrap();
    assert_eq!(kept.reserved, held.reserved, "it is kept");
    assert!(kept.used + MUCH as u64 <= held.used, "{kept:?}");
    on.driver.pool_trim(kept.reserved, Some(&freed)).unwrap();
    assert_eq!(on.driver.pool_usage().unwrap().reserved, kept.reserved);
    let free = on.driver.memory_free().unwrap();
    on.driver.pool_trim(0, Some(&freed)).unwrap();
    let trimmed = on.driver.pool_usage().unwrap();
    assert!(trimmed.reserved + MUCH as u64 <= kept.reserved, "{kept:?} {trimmed:?}");
    assert!(on.driver.memory_free().unwrap() >= free + MUCH as u64 / 2);
}

/// Beside a stream that cannot run: it waits for none.
fn a_trim_leaves_what_is_allocated(on: &Subject) {
    let (s, t) = (on.stream(), on.stream());
    let x = on.filled(7, N, &t);
    let held = on.hold(&s);
    let y = on.alloc(N, &s);
    on.fill(y, 8, N, &s);
    on.driver.pool_trim(0, None).unwrap();
    let usage = on.driver.pool_usage().unwrap();
    assert!(usage.used >= 2 * N as u64 && usage.reserved >= usage.used, "{usage:?}");
    assert_eq!(on.read(x, N, &t), [7; N]);
    held.open();
    assert_eq!(on.read(y, N, &s), [8; N]);
}
