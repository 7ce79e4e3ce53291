//! Copies from and to ordinary memory.

use std::ptr::NonNull;

use super::{Bench, Pageable, Schedule, SimOptions, bench, bytes_at, code};
use crate::driver::HostKind;

const BYTES: usize = 1 << 20;
/// 1 MiB at 8.7 and at 14.8 GB/s.
const UP: u64 = 120_526;
const DOWN: u64 = 70_850;

fn with(pageable: Pageable, schedule: Schedule) -> Bench {
    bench(SimOptions::new().pageable(pageable).schedule(schedule))
}

/// Ordinary memory that lives as long as the test process.
fn ordinary(value: u8, bytes: usize) -> NonNull<u8> {
    NonNull::from(Box::leak(vec![value; bytes].into_boxed_slice())).cast()
}

fn write(ptr: NonNull<u8>, value: u8, bytes: usize) {
    // SAFETY: tests write where no operation that is being run reads.
    unsafe { ptr.write_bytes(value, bytes) };
}

fn spans(b: &Bench) -> Vec<u64> {
    b.sim.timeline().iter().map(|span| span.end - span.start).collect()
}

#[test]
fn a_delayed_copy_reads_and_writes_ordinary_memory_when_it_runs() {
    let b = with(Pageable::Delayed, Schedule::Stepped);
    let s = b.stream();
    let (ptr, from, to) = (b.alloc(BYTES, &s), ordinary(1, BYTES), ordinary(9, BYTES));
    b.up(ptr, from, BYTES, &s);
    b.down(to, ptr, BYTES, &s);
    assert_eq!(b.sim.host_now(), 2 * 1_300, "the calls wait for nothing");
    write(from, 2, BYTES);
    assert!(b.sim.step().is_some());
    write(from, 3, BYTES);
    assert_eq!(bytes_at(to, BYTES), [9; BYTES]);
    assert!(b.sim.step().is_some());
    assert_eq!(bytes_at(to, BYTES), [2; BYTES]);
    assert_eq!(spans(&b), [1_300 + UP, 1_300 + DOWN]);
    assert_eq!(b.sim.violations(), []);
}

#[test]
fn a_staged_copy_to_the_device_takes_the_bytes_at_the_call_which_takes_the_host_its_time() {
    let b = with(Pageable::Staged, Schedule::Stepped);
    let s = b.stream();
    let (ptr, from) = (b.alloc(BYTES, &s), ordinary(1, BYTES));
    b.up(ptr, from, BYTES, &s);
    write(from, 2, BYTES);
    assert_eq!(b.sim.host_now(), 1_300 + UP);
    assert!(b.sim.step().is_some());
    assert_eq!(b.read(ptr, BYTES), [1; BYTES]);
    // The device has fetched it soon after the host has staged it: it need not wait for all of it.
    let span = b.sim.timeline()[0].clone();
    assert_eq!((span.start, span.end), (1_300, 2_600 + UP));
}

#[test]
fn a_staged_copy_from_the_device_is_done_when_its_call_returns() {
    let b = with(Pageable::Staged, Schedule::Eager);
    let s = b.stream();
    let (ptr, to) = (b.alloc(BYTES, &s), ordinary(9, BYTES));
    b.fill(ptr, 4, BYTES, &s);
    b.down(to, ptr, BYTES, &s);
    assert_eq!(bytes_at(to, BYTES), [4; BYTES]);
    let end = b.sim.timeline()[1].end;
    assert_eq!(b.sim.host_now(), end, "the host has seen it");
    assert_eq!(spans(&b)[1], 1_300 + DOWN);
}

#[test]
fn a_staged_copy_from_the_device_needs_what_came_before_it() {
    let schedules = (0..20).map(Schedule::random);
    for schedule in std::iter::once(Schedule::Lazy).chain(schedules) {
        let b = with(Pageable::Staged, schedule);
        let (s, t) = (b.stream(), b.stream());
        let (ptr, to) = (b.alloc(4, &s), ordinary(9, 4));
        let made = b.record(&s);
        b.driver.stream_wait(&t, &made).unwrap();
        b.fill(ptr, 4, 4, &t);
        let filled = b.record(&t);
        b.driver.stream_wait(&s, &filled).unwrap();
        b.down(to, ptr, 4, &s);
        assert_eq!(bytes_at(to, 4), [4; 4], "{schedule:?}");
    }
}

#[test]
fn a_staged_copy_from_the_device_returns_where_nothing_more_runs() {
    let b = with(Pageable::Staged, Schedule::Stepped);
    let s = b.stream();
    let (ptr, to) = (b.alloc(4, &s), ordinary(9, 4));
    b.fill(ptr, 4, 4, &s);
    b.down(to, ptr, 4, &s);
    assert_eq!(bytes_at(to, 4), [9; 4]);
    assert_eq!(b.sim.run_all(), 2);
    assert_eq!(bytes_at(to, 4), [4; 4]);
}

#[test]
fn a_staged_copy_from_the_device_tells_of_its_failure() {
    let b = with(Pageable::Staged, Schedule::Eager);
    let s = b.stream();
    let ptr = b.alloc(4, &s);
    let refused = b.try_down(ordinary(9, 5), ptr, 5, &s);
    assert_eq!(code(refused), Some(700), "5 bytes of 4");
}

#[test]
fn host_addresses_that_can_be_told_to_be_wrong_are_refused_at_the_call() {
    for pageable in [Pageable::Staged, Pageable::Delayed] {
        let b = with(pageable, Schedule::Stepped);
        let s = b.stream();
        let ptr = b.alloc(256, &s);
        let host = b.driver.host_alloc(64, HostKind::Cacheable).unwrap();
        let at = |offset: isize| {
            let address = host.addr().get().wrapping_add_signed(offset);
            NonNull::new(std::ptr::without_provenance_mut(address)).unwrap()
        };
        for (start, bytes) in [(0, 65), (-8, 16), (-8, 128), (60, 8)] {
            assert_eq!(code(b.try_up(ptr, at(start), bytes, &s)), Some(1), "{start}, {bytes}");
            assert_eq!(code(b.try_down(at(start), ptr, bytes, &s)), Some(1), "{start}, {bytes}");
        }
        for address in [1, 4_095, ptr.0 as usize, usize::MAX] {
            let nowhere = NonNull::new(std::ptr::without_provenance_mut(address)).unwrap();
            assert_eq!(code(b.try_up(ptr, nowhere, 8, &s)), Some(1), "{address:#x}");
        }
        b.up(ptr, host, 64, &s);
        b.host_free(host);
        // The copy still names it.
        assert_eq!(code(b.try_up(ptr, at(63), 2, &s)), Some(1));
        assert_eq!(b.sim.pending().len(), 1);
    }
}
