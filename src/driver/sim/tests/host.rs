//! Page-locked memory that the host is said to have, and copies that were left behind.

use std::panic::Location;
use std::ptr::NonNull;

use super::{Bench, Violation, bytes_at, stepped};
use crate::driver::{DevicePtr, Fact, HostKind, StreamHandle};

/// A device with 1 in its memory and 8 bytes of page-locked memory that hold 9.
fn filled() -> (Bench, StreamHandle, DevicePtr, NonNull<u8>) {
    let b = stepped();
    let s = b.stream();
    let (x, y) = (b.alloc(8, &s), b.alloc(8, &s));
    let host = b.driver.host_alloc(8, HostKind::Cacheable).unwrap();
    b.fill(x, 1, 8, &s);
    b.fill(y, 9, 8, &s);
    b.down(host, y, 8, &s);
    b.sim.run_all();
    (b, s, x, host)
}

fn access(b: &Bench, ptr: NonNull<u8>, bytes: usize, writes: bool) {
    b.driver.tell(Fact::HostAccess { ptr, row: bytes, rows: 1, pitch: 0, writes });
}

/// The names and bytes of copies that were left behind.
fn left_behind(b: &Bench) -> Vec<(&'static str, u64)> {
    let copy = |violation: &Violation| match *violation {
        Violation::HostAccessInFlight { name, bytes, .. } => (name, bytes),
        _ => panic!("{violation:?}"),
    };
    b.sim.violations().iter().map(copy).collect()
}

#[test]
fn what_the_host_reads_is_written_no_more_and_who_would_have_is_named() {
    let (b, s, x, host) = filled();
    b.down(host, x, 8, &s);
    let op = b.sim.pending().remove(0);
    access(&b, host, 8, false);
    let (id, stream, name, bytes) = (op.id, s.raw(), "copy_d2h", 8);
    assert_eq!(b.sim.violations(), [Violation::HostAccessInFlight { id, stream, name, bytes }]);
    assert_eq!(b.sim.run_all(), 1, "it takes its time all the same");
    assert_eq!(bytes_at(host, 8), [9; 8]);
    b.event(); // the device works
}

#[test]
fn what_the_host_reads_may_be_read() {
    let (b, s, x, host) = filled();
    b.up(x, host, 8, &s);
    access(&b, host, 8, false);
    b.sim.run_all();
    assert_eq!(b.sim.violations(), []);
    assert_eq!(b.read(x, 8), [9; 8]);
}

#[test]
fn what_the_host_writes_or_another_owner_has_is_neither_read_nor_written() {
    for owner in [false, true] {
        let (b, s, x, host) = filled();
        b.up(x, host, 8, &s);
        b.down(host, x, 8, &b.stream());
        match owner {
            false => access(&b, host, 8, true),
            true => {
                let made_at = Location::caller();
                b.driver.tell(Fact::HostMemory { ptr: host, bytes: 8, made_at });
            }
        }
        assert_eq!(left_behind(&b), [("copy_h2d", 8), ("copy_d2h", 8)]);
        b.sim.run_all();
        assert_eq!(bytes_at(host, 8), [9; 8]);
        assert_eq!(b.read(x, 8), [1; 8]);
    }
}

#[test]
fn copies_of_other_bytes_and_later_ones_are_made() {
    let (b, s, x, host) = filled();
    let other = b.driver.host_alloc(8, HostKind::Cacheable).unwrap();
    let half = NonNull::new(host.as_ptr().wrapping_add(4)).unwrap();
    b.down(host, x, 4, &s);
    b.down(other, x, 8, &s);
    access(&b, half, 4, true);
    b.down(half, x, 4, &s);
    b.sim.run_all();
    assert_eq!(b.sim.violations(), []);
    assert_eq!((bytes_at(host, 8), bytes_at(other, 8)), (vec![1; 8], vec![1; 8]));
    access(&b, NonNull::from(&0_u8), 1, true); // ordinary memory: nobody says whose it is
}

#[test]
fn a_copy_that_failed_with_its_device_is_no_violation() {
    let (b, s, x, host) = filled();
    b.down(host, x, 8, &s);
    b.sim.fail(719);
    access(&b, host, 8, true);
    assert_eq!(b.sim.violations(), []);
}
