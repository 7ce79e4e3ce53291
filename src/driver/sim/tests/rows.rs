//! Columns: copies of rows, and launches that touch rows.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::{Bench, CostModel, SimEngine, Violation, bytes_at, code, eager, stepped};
use crate::driver::sim::{Fault, SimOpKind};
use crate::driver::{
    CopyMemory, CopyRows, CopySide, DevicePtr, Fact, HostKind, KernelCost, MemAccess, StreamHandle,
    TwinJob,
};

/// 4 bytes in every 16 of 64.
const BYTES: usize = 64;

fn device(ptr: DevicePtr, offset: u64) -> CopySide {
    CopySide { memory: CopyMemory::Device(DevicePtr(ptr.0 + offset)), pitch: 16, plane_pitch: 0 }
}

fn host(ptr: NonNull<u8>) -> CopySide {
    CopySide { memory: CopyMemory::Host(ptr), pitch: 16, plane_pitch: 0 }
}

fn column(dst: CopySide, src: CopySide) -> CopyRows {
    CopyRows { dst, src, row: 4, rows: BYTES / 16, planes: 1 }
}

fn filled(b: &Bench, value: u8, s: &StreamHandle) -> DevicePtr {
    let ptr = b.alloc(BYTES, s);
    b.fill(ptr, value, BYTES, s);
    ptr
}

fn row(each: [u8; 4]) -> Vec<u8> {
    each.map(|byte| [byte; 4]).concat().repeat(BYTES / 16)
}

#[test]
fn a_copy_onto_a_column_with_a_byte_in_common_is_reported_and_one_beside_it_is_not() {
    let b = eager();
    let s = b.stream();
    let x = filled(&b, 1, &s);
    b.try_copy_rows(&column(device(x, 4), device(x, 0)), &s).unwrap();
    assert_eq!(b.sim.violations(), []);
    let copy = column(device(x, 3), device(x, 0));
    b.try_copy_rows(&copy, &s).unwrap();
    let (src, dst) = (x, DevicePtr(x.0 + 3));
    assert_eq!(b.sim.violations(), [Violation::OverlappingCopy { src, dst }]);
}

#[test]
fn rows_are_copied_from_and_to_live_memory_only() {
    let b = stepped();
    let s = b.stream();
    let (x, y) = (filled(&b, 1, &s), filled(&b, 2, &s));
    let pinned = b.driver.host_alloc(BYTES, HostKind::Cacheable).unwrap();
    let ordinary = NonNull::from(Box::leak(Box::new([0_u8; BYTES]))).cast();
    assert_eq!(code(b.try_copy_rows(&column(device(x, 0), host(ordinary)), &s)), Some(1));
    // Beyond the block by its last row only.
    let beyond = CopyRows { rows: BYTES / 16 + 1, ..column(device(x, 0), host(pinned)) };
    assert_eq!(code(b.try_copy_rows(&beyond, &s)), Some(1));
    b.try_copy_rows(&column(host(pinned), device(x, 0)), &s).unwrap();
    b.try_copy_rows(&column(device(x, 13), device(y, 0)), &s).unwrap();
    b.sim.run_all();
    let ptr = DevicePtr(x.0 + 13);
    let illegal = Violation::IllegalAddress { name: "copy_rows", ptr, bytes: 52 };
    assert_eq!(b.sim.violations(), [illegal]);
    assert_eq!(code(b.driver.event_create(false)), Some(700));
}

#[test]
fn rows_of_page_locked_memory_that_was_freed_are_not_touched() {
    let b = stepped();
    let s = b.stream();
    let (x, pinned) = (filled(&b, 1, &s), b.driver.host_alloc(BYTES, HostKind::Cacheable).unwrap());
    b.try_copy_rows(&column(device(x, 0), host(pinned)), &s).unwrap();
    b.host_free(pinned);
    b.sim.run_all();
    let freed = Violation::FreedPinned { name: "copy_rows", bytes: 16 };
    assert_eq!(b.sim.violations(), [Violation::PinnedFreedInUse { bytes: BYTES }, freed]);
}

