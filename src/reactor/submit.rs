//! Enqueuing on a lane: tickets, the events that fall due, waits for other lanes.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Ticket;
use super::clock::Clock;
use super::event_pool::EventRef;
use super::in_flight::{Operation, Runs};
use super::lane::{Lane, LaneId, has_room};
use crate::driver::{Driver, StreamHandle};
use crate::error::Error;
use crate::sync::MutexGuard;
use crate::sync::atomic::Ordering::*;

/// A chain that nobody waits for has an event at least every so many operations: it bounds how
/// late the record is that a first stranger to its memory has to wait for.
const CHECKPOINT: u64 = 16;
/// With so many operations unfinished as far as is known, one query in `CHECKPOINT` operations
/// keeps the frontier, and the pool of events, from growing.
const SWEEP_ABOVE: u64 = 32 * CHECKPOINT;

/// What an operation is called, and what to remember its duration under.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpKey {
    pub(crate) operation: &'static Operation,
    /// Operations of equal key are expected to take equally long.
    pub(crate) key: u32,
}

impl OpKey {
    /// Of an operation whose duration tells nothing about others.
    pub(crate) const fn of(operation: &'static Operation) -> Self {
        OpKey { operation, key: 0 }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.operation.name()
    }
}

/// When the event after an operation is to be recorded, besides when someone waits for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Recording {
    /// At the next checkpoint.
    #[default]
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
    /// Calls that name it are made under this lock.
    pub(super) stream: StreamHandle,
    record_before_next: bool,
    /// Driver calls enqueued since the last record.
    pub(super) unrecorded: u64,
    pub(super) last_key: u32,
    /// How often an event was recorded.
    pub(super) recordings: usize,
    /// What comes before all that is enqueued from here on, by the waits that were made: directly,
    /// and by what the streams waited for had waited for before.
    pub(super) clock: Clock,
    /// Tickets not known to be finished that do not count against the driver's queue, ascending.
    uncounted: VecDeque<u64>,
}

impl Submit {
    pub(super) fn of(stream: StreamHandle) -> Self {
        Submit { stream, ..Submit::default() }
    }
}

/// The right to enqueue one operation: holds the lane's submit lock.
#[derive(Debug)]
pub(crate) struct Enqueue<'l> {
    pub(super) submit: MutexGuard<'l, Submit>,
    op: OpKey,
    /// Driver calls it makes: it takes so many ticket numbers, the last of which is its own.
    calls: u64,
    /// The operation's ticket number, given out by [`Enqueue::take_ticket`].
    seq: u64,
    /// How many calls took a place in the queue before it.
    in_flight: u64,
    /// Last: dropped when the lock is free again.
    lane: AfterUnlock<'l>,
}

/// A lane whose submit lock is held by whoever holds this, and free when it is dropped.
#[derive(Debug)]
struct AfterUnlock<'l>(&'l Arc<Lane>);

impl Drop for AfterUnlock<'_> {
    fn drop(&mut self) {
        self.0.unlocked();
    }
}

impl Lane {
    /// Locks the lane to enqueue one operation that makes `calls` driver calls which count against
    /// the queue's limit. Errors: the device is lost; the queue is full.
    pub(crate) fn enqueue(self: &Arc<Self>, op: OpKey, calls: u64) -> Result<Enqueue<'_>, Error> {
        self.sweep(calls);
        let limit = self.options.queue_limit;
        let enqueue = self.lock(op, calls)?;
        let fits = has_room(enqueue.in_flight, calls, limit);
        self.wanted.store(if fits { 1 } else { calls }, Relaxed);
        if !fits {
            let (stream, in_flight) = (self.id().index(), enqueue.in_flight);
            return Err(Error::QueueFull { stream, in_flight, needed: calls, limit });
        }
        Ok(enqueue)
    }

    /// The same for what the driver's queue takes without end: allocations, frees, waits. Its ticket is
    /// given out by [`Enqueue::take_uncounted_ticket`].
    pub(crate) fn enqueue_uncounted(self: &Arc<Self>, op: OpKey) -> Result<Enqueue<'_>, Error> {
        self.sweep(0);
        self.lock(op, 1)
    }

    /// An event after everything enqueued so far, and the last ticket before it. `None`: all that
    /// is known to be finished. Timed events are recorded each time, and so are all where others
    /// enqueue too; the rest if there is none yet.
    pub(crate) fn record_event(
        self: &Arc<Self>,
        timed: bool,
    ) -> Result<(u64, Option<EventRef>), Error> {
        const RECORD: OpKey = OpKey::of(&Operation::control("recording an event"));
        if timed || self.role().is_adopted() {
            let mut enqueue = self.enqueue(RECORD, 1)?;
            let seq = enqueue.take_ticket().seq;
            enqueue.submit.record_before_next = false;
            let event = self.record_event_locked(&mut enqueue.submit, timed);
            return match event {
                Ok(event) => Ok((seq, Some(event))),
                Err(error) => {
                    enqueue.withdraw();
                    Err(self.reactor.refused(RECORD.name(), error))
                }
            };
        }
        self.reactor.check()?;
        let seq = self.submitted();
        self.record_through(seq)?;
        let covering = self.frontier.lock().covering(seq);
        // None: seen to finish since.
        Ok(covering.map_or((seq, None), |(_, at, event)| (at, Some(event))))
    }

    /// Looks how far the stream is, where there is no room or much is in flight as far as is known:
    /// what nobody waits for is found done here, and its events become free. Before the lock, since
    /// a look wakes whoever it concerns.
    fn sweep(&self, calls: u64) {
        self.look_if_due();
        // Also what is known to be finished by what came after it: its events are still there.
        let unseen = self.submitted().saturating_sub(self.progress.done.load(Acquire));
        if unseen + calls > self.options.queue_limit
            || unseen >= SWEEP_ABOVE && self.submitted.load(Relaxed).is_multiple_of(CHECKPOINT)
        {
            let oldest = self.progress.done.load(Relaxed) + 1;
            self.request_record(oldest);
            self.probe(oldest);
        }
    }

    /// Brings the count of tickets that take no place in the queue up to date. How many do that are
    /// not known to be finished: both as of one moment, since others advance `done` meanwhile.
    pub(super) fn forget_finished(&self, submit: &mut Submit) -> u64 {
        let done = self.progress.known();
        while submit.uncounted.front().is_some_and(|seq| *seq <= done) {
            submit.uncounted.pop_front();
        }
        let uncounted = submit.uncounted.len() as u64;
        self.uncounted.store(uncounted, Relaxed);
        self.forgotten.store(done, Relaxed);
        self.submitted.load(Relaxed) - done - uncounted
    }

    fn lock(self: &Arc<Self>, op: OpKey, calls: u64) -> Result<Enqueue<'_>, Error> {
        self.reactor.check()?;
        self.check_thread()?;
        let submit = self.submit.lock();
        let submitted = self.submitted.load(Relaxed);
        let (seq, lane) = (submitted + calls, AfterUnlock(self));
        let mut enqueue = Enqueue { submit, op, calls, seq, in_flight: 0, lane };
        enqueue.in_flight = self.forget_finished(&mut enqueue.submit);
        enqueue.record_if_due(submitted)?;
        Ok(enqueue)
    }
}

