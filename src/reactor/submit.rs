//! Enqueuing on a lane: tickets, the events that fall due, waits for other lanes.

use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use smallvec::SmallVec;

use super::Ticket;
use super::event_pool::EventRef;
use super::lane::{Lane, LaneId};
use crate::driver::{Driver, DriverError, DriverResult, StreamHandle};
use crate::error::Error;
use crate::sync::MutexGuard;

/// A chain that nobody waits for has an event at least every so many operations: it bounds how
/// late the record is that a first stranger to its memory has to wait for.
const CHECKPOINT: u64 = 16;
/// With so many operations unfinished as far as is known, one query in `CHECKPOINT` operations
/// keeps the frontier, and the pool of events, from growing.
const SWEEP_ABOVE: u64 = 32 * CHECKPOINT;

/// What an operation is called, and what to remember its duration under.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpKey {
    pub(crate) name: &'static str,
    /// Operations of equal key are expected to take equally long.
    pub(crate) key: u32,
}

/// When the event after an operation is to be recorded, besides when someone waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Recording {
    /// At the next checkpoint.
    Lazy,
    /// Before anything else goes on the stream: the operation touches host memory.
    BeforeNext,
    /// At once: it touches a buffer that several streams are known to use.
    Now,
}

/// Whether a submission makes a [`Completion`], which then comes from `Completion::of_submission`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    Yes,
    No,
}

/// What `Lane::submit` guards.
#[derive(Debug, Default)]
pub(crate) struct Submit {
    record_before_next: bool,
    pub(super) last_key: u32,
    /// Tickets of other lanes that this stream already waits for: all up to the number.
    waited: SmallVec<[(LaneId, u64); 8]>,
}

/// The right to enqueue one operation: holds the lane's submit lock.
#[derive(Debug)]
pub(crate) struct Enqueue<'l> {
    lane: &'l Arc<Lane>,
    /// `None` only while being dropped.
    submit: Option<MutexGuard<'l, Submit>>,
    op: OpKey,
    /// The operation's ticket number, given out by [`Enqueue::take_ticket`].
    seq: u64,
}

/// What ordering an operation after another one takes.
#[derive(Debug)]
pub(crate) enum Need {
    /// It is so already.
    Nothing,
    /// A wait for this event, which covers the other lane up to the number.
    Wait(u64, EventRef),
    /// No event covers it yet.
    Record,
}

impl Lane {
    /// Locks the lane to enqueue one operation that counts against the queue's limit. Errors:
    /// the device is lost; the queue is full.
    pub(crate) fn enqueue(self: &Arc<Self>, op: OpKey) -> Result<Enqueue<'_>, Error> {
        let limit = self.options.queue_limit;
        // Before the lock: a look wakes whoever it concerns.
        let in_flight = self.in_flight();
        if in_flight >= limit
            || in_flight >= SWEEP_ABOVE && self.submitted.load(Relaxed).is_multiple_of(CHECKPOINT)
        {
            let oldest = self.done.load(Relaxed) + 1;
            self.request_record(oldest);
            self.probe(oldest);
        }
        let enqueue = self.enqueue_uncounted(op)?;
        let in_flight = self.in_flight();
        if in_flight >= limit {
            let stream = self.id().index().to_string();
            return Err(Error::QueueFull { stream, in_flight, limit });
        }
        Ok(enqueue)
    }

    /// The same for what the driver's queue takes without end: allocations, frees, records, waits.
    pub(crate) fn enqueue_uncounted(self: &Arc<Self>, op: OpKey) -> Result<Enqueue<'_>, Error> {
        self.reactor.check()?;
        let submit = self.submit.lock();
        let submitted = self.submitted.load(Relaxed);
        let mut enqueue = Enqueue { lane: self, submit: Some(submit), op, seq: submitted + 1 };
        enqueue.record_if_due(submitted)?;
        Ok(enqueue)
    }

    /// Records an event of its own after everything enqueued so far.
    pub(crate) fn record_event(self: &Arc<Self>, timed: bool) -> Result<(u64, EventRef), Error> {
        const RECORD: OpKey = OpKey { name: "recording an event", key: 0 };
        let enqueue = if timed { self.enqueue(RECORD)? } else { self.enqueue_uncounted(RECORD)? };
        enqueue.record(timed)
    }
}