#[test]
fn the_host_has_what_is_between_the_rows_of_a_copy_without_disturbing_it() {
    let b = stepped();
    let s = b.stream();
    let (x, y) = (filled(&b, 1, &s), filled(&b, 9, &s));
    let pinned = b.driver.host_alloc(BYTES, HostKind::Cacheable).unwrap();
    b.down(pinned, y, BYTES, &s);
    b.try_copy_rows(&column(host(pinned), device(x, 0)), &s).unwrap();
    // So many rows, 16 bytes apart as the copy's are.
    let has = |offset: usize, row, rows| {
        let ptr = pinned.map_addr(|at| at.saturating_add(offset));
        b.driver.tell(Fact::HostAccess { ptr, row, rows, pitch: 16, writes: true });
    };
    assert_eq!(b.sim.run_all(), 4);
    b.try_copy_rows(&column(host(pinned), device(x, 0)), &s).unwrap();
    has(4, 12, 1);
    has(20, 1, 1);
    has(4, 12, 4);
    has(12, 4, 3);
    b.sim.run_all();
    assert_eq!(b.sim.violations(), []);
    assert_eq!(bytes_at(pinned, BYTES), row([1, 9, 9, 9]));

    b.try_copy_rows(&column(host(pinned), device(y, 0)), &s).unwrap();
    has(15, 2, 3);
    b.sim.run_all();
    let [Violation::HostAccessInFlight { name: "copy_rows", bytes: 16, .. }] =
        b.sim.violations()[..]
    else {
        panic!("{:?}", b.sim.violations());
    };
    assert_eq!(bytes_at(pinned, BYTES), row([1, 9, 9, 9]));
}

#[test]
fn a_copy_of_rows_takes_its_bytes_and_something_for_each_row() {
    let b = stepped();
    let s = b.stream();
    let (x, pinned) = (filled(&b, 1, &s), b.driver.host_alloc(BYTES, HostKind::Cacheable).unwrap());
    b.sim.run_all();
    let (before, cost) = (b.sim.host_now(), CostModel::h200());
    b.try_copy_rows(&column(device(x, 0), host(pinned)), &s).unwrap();
    b.try_copy_rows(&column(host(pinned), device(x, 0)), &s).unwrap();
    b.try_copy_rows(&column(device(x, 4), device(x, 0)), &s).unwrap();
    assert_eq!(b.sim.host_now() - before, 3 * 2_100);
    b.sim.run_all();
    let spans: Vec<_> =
        b.sim.timeline()[1..].iter().map(|span| (span.engine, span.end - span.start)).collect();
    let rows = cost.copy_latency_ns + 4 * cost.copy_row_ns + 1;
    let within = (SimEngine::CopyD2D, cost.copy_latency_ns + 1);
    assert_eq!(spans, [(SimEngine::CopyH2D, rows), (SimEngine::CopyD2H, rows), within]);
}

/// Two planes of two rows.
fn block(dst: CopySide, src: CopySide) -> CopyRows {
    let of = |side| CopySide { pitch: 8, plane_pitch: 32, ..side };
    CopyRows { dst: of(dst), src: of(src), row: 4, rows: 2, planes: 2 }
}

#[test]
fn a_copy_of_planes_takes_its_bytes_and_something_for_each_row_of_each_plane() {
    let b = stepped();
    let s = b.stream();
    let (x, pinned) = (filled(&b, 1, &s), b.driver.host_alloc(BYTES, HostKind::Cacheable).unwrap());
    b.sim.run_all();
    let cost = CostModel::h200();
    b.try_copy_rows(&block(device(x, 0), host(pinned)), &s).unwrap();
    b.sim.run_all();
    let spans = b.sim.timeline();
    let span = spans.last().unwrap();
    let takes = cost.copy_latency_ns + 4 * cost.copy_row_ns + 1;
    assert_eq!((span.name, span.bytes, span.end - span.start), ("copy_planes", 16, takes));
}

