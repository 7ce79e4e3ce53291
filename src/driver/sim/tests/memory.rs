//! Device memory and page-locked memory.

use std::ptr::NonNull;

use super::{
    Fill, POISON, Schedule, SimOptions, Violation, bench, bytes_at, code, eager, leaked, stepped,
};
use crate::driver::{DevicePtr, HostKind};

#[test]
fn memory_is_freed_in_stream_order_and_the_address_comes_back_poisoned() {
    let b = stepped();
    let s = b.stream();
    let ptr = b.alloc(100, &s);
    b.fill(ptr, 7, 100, &s);
    b.free(ptr, &s);
    assert_eq!(code(b.try_free(ptr, &s)), Some(1), "freed already");
    b.sim.settle();
    assert_eq!(b.sim.live_device_bytes(), 256);
    assert_ne!(b.alloc(100, &s), ptr, "the fill has not run");
    assert!(b.sim.step().is_some());
    assert_eq!(b.sim.live_device_bytes(), 256, "the second block's");
    let again = b.alloc(90, &s);
    assert_eq!(again, ptr);
    b.sim.settle();
    assert_eq!(b.read(again, 90), [POISON; 90]);
    assert_eq!(b.sim.violations(), []);
}

#[test]
fn memory_runs_out_at_its_total() {
    let b = bench(SimOptions::new().total_memory(1_024));
    let s = b.stream();
    let ptr = b.alloc(800, &s);
    assert_eq!(b.driver.memory_free().unwrap(), 0);
    assert_eq!(code(b.driver.alloc(1, &s)), Some(2));
    assert_eq!(code(b.driver.alloc(0, &s)), Some(1));
    b.free(ptr, &s);
    b.sim.settle();
    assert_eq!(b.driver.memory_free().unwrap(), 0, "the pool keeps it");
    b.driver.pool_trim(0, None).unwrap();
    assert_eq!(b.driver.memory_free().unwrap(), 1_024);
}

#[test]
fn memory_cannot_be_used_before_its_allocation() {
    let b = stepped();
    let (s, t) = (b.stream(), b.stream());
    let other = b.alloc(4, &s);
    b.fill(other, 1, 4, &s);
    let ptr = b.alloc(4, &s);
    b.fill(ptr, 1, 4, &t);
    b.sim.step_stream(t.raw());
    assert_eq!(b.sim.violations(), [Violation::UseBeforeAlloc { name: "fill", ptr, bytes: 4 }]);
    assert_eq!(code(b.driver.stream_create(0)), Some(700));
}

#[test]
fn a_fill_that_reaches_beyond_all_addresses_is_refused() {
    let b = eager();
    let s = b.stream();
    let dst = b.alloc(8, &s);
    let fill = Fill { dst, unit: 2, value: 0, columns: usize::MAX, rows: 1, pitch: 0 };
    assert_eq!(code(b.try_fill(fill, &s)), Some(1));
    let fill = Fill { columns: 1, rows: usize::MAX, pitch: 1 << 20, ..fill };
    assert_eq!(code(b.try_fill(fill, &s)), Some(1));
}

#[test]
fn page_locked_memory_freed_under_a_pending_copy_is_reported_and_not_touched() {
    let b = stepped();
    let s = b.stream();
    let host = b.driver.host_alloc(64, HostKind::Cacheable).unwrap();
    let other = b.driver.host_alloc(64, HostKind::Cacheable).unwrap();
    assert_eq!(bytes_at(host, 64), [POISON; 64]);
    let ptr = b.alloc(64, &s);
    b.up(ptr, host, 64, &s);
    b.host_free(other);
    assert_eq!(b.sim.violations(), []);
    b.host_free(host);
    assert_eq!(b.sim.live_pinned_bytes(), 0);
    assert_eq!(code(b.try_up(ptr, host, 64, &s)), Some(1));
    assert!(b.sim.step().is_some());
    assert_eq!(code(b.driver.event_create(false)), Some(700));
    let freed = Violation::FreedPinned { name: "copy_h2d", bytes: 64 };
    assert_eq!(b.sim.violations(), [Violation::PinnedFreedInUse { bytes: 64 }, freed]);
}

#[test]
fn a_copy_onto_itself_is_reported_and_moves_the_bytes_there_were() {
    let b = eager();
    let s = b.stream();
    let ptr = b.alloc(8, &s);
    b.fill(ptr, 1, 4, &s);
    b.fill(DevicePtr(ptr.0 + 4), 2, 4, &s);
    let dst = DevicePtr(ptr.0 + 2);
    b.copy(dst, ptr, 6, &s);
    assert_eq!(b.read(ptr, 8), [1, 1, 1, 1, 1, 1, 2, 2]);
    assert_eq!(b.sim.violations(), [Violation::OverlappingCopy { src: ptr, dst }]);
}

#[test]
fn a_copy_of_nothing_needs_no_memory_and_runs_in_order() {
    let b = stepped();
    let s = b.stream();
    b.up(DevicePtr(0), NonNull::dangling(), 0, &s);
    b.down(NonNull::dangling(), DevicePtr(0), 0, &s);
    b.copy(DevicePtr(0), DevicePtr(0), 0, &s);
    b.fill(DevicePtr(0), 0, 0, &s);
    let event = b.record(&s);
    assert!(!b.done(&event));
    assert_eq!(b.sim.run_all(), 4);
    assert!(b.done(&event));
    assert_eq!(b.sim.violations(), []);
}

#[test]
fn a_copy_of_memory_that_was_unregistered_touches_nothing() {
    let b = stepped();
    let s = b.stream();
    let x = b.alloc(64, &s);
    let memory = leaked(64);
    b.try_register(memory, 64).unwrap();
    assert_eq!(b.sim.live_pinned_bytes(), 64);
    b.down(memory, x, 64, &s);
    b.try_unregister(memory).unwrap();
    assert_eq!(b.sim.live_pinned_bytes(), 0);
    b.sim.run_all();
    b.sim.settle();
    assert_eq!(bytes_at(memory, 64), [0; 64]);
    let name = "copy_d2h";
    let gone = Violation::FreedPinned { name, bytes: 64 };
    assert_eq!(b.sim.violations(), [Violation::PinnedFreedInUse { bytes: 64 }, gone]);
}

#[test]
fn room_of_a_free_is_given_to_who_comes_behind_it_once_and_to_nobody_else() {
    let b = bench(SimOptions::new().schedule(Schedule::Stepped).total_memory(1_024));
    let [s, t, u, v] = [(); 4].map(|()| b.stream());
    let x = b.alloc(1_024, &s);
    b.fill(x, 1, 1_024, &s);
    b.free(x, &s);
    assert_eq!(code(b.driver.alloc(256, &t)), Some(2), "nothing orders it");
    let e = b.record(&s);
    b.driver.stream_wait(&u, &e).unwrap();
    let f = b.record(&u);
    b.driver.stream_wait(&v, &f).unwrap();
    let y = b.alloc(768, &v);
    assert_eq!(code(b.driver.alloc(512, &u)), Some(2), "it was given away");
    b.fill(y, 2, 768, &v);
    let z = b.alloc(256, &s);
    b.fill(z, 3, 256, &s);
    b.sim.run_all();
    assert_eq!(b.sim.live_device_bytes(), 1_024);
    assert_eq!(b.sim.violations(), []);
    assert_eq!(code(b.driver.alloc(1, &s)), Some(2));
}