impl<'l> Enqueue<'l> {
    pub(crate) fn driver(&self) -> &'l dyn Driver {
        &**self.lane.driver()
    }

    /// The stream to call the driver with.
    pub(crate) fn stream(&self) -> DriverResult<&'l StreamHandle> {
        self.lane.stream().ok_or(DriverError::new("cuStream", DriverError::INVALID_VALUE))
    }

    /// Gives out the ticket. From here on others may be told of the operation: what they make of
    /// the ticket holds whether the driver takes the operation or not, since an event recorded
    /// after a ticket that names nothing is merely later than needed.
    pub(crate) fn take_ticket(&mut self) -> Ticket {
        self.lane.submitted.store(self.seq, Release);
        self.lane.ticket(self.seq)
    }

    /// Whether the ticket is one of this lane, whose order is the stream's.
    pub(crate) fn is_own(&self, ticket: Ticket) -> bool {
        ticket.lane == self.lane.id()
    }

    /// What it takes to run after ticket `seq` of lane `other`.
    pub(crate) fn need(&self, other: &Lane, seq: u64) -> Need {
        if other.id() == self.lane.id() || other.is_done(seq) || self.waits_for(other.id(), seq) {
            return Need::Nothing;
        }
        match other.frontier.lock().covering(seq) {
            Some((_, at, event)) => Need::Wait(at, event),
            None if other.is_done(seq) => Need::Nothing,
            None => Need::Record,
        }
    }

    /// Makes what follows on this stream wait for `event` of lane `other` (`cuStreamWaitEvent`).
    pub(crate) fn wait(&mut self, other: LaneId, seq: u64, event: &EventRef) -> DriverResult<()> {
        let Some(handle) = event.handle() else { return Ok(()) };
        self.driver().stream_wait(self.stream()?, handle)?;
        let Some(submit) = &mut self.submit else { return Ok(()) };
        match submit.waited.iter_mut().find(|w| w.0 == other) {
            Some(known) => known.1 = known.1.max(seq),
            None => submit.waited.push((other, seq)),
        }
        Ok(())
    }

    /// The operation is on the stream. Returns its number, for its completion if that is held.
    pub(crate) fn finish(mut self, recording: Recording, held: Held) -> u64 {
        let lane = self.lane;
        if let Some(submit) = &mut self.submit {
            submit.last_key = self.op.key;
            submit.record_before_next = recording == Recording::BeforeNext;
            if recording == Recording::Now
                && let Err(error) = lane.record_locked(submit)
            {
                // It is recorded when someone asks for it.
                lane.hiccup(error);
            }
        }
        if held == Held::Yes {
            lane.tail_held.store(self.seq, Release);
        }
        self.seq
    }

    fn record(mut self, timed: bool) -> Result<(u64, EventRef), Error> {
        let lane = self.lane;
        if timed {
            self.take_ticket();
        }
        let seq = lane.submitted.load(Relaxed);
        let Some(submit) = &mut self.submit else { return Err(lane.reactor.closed()) };
        submit.record_before_next = false;
        match lane.record_event_locked(submit, timed) {
            Ok(event) => Ok((seq, event)),
            Err(error) => Err(lane.reactor.refused(self.op.name, error)),
        }
    }

    fn waits_for(&self, other: LaneId, seq: u64) -> bool {
        let waited = self.submit.as_ref().map(|s| &s.waited);
        waited.is_some_and(|w| w.iter().any(|w| w.0 == other && w.1 >= seq))
    }

    fn record_if_due(&mut self, submitted: u64) -> Result<(), Error> {
        let lane = self.lane;
        let Some(submit) = &mut self.submit else { return Ok(()) };
        let recorded = lane.recorded.load(Relaxed);
        let due = recorded < submitted
            && (submit.record_before_next
                || lane.tail_held.load(Acquire) == submitted
                || submitted - recorded >= CHECKPOINT);
        if due && let Err(error) = lane.record_locked(submit) {
            return Err(lane.reactor.refused(self.op.name, error));
        }
        submit.record_before_next = false;
        Ok(())
    }
}

impl Drop for Enqueue<'_> {
    fn drop(&mut self) {
        drop(self.submit.take());
        self.lane.unlocked();
    }
}
