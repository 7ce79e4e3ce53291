//! Models of operations that threads submit beside each other, through the whole of the submit path:
//! the race checker is told of every call in the order in which it was made, and finds nothing.

use std::sync::Arc;

use loom::thread;

use super::submit::{Operand, submit};
use crate::buffer::{DeviceBuffer, Mode};
use crate::device::{Device, models};
use crate::driver::model::ModelDriver;
use crate::driver::{DriverCall, Step, Touched};
use crate::error::{Error, Result};
use crate::reactor::{Completion, Lane, OpKey, Operation};
use crate::sync::explore;

const WORK: OpKey = OpKey::of(&Operation::kernel("work"));
const BYTES: usize = 8;

/// A device whose tasks 1 and 2 have a stream each, and buffers that task 1 has filled.
struct Modelled {
    driver: Arc<ModelDriver>,
    device: Device,
}

type Buffer = Arc<DeviceBuffer<u8>>;

impl Modelled {
    /// This thread runs task 1 from here on.
    fn open() -> Arc<Self> {
        Self::of(models::open())
    }

    fn of((driver, device): (Arc<ModelDriver>, Device)) -> Arc<Self> {
        models::run_task(1);
        device.core().set_caller_lane(&models::task_lane(&device, 0));
        Arc::new(Modelled { driver, device })
    }

    fn lane(&self, task: usize) -> Arc<Lane> {
        models::task_lane(&self.device, task - 1)
    }

    fn buffer(&self) -> Buffer {
        let buffer = Arc::new(DeviceBuffer::unwritten(self.device.core(), BYTES).unwrap());
        self.submit(&[(&buffer, Overwrite)]).unwrap();
        buffer
    }

    /// Submits one operation to the stream of the calling thread's task.
    fn submit(&self, operands: &[(&Buffer, Mode)]) -> Result<Completion> {
        let touched = operands
            .iter()
            .map(|(buffer, mode)| Touched::new(buffer.place().ptr().get(), BYTES, mode.writes()));
        let operands: Vec<_> = operands
            .iter()
            .map(|(buffer, mode)| Operand::new("buffer", buffer.place().access(*mode)))
            .collect();
        submit(self.device.core(), WORK, &operands, 1, |_, stream| {
            Ok(self.driver.work("work", touched, stream)?)
        })
    }

    /// The same, by an operation whose completion nobody holds.
    fn enqueue(&self, operands: &[(&Buffer, Mode)]) {
        drop(self.submit(operands).unwrap());
    }

    /// Runs the one here, as task 1, and the other on a thread of its own, as task 2.
    fn beside(self: &Arc<Self>, here: impl FnOnce(&Self), there: impl FnOnce(&Self) + 'static) {
        let there = {
            let m = self.clone();
            thread::spawn(move || {
                models::run_task(2);
                m.device.core().set_caller_lane(&m.lane(2));
                there(&m);
            })
        };
        here(self);
        there.join().unwrap();
    }

    /// All that is left is dropped, and then nothing has raced.
    fn end(self: Arc<Self>) {
        let Modelled { driver, device } = Arc::into_inner(self).expect("the threads have ended");
        drop(device);
        driver.assert_ordered();
    }
}

use Mode::{Overwrite, Read, Update};

/// Two tasks that have each done something with two buffers, and each do one thing more. Nothing of
/// the one's has an event when the other comes to need it.
fn conflict(preemptions: usize, here: &'static [(usize, Mode)], there: &'static [(usize, Mode)]) {
    explore(Some(preemptions), move || {
        let m = Modelled::open();
        let buffers = [m.buffer(), m.buffer()];
        let operands = |buffers: &[Buffer; 2], of: &'static [(usize, Mode)], m: &Modelled| {
            let operands: Vec<_> = of.iter().map(|(at, mode)| (&buffers[*at], *mode)).collect();
            m.enqueue(&operands);
        };
        let theirs = buffers.clone();
        m.beside(|m| operands(&buffers, here, m), move |m| operands(&theirs, there, m));
        drop(buffers);
        m.end();
    });
}

/// Up to 3 preemptions.
#[test]
fn writes_of_two_threads_are_ordered() {
    conflict(3, &[(0, Overwrite)], &[(0, Overwrite)]);
}

/// Up to 3 preemptions.
#[test]
fn a_read_beside_a_write_is_ordered_with_it() {
    conflict(3, &[(0, Read)], &[(0, Update)]);
}

/// Up to 3 preemptions.
#[test]
fn a_write_beside_a_read_is_ordered_with_it() {
    conflict(3, &[(0, Update)], &[(0, Read)]);
}

