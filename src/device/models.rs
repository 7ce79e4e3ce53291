//! Models of how threads come by their streams, and the device that models of operations are run on.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use loom::thread;

use super::{Backend, Device, DeviceOptions, Priority, StreamOptions, current};
use crate::driver::model::ModelDriver;
use crate::reactor::{Lane, StreamRole};
use crate::sync::explore;

loom::thread_local! {
    /// The number of the task that the thread runs.
    static TASK: Cell<Option<u64>> = Cell::new(None);
}

/// A device with two streams for tasks, one to lease and one to reclaim memory, turned by hand.
pub(crate) fn open() -> (Arc<ModelDriver>, Device) {
    with_streams(2, 1)
}

/// The same with as many streams for tasks and to lease.
pub(crate) fn with_streams(task_streams: u16, leased_streams: u16) -> (Arc<ModelDriver>, Device) {
    current::install_task_id(|| TASK.with(Cell::get));
    let driver = ModelDriver::new();
    let backend = Backend { driver: driver.clone(), watched: None, simulator: None };
    let options = DeviceOptions {
        inline_spin: Duration::ZERO,
        single_stream: false,
        queue_limit: 100,
        by_hand: true,
        events_in_advance: 2,
        task_streams,
        leased_streams,
        memory_limit: None,
        pinned_limit: None,
        in_flight_bytes: None,
        in_flight_operations: None,
        keeps_memory: false,
        staging: Default::default(),
        hook: Default::default(),
    };
    let device = Device::open(backend, options).unwrap();
    device.core().reactor().turned_by(Some(std::task::Waker::noop().clone()));
    (driver, device)
}

/// The device's lane for tasks of that number, from 0.
pub(crate) fn task_lane(device: &Device, number: usize) -> Arc<Lane> {
    let of_tasks = |lane: &&Arc<Lane>| lane.role() == StreamRole::Task;
    device.core().lanes.iter().filter(of_tasks).nth(number).unwrap().clone()
}

/// From here on the calling thread runs the task of that number.
pub(crate) fn run_task(number: u64) {
    TASK.with(|task| task.set(Some(number)));
}

/// Two runtimes can number tasks alike. Up to 3 preemptions.
#[test]
fn tasks_of_one_number_get_a_stream_for_tasks_each_time() {
    explore(Some(3), || {
        let (_, device) = with_streams(2, 1);
        let ask = |device: Device| {
            move || {
                run_task(1);
                assert_eq!(device.core().current_lane().role(), StreamRole::Task);
                device.core().set_caller_lane(&task_lane(&device, 1));
                assert_eq!(device.core().current_lane().role(), StreamRole::Task);
            }
        };
        let other = thread::spawn(ask(device.clone()));
        ask(device)();
        other.join().unwrap();
    });
}

#[test]
fn tasks_that_ask_at_once_are_dealt_different_streams_and_keep_them() {
    explore(None, || {
        let (_, device) = with_streams(2, 1);
        let ask = |task, device: Device| {
            move || {
                run_task(task);
                let lane = device.core().current_lane();
                assert_eq!(device.core().current_lane().id(), lane.id());
                lane.id()
            }
        };
        let other = thread::spawn(ask(2, device.clone()));
        let own = ask(1, device)();
        assert_ne!(own, other.join().unwrap());
    });
}

#[test]
fn streams_leased_at_once_are_different_and_all_come_back() {
    explore(None, || {
        let (_, device) = with_streams(1, 2);
        let lease = |device: Device| {
            move || {
                let stream = device.stream_with(StreamOptions::new());
                (stream.number(), stream)
            }
        };
        let other = thread::spawn(lease(device.clone()));
        let (own, stream) = lease(device.clone())();
        let (others, other_stream) = other.join().unwrap();
        assert_ne!(own, others);
        let returned = thread::spawn(move || drop(other_stream));
        drop(stream);
        returned.join().unwrap();
        assert_eq!(device.core().streams().leases(Priority::Normal), [0, 0]);
    });
}

#[test]
fn a_stream_that_is_lent_twice_is_counted_twice() {
    explore(None, || {
        let (_, device) = with_streams(1, 1);
        let lease = |device: Device| move || drop(device.stream());
        let held = device.stream();
        let other = thread::spawn(lease(device.clone()));
        lease(device.clone())();
        other.join().unwrap();
        assert_eq!(device.core().streams().leases(Priority::Normal), [1]);
        drop(held);
        assert_eq!(device.core().streams().leases(Priority::Normal), [0]);
    });
}