impl<'l> Enqueue<'l> {
    pub(crate) fn driver(&self) -> &'l dyn Driver {
        &**self.lane.0.driver()
    }

    /// The stream to call the driver with.
    pub(crate) fn stream(&self) -> &StreamHandle {
        &self.submit.stream
    }

    /// Gives out the ticket. From here on others may be told of the operation: what they make of
    /// the ticket holds whether the driver takes the operation or not, since an event recorded
    /// after a ticket that names nothing is merely later than needed.
    pub(crate) fn take_ticket(&mut self) -> Ticket {
        let lane = self.lane.0;
        if self.names_work() {
            lane.progress.names.set(self.seq, self.op.operation);
        }
        lane.submitted.store(self.seq, Release);
        self.ticket()
    }

    /// Gives out the ticket of an operation that takes no place in the driver's queue.
    pub(crate) fn take_uncounted_ticket(&mut self) -> Ticket {
        let ticket = self.take_ticket();
        self.uncount(1);
        ticket
    }

    /// The ticket, given out before.
    pub(crate) fn ticket(&self) -> Ticket {
        self.lane.0.ticket(self.seq)
    }

    /// Drops from the lane's clock what is known to be finished.
    pub(super) fn forget_finished_waits(&mut self) {
        self.lane.0.reactor.forget_finished(&mut self.submit.clock);
    }

    fn names_work(&self) -> bool {
        self.op.operation.runs() != Runs::Nothing
    }

    /// The operation was refused: its tickets name nothing and take no place in the driver's queue.
    pub(crate) fn withdraw(&mut self) {
        if self.names_work() {
            self.lane.0.progress.names.withdraw();
        }
        self.uncount(self.calls);
    }

    /// Only the first `made` calls of the operation were taken.
    pub(crate) fn withdraw_rest(&mut self, made: u64) {
        self.lane.0.progress.names.keep();
        self.submit.unrecorded += made;
        self.uncount(self.calls - made);
    }

    /// So many of the tickets, the last ones, take no place in the driver's queue.
    fn uncount(&mut self, tickets: u64) {
        self.submit.uncounted.extend(self.seq + 1 - tickets..=self.seq);
        self.lane.0.uncounted.store(self.submit.uncounted.len() as u64, Relaxed);
    }

    /// The lane, within which the order of tickets is the stream's.
    pub(crate) fn lane(&self) -> LaneId {
        self.lane.0.id()
    }

    /// The operation is on the stream. Returns its number, for its completion if that is held.
    pub(crate) fn finish(mut self, recording: Recording, held: Held) -> u64 {
        let (lane, names_work) = (self.lane.0, self.names_work());
        let submit = &mut self.submit;
        submit.last_key = self.op.key;
        submit.unrecorded += self.calls;
        submit.record_before_next = recording == Recording::BeforeNext;
        if recording == Recording::Now
            && let Err(error) = lane.record_locked(submit)
        {
            // Again before anything else goes on the stream, or when someone asks for it.
            submit.record_before_next = true;
            lane.note_refusal(&lane.records, error);
        }
        if names_work {
            lane.progress.names.keep();
        }
        if held == Held::Yes {
            lane.tail_held.store(self.seq, Release);
        }
        self.seq
    }

    /// On a lane that is one thread's, records after the operation: others cannot.
    pub(super) fn record_for_others(&mut self) {
        let lane = self.lane.0;
        if lane.is_of_a_thread()
            && !lane.reactor.is_lost()
            && let Err(error) = lane.record_locked(&mut self.submit)
        {
            self.submit.record_before_next = true;
            lane.note_refusal(&lane.records, error);
        }
    }

    fn record_if_due(&mut self, submitted: u64) -> Result<(), Error> {
        let lane = self.lane.0;
        let recorded = lane.recorded.load(Relaxed);
        let due = recorded < submitted
            && (self.submit.record_before_next
                || lane.tail_held.load(Acquire) == submitted
                || self.submit.unrecorded >= CHECKPOINT);
        if due && let Err(error) = lane.record_locked(&mut self.submit) {
            return Err(lane.reactor.refused(self.op.name(), error));
        }
        self.submit.record_before_next = false;
        Ok(())
    }
}