/// Up to 3 preemptions.
#[test]
fn writes_of_two_buffers_named_in_opposite_order_are_ordered_and_block_nobody() {
    conflict(3, &[(0, Overwrite), (1, Overwrite)], &[(1, Overwrite), (0, Overwrite)]);
}

/// Up to 3 preemptions.
#[test]
fn what_each_reads_of_what_the_other_writes_is_ordered() {
    conflict(3, &[(0, Read), (1, Update)], &[(1, Read), (0, Update)]);
}

/// Both have to have the other's event recorded before they can go on, twice: of the second
/// operation too. Up to 3 preemptions.
#[test]
fn two_operations_of_each_thread_are_ordered() {
    explore(Some(3), || {
        let m = Modelled::open();
        let buffer = m.buffer();
        let theirs = buffer.clone();
        m.beside(
            |m| {
                m.enqueue(&[(&buffer, Update)]);
                m.enqueue(&[(&buffer, Read)]);
            },
            move |m| {
                m.enqueue(&[(&theirs, Read)]);
                m.enqueue(&[(&theirs, Update)]);
            },
        );
        drop(buffer);
        m.end();
    });
}

/// A completion is polled meanwhile, so that the event which the other needs may be there or not. Up to
/// 3 preemptions.
#[test]
fn a_write_is_ordered_after_one_whose_event_is_being_recorded() {
    explore(Some(3), || {
        let m = Modelled::open();
        let buffer = m.buffer();
        let written = m.submit(&[(&buffer, Update)]).unwrap();
        let theirs = buffer.clone();
        m.beside(
            |_| assert!(!written.is_finished().unwrap()),
            move |m| m.enqueue(&[(&theirs, Update)]),
        );
        drop(buffer);
        m.end();
    });
}

/// What only a refused operation has written was never written. Up to 3 preemptions.
#[test]
fn a_write_that_is_refused_beside_a_read_leaves_the_record_as_it_was() {
    explore(Some(3), || {
        let m = Modelled::open();
        let buffer = m.buffer();
        let unwritten = Arc::new(DeviceBuffer::unwritten(m.device.core(), BYTES).unwrap());
        let theirs = [buffer.clone(), unwritten.clone()];
        m.driver.refuse(DriverCall::Launch, m.lane(2).stream_id());
        m.beside(
            |m| m.enqueue(&[(&buffer, Read)]),
            move |m| {
                let refused = m.submit(&[(&theirs[0], Update), (&theirs[1], Overwrite)]);
                assert!(matches!(refused, Err(Error::Refused { .. })));
            },
        );
        m.enqueue(&[(&buffer, Update)]);
        let read = m.submit(&[(&unwritten, Read)]);
        assert!(matches!(read, Err(Error::Uninitialised { .. })));
        drop((buffer, unwritten));
        m.end();
    });
}

/// The last write is on a third stream, and whoever waits for the write that was refused waits for
/// that through its stream. Up to 3 preemptions.
#[test]
fn who_sees_the_note_of_a_refused_write_comes_after_what_that_write_would_have_come_after() {
    explore(Some(3), || {
        let m = Modelled::open();
        let buffer = m.buffer();
        // Task 1 is on another stream than what it wrote from here on.
        let leased = m.device.stream();
        m.device.core().set_caller_lane(leased.lane());
        m.driver.refuse(DriverCall::Launch, m.lane(2).stream_id());
        let theirs = buffer.clone();
        m.beside(
            |m| m.enqueue(&[(&buffer, Read)]),
            move |m| assert!(m.submit(&[(&theirs, Update)]).is_err()),
        );
        drop((buffer, leased));
        m.end();
    });
}

/// A read keeps nobody out, as a write does. Up to 3 preemptions.
#[test]
fn a_read_whose_wait_is_refused_leaves_a_write_ordered_after_the_last_write() {
    explore(Some(3), || {
        let m = Modelled::open();
        let buffer = m.buffer();
        m.driver.refuse(DriverCall::StreamWait, m.lane(2).stream_id());
        let leased = m.device.stream();
        m.device.core().set_caller_lane(leased.lane());
        let theirs = buffer.clone();
        m.beside(
            |m| m.enqueue(&[(&buffer, Update)]),
            move |m| assert!(m.submit(&[(&theirs, Read)]).is_err()),
        );
        drop((buffer, leased));
        m.end();
    });
}

/// The event is taken out of its stream's frontier by the look. Up to 3 preemptions.
#[test]
fn an_operation_waits_or_what_it_would_wait_for_was_seen_to_end() {
    explore(Some(3), || {
        let m = Modelled::open();
        let buffer = m.buffer();
        let lane = m.lane(1);
        lane.request_record(lane.submitted());
        let theirs = buffer.clone();
        m.beside(
            |m| {
                m.driver.run(lane.stream_id());
                assert!(lane.probe(lane.submitted()));
            },
            move |m| m.enqueue(&[(&theirs, Update)]),
        );
        drop(buffer);
        m.end();
    });
}