#[test]
fn a_copy_onto_a_block_with_a_byte_in_common_is_reported_and_one_beside_it_is_not() {
    let b = eager();
    let s = b.stream();
    let x = filled(&b, 1, &s);
    // Beside its rows, and between its planes.
    b.try_copy_rows(&block(device(x, 4), device(x, 0)), &s).unwrap();
    b.try_copy_rows(&block(device(x, 16), device(x, 0)), &s).unwrap();
    assert_eq!(b.sim.violations(), []);
    // The first plane of the one is the second of the other.
    b.try_copy_rows(&block(device(x, 32), device(x, 0)), &s).unwrap();
    let (src, dst) = (x, DevicePtr(x.0 + 32));
    assert_eq!(b.sim.violations()[..1], [Violation::OverlappingCopy { src, dst }]);
}

#[test]
fn the_host_has_a_plane_of_page_locked_memory_and_the_copy_of_it_moves_nothing() {
    let b = stepped();
    let s = b.stream();
    let (x, pinned) = (filled(&b, 1, &s), b.driver.host_alloc(BYTES, HostKind::Cacheable).unwrap());
    let has = |offset: usize, row| {
        let ptr = pinned.map_addr(|at| at.saturating_add(offset));
        b.driver.tell(Fact::HostAccess { ptr, row, rows: 1, pitch: row, writes: false });
    };
    b.try_copy_rows(&block(host(pinned), device(x, 0)), &s).unwrap();
    has(16, 16);
    has(36, 4);
    b.sim.settle();
    assert_eq!(b.sim.violations(), []);
    has(43, 1); // the last row of the last plane
    b.sim.run_all();
    let [Violation::HostAccessInFlight { name: "copy_planes", bytes: 16, .. }] =
        b.sim.violations()[..]
    else {
        panic!("{:?}", b.sim.violations());
    };
}

#[test]
fn faults_of_copies_strike_copies_of_rows_by_their_direction() {
    let b = stepped();
    let s = b.stream();
    let x = filled(&b, 1, &s);
    b.sim.inject(Fault::when_run(SimOpKind::CopyD2D, 700).after(1));
    b.try_copy_rows(&column(device(x, 4), device(x, 0)), &s).unwrap();
    b.try_copy_rows(&column(device(x, 8), device(x, 0)), &s).unwrap();
    b.sim.run_all();
    assert_eq!(b.sim.injected().len(), 1);
    assert_eq!(code(b.driver.event_create(false)), Some(700));
}

#[test]
fn columns_of_one_launch_are_beside_each_other_or_overlap_by_their_bytes() {
    let b = eager();
    let s = b.stream();
    let x = filled(&b, 1, &s);
    let columns = |first, row, pitch| {
        let (rows, writes) = (BYTES / 16, true);
        MemAccess { ptr: DevicePtr(x.0 + first), row, rows, pitch, writes }
    };
    let ran = Arc::new(AtomicUsize::new(0));
    let twin = || -> TwinJob {
        let ran = ran.clone();
        Box::new(move |memory| {
            // Each is granted from its first byte to its last.
            assert!(memory.resolve(x, 52).is_some());
            ran.fetch_add(1, Relaxed);
            Ok(())
        })
    };
    let launch = |accesses: &[MemAccess]| {
        b.try_launch(accesses, KernelCost::Unknown, 1, &s, Some(&twin)).unwrap();
        b.sim.settle();
    };
    launch(&[columns(0, 4, 16), columns(4, 8, 16), columns(12, 4, 16)]);
    // Rows at 0, 16, 32 and 48 beside others at 5, 22 and 39, and then at 5, 17 and 29.
    launch(&[columns(0, 4, 16), MemAccess { rows: 3, ..columns(5, 4, 17) }]);
    assert_eq!((ran.load(Relaxed), b.sim.violations()), (2, vec![]));
    launch(&[columns(0, 4, 16), MemAccess { rows: 3, ..columns(5, 4, 12) }]);
    assert_eq!(ran.load(Relaxed), 2);
    let second = DevicePtr(x.0 + 5);
    let overlap = Violation::OverlappingAccesses { name: "kernel", first: x, second };
    assert_eq!(b.sim.violations(), [overlap]);
}
