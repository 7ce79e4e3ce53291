//! What is refused, and what ends the device.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Violation, bytes_at, code, eager, stepped};
use crate::driver::{
    DevicePtr, EventHandle, HostKind, KernelCost, MemAccess, StreamHandle, TwinFault, TwinJob,
};

#[test]
fn an_illegal_address_ends_the_device_and_queries_fail() {
    let b = stepped();
    let (s, t) = (b.stream(), b.stream());
    let ptr = b.alloc(16, &s);
    let before = b.record(&s);
    b.sim.settle();
    assert!(b.done(&before));
    b.fill(ptr, 1, 17, &s);
    b.fill(ptr, 1, 16, &t);
    let after = b.record(&t);
    assert_eq!(b.sim.step().map(|op| op.bytes), Some(17));
    for event in [&before, &after] {
        assert_eq!(code(b.driver.event_query(event)), Some(700));
    }
    assert_eq!(code(b.driver.alloc(1, &s)), Some(700));
    assert_eq!(code(b.driver.host_alloc(1, HostKind::Cacheable)), Some(700));
    assert!(b.driver.event_query(&after).is_err_and(|error| error.is_sticky()));
    assert_eq!(b.pending(), [], "what was pending never runs");
    assert_eq!(b.sim.step(), None);
    let illegal = Violation::IllegalAddress { name: "fill", ptr, bytes: 17 };
    assert_eq!(b.sim.violations(), [illegal]);
}

#[test]
fn a_twin_that_panics_ends_the_device() {
    let b = eager();
    let s = b.stream();
    b.launch(&s, |_| std::panic::resume_unwind(Box::new("on purpose")));
    b.sim.settle();
    assert_eq!(code(b.driver.event_create(false)), Some(719));
    assert_eq!(b.sim.violations(), [Violation::TwinPanicked { name: "kernel" }]);
}

#[test]
fn a_twin_sees_the_memory_its_launch_declared_and_no_other() {
    let b = eager();
    let s = b.stream();
    let (x, y) = (b.alloc(8, &s), b.alloc(8, &s));
    b.fill(x, 5, 8, &s);
    let reads = [MemAccess::of_bytes(x, 8, false)];
    let twin = move || -> TwinJob {
        Box::new(move |memory| {
            let at = memory.resolve(DevicePtr(x.0 + 2), 6).unwrap();
            assert_eq!(bytes_at(at, 6), [5; 6]);
            assert!(memory.resolve(x, 9).is_none());
            assert!(memory.resolve(y, 0).is_some());
            memory.resolve(y, 1).map(drop).ok_or(TwinFault { ptr: y, bytes: 1 })
        })
    };
    b.try_launch(&reads, KernelCost::Unknown, 1, &s, Some(&twin)).unwrap();
    b.sim.settle();
    assert_eq!(code(b.driver.event_create(false)), Some(700));
    let illegal = Violation::IllegalAddress { name: "kernel", ptr: y, bytes: 1 };
    assert_eq!(b.sim.violations(), [illegal]);
}

#[test]
fn a_launch_whose_write_overlaps_another_access_does_not_run() {
    let b = eager();
    let s = b.stream();
    let x = b.alloc(8, &s);
    let access = |offset, writes| MemAccess::of_bytes(DevicePtr(x.0 + offset), 4, writes);
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let twin = move || -> TwinJob {
        let counter = Arc::clone(&counter);
        Box::new(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
    };
    for accesses in [
        [access(0, false), access(2, false)],
        [access(0, true), access(4, true)],
        [access(0, false), access(3, true)],
    ] {
        b.try_launch(&accesses, KernelCost::Unknown, 1, &s, Some(&twin)).unwrap();
        b.sim.settle();
    }
    assert_eq!(count.load(Ordering::Relaxed), 2);
    let second = DevicePtr(x.0 + 3);
    let overlap = Violation::OverlappingAccesses { name: "kernel", first: x, second };
    assert_eq!(b.sim.violations(), [overlap]);
    assert_eq!(code(b.driver.event_create(false)), Some(700));
}

#[test]
fn a_launch_without_a_twin_and_calls_with_dead_handles_are_refused() {
    let b = eager();
    let s = b.stream();
    let twin = || -> TwinJob { Box::new(|_| Ok(())) };
    assert_eq!(code(b.try_launch(&[], KernelCost::Unknown, 1, &s, None)), Some(801));
    let gone = StreamHandle::new(s.raw());
    b.driver.stream_destroy(s).unwrap();
    assert_eq!(code(b.try_launch(&[], KernelCost::Unknown, 1, &gone, Some(&twin))), Some(400));
    assert_eq!(code(b.driver.stream_destroy(gone)), Some(400));
    assert_eq!(code(b.driver.event_destroy(EventHandle::new(99))), Some(400));
}