/// A third stream has waited for what is needed, and its end is seen. Up to 3 preemptions.
#[test]
fn an_operation_waits_or_what_came_after_the_other_was_seen_to_end() {
    explore(Some(3), || {
        let m = Modelled::open();
        let (buffer, read) = (m.buffer(), m.buffer());
        m.enqueue(&[(&buffer, Update), (&read, Update)]);
        let leased = m.device.stream();
        m.device.core().set_caller_lane(leased.lane());
        m.enqueue(&[(&read, Read)]);
        leased.lane().request_record(leased.lane().submitted());
        let theirs = buffer.clone();
        m.beside(
            |m| {
                m.driver.run(leased.lane().stream_id());
                assert!(leased.lane().probe(leased.lane().submitted()));
            },
            move |m| m.enqueue(&[(&theirs, Update)]),
        );
        drop((buffer, read, leased));
        m.end();
    });
}

/// Looks that find one event after the other, of two. Up to 3 preemptions.
#[test]
fn an_operation_waits_while_two_threads_look() {
    explore(Some(3), || {
        let m = Modelled::open();
        let buffer = m.buffer();
        let lane = m.lane(1);
        lane.request_record(lane.submitted());
        m.enqueue(&[(&buffer, Read)]);
        lane.request_record(lane.submitted());
        m.driver.run(lane.stream_id());
        let theirs = buffer.clone();
        m.beside(
            |_| _ = lane.probe(1),
            move |m| {
                m.lane(1).probe(1);
                m.enqueue(&[(&theirs, Update)]);
            },
        );
        drop(buffer);
        m.end();
    });
}

/// Whoever drops the last handle frees the memory. Up to 3 preemptions.
#[test]
fn memory_is_freed_after_what_each_of_its_owners_submitted() {
    explore(Some(3), || {
        let m = Modelled::open();
        let buffer = m.buffer();
        let theirs = buffer.clone();
        let read_and_drop = |buffer: Buffer| {
            move |m: &Modelled| {
                m.enqueue(&[(&buffer, Read)]);
                drop(buffer);
            }
        };
        m.beside(read_and_drop(buffer), read_and_drop(theirs));
        let frees = m.driver.count(|step| matches!(step, Step::Freed { .. }));
        assert_eq!(frees, 1);
        m.end();
    });
}

/// The one only drops its handle. Up to 3 preemptions.
#[test]
fn memory_is_freed_after_the_last_read_while_its_end_is_seen() {
    explore(Some(3), || {
        let m = Modelled::open();
        let buffer = m.buffer();
        let lane = m.lane(1);
        lane.request_record(lane.submitted());
        let theirs = buffer.clone();
        m.beside(
            |m| {
                m.driver.run(lane.stream_id());
                lane.probe(lane.submitted());
                drop(buffer);
            },
            move |m| {
                m.enqueue(&[(&theirs, Read)]);
                drop(theirs);
            },
        );
        m.end();
    });
}

/// A look takes the event of a second stream out while an operation, which needs that, a first and a third
/// one, looks for it: the later event that is found then comes after the first's, and the third's comes
/// after the earlier one only. Up to 2 preemptions.
#[test]
fn an_operation_waits_for_three_streams_while_a_look_takes_the_second_ones_event_out() {
    explore(Some(2), || {
        let m = Modelled::of(models::with_streams(2, 2));
        let [z, w, y] = [(); 3].map(|()| m.buffer());
        let (a, b) = (m.lane(1), m.lane(2));
        let (c, d) = (m.device.stream(), m.device.stream());
        let on = |lane: &Arc<Lane>, operands: &[(&Buffer, Mode)]| {
            m.device.core().set_caller_lane(lane);
            m.enqueue(operands);
        };
        let record = |lane: &Arc<Lane>| lane.request_record(lane.submitted());
        record(&a);
        on(&b, &[(&y, Update)]);
        let written = b.submitted();
        record(&b);
        on(c.lane(), &[(&y, Read)]);
        record(c.lane());
        on(&a, &[(&z, Update), (&w, Update)]);
        record(&a);
        m.driver.run(b.stream_id());
        on(&b, &[(&w, Read)]);
        record(&b);
        let (d, theirs) = (d.lane().clone(), [z.clone(), y.clone()]);
        m.beside(
            |_| _ = b.probe(written),
            move |m| {
                m.device.core().set_caller_lane(&d);
                m.enqueue(&[(&theirs[0], Read), (&theirs[1], Overwrite)]);
            },
        );
        drop((z, w, y, a, b, c));
        m.end();
    });
}
