//! The reactor's side of one stream.

use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::backoff::{Estimate, next_look};
use super::event_pool::EventRef;
use super::frontier::Frontier;
use super::in_flight::Progress;
use super::of_thread::Owner;
use super::refusals::Refusals;
use super::submit::Submit;
use super::thread::Reactor;
use super::waiters::{WaiterKey, Waiters, Wakers, discard};
use super::{Completion, Ticket};
use crate::driver::{DefaultStream, Driver, DriverResult, StreamHandle};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

/// Names a lane in this process: the device's number above, the lane's within it below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LaneId(pub(crate) u64);

impl LaneId {
    pub(super) const INDEX_BITS: u32 = 16;

    pub(crate) fn new(device: u32, index: u16) -> Self {
        LaneId((u64::from(device) << Self::INDEX_BITS) | u64::from(index))
    }

    /// The number of the device among those this process opened.
    pub(crate) fn device(self) -> u32 {
        (self.0 >> Self::INDEX_BITS) as u32
    }

    /// The number of the lane within its device.
    pub(crate) fn index(self) -> usize {
        (self.0 & ((1 << Self::INDEX_BITS) - 1)) as usize
    }
}

/// What a stream was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StreamRole {
    /// Dealt to tasks and threads, for what they enqueue outside of any scope.
    Task,
    /// Lent to one holder at a time, as long as there are enough: a scope, a spawned task, whoever
    /// asked for a stream.
    Leased,
    /// The library's own, for freeing memory that several streams used.
    Reclaim,
    /// CUDA's legacy default stream, adopted.
    LegacyDefault,
    /// CUDA's default stream of one thread, adopted.
    PerThreadDefault,
}

impl StreamRole {
    /// Whether others enqueue there too, and it is not the library's to destroy.
    pub(super) fn is_adopted(self) -> bool {
        matches!(self, StreamRole::LegacyDefault | StreamRole::PerThreadDefault)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct LaneOptions {
    pub(crate) id: LaneId,
    pub(crate) role: StreamRole,
    pub(crate) priority: i32,
    /// Unfinished operations it may hold.
    pub(crate) queue_limit: u64,
}

/// One stream, the operations enqueued on it and who waits for them.
pub(crate) struct Lane {
    pub(super) options: LaneOptions,
    /// The handle's id, to tell streams apart. The handle is behind `submit`.
    stream_id: AtomicU64,
    /// Who may make calls that name the stream.
    pub(super) owner: Owner,
    /// The last ticket given out. Grows under `submit` only.
    pub(super) submitted: AtomicU64,
    pub(super) progress: Arc<Progress>,
    /// How many of the tickets after `forgotten` take no place in the driver's queue. Changes under
    /// `submit` only.
    pub(super) uncounted: AtomicU64,
    /// How far it was known to be done at the last `forget_finished`. Changes under `submit` only.
    pub(super) forgotten: AtomicU64,
    /// How many places in the queue the operation takes that was last refused for want of them.
    pub(super) wanted: AtomicU64,
    /// An event was recorded after every ticket up to here. Grows under `submit` only.
    pub(super) recorded: AtomicU64,
    /// The newest ticket while its completion is held by someone, else 0.
    pub(super) tail_held: AtomicU64,
    /// The frontier has grown since somebody looked: whoever enqueues here next looks, or waits for the
    /// lane elsewhere. Set under `submit`.
    pub(super) look_due: AtomicBool,
    /// Someone found `submit` taken and wants an event; whoever unlocks it looks here.
    pub(super) record_wanted: AtomicBool,
    /// Held to enqueue: it makes the order of tickets the order of the stream. The one lock held
    /// over driver calls, none of which blocks.
    pub(super) submit: Mutex<Submit>,
    /// Leaf lock.
    pub(super) frontier: Mutex<Frontier<EventRef>>,
    /// Leaf lock.
    waiters: Mutex<Waiters>,
    /// Taken by the one thread that may take recordings out of `frontier`.
    pub(super) probing: AtomicBool,
    /// Of records and of queries, what the driver refused in a row.
    pub(super) records: Refusals,
    pub(super) queries: Refusals,
    /// Last: the events of `frontier` go back to it.
    pub(super) reactor: Arc<Reactor>,
}

impl Lane {
    /// Makes the stream (`cuStreamCreateWithPriority`) and its lane. A default stream is there
    /// without; that of a thread is the calling one's.
    pub(crate) fn open(reactor: &Arc<Reactor>, options: LaneOptions) -> DriverResult<Arc<Lane>> {
        let driver = reactor.driver();
        let (stream, owner) = match options.role {
            StreamRole::Task | StreamRole::Leased | StreamRole::Reclaim => {
                (driver.stream_create(options.priority)?, Owner::anyone())
            }
            StreamRole::LegacyDefault => {
                (driver.default_stream(DefaultStream::Legacy), Owner::anyone())
            }
            StreamRole::PerThreadDefault => {
                (driver.default_stream(DefaultStream::PerThread), Owner::this_thread())
            }
        };
        let lane = Arc::new(Lane {
            options,
            stream_id: AtomicU64::new(stream.id()),
            owner,
            submitted: AtomicU64::new(0),
            progress: Arc::new(Progress::new()),
            uncounted: AtomicU64::new(0),
            forgotten: AtomicU64::new(0),
            wanted: AtomicU64::new(1),
            recorded: AtomicU64::new(0),
            tail_held: AtomicU64::new(0),
            look_due: AtomicBool::new(false),
            record_wanted: AtomicBool::new(false),
            submit: Mutex::new(Submit::of(stream)),
            frontier: Mutex::new(Frontier::new()),
            waiters: Mutex::new(Waiters::default()),
            probing: AtomicBool::new(false),
            records: Refusals::default(),
            queries: Refusals::default(),
            reactor: reactor.clone(),
        });
        reactor.register(&lane);
        Ok(lane)
    }

    pub(crate) fn id(&self) -> LaneId {
        self.options.id
    }

    pub(crate) fn priority(&self) -> i32 {
        self.options.priority
    }

    pub(crate) fn role(&self) -> StreamRole {
        self.options.role
    }

    /// For messages.
    pub(super) fn describe(&self) -> String {
        format!("{} ({:?})", self.id().index(), self.role())
    }

    pub(crate) fn reactor(&self) -> &Arc<Reactor> {
        &self.reactor
    }

    pub(crate) fn driver(&self) -> &Arc<dyn Driver> {
        self.reactor.driver()
    }

    /// What the stream is called by who watches the driver, and by a simulated device.
    pub(crate) fn stream_id(&self) -> u64 {
        self.stream_id.load(Relaxed)
    }

    /// What the driver calls the stream.
    pub(crate) fn raw(&self) -> u64 {
        StreamHandle::raw_of(self.stream_id())
    }

    /// The lane goes on with this stream: see [`Lane::take_over`].
    pub(super) fn set_stream(&self, stream: StreamHandle) {
        self.stream_id.store(stream.id(), Relaxed);
        self.submit.lock().stream = stream;
    }

    /// The last ticket given out.
    pub(crate) fn submitted(&self) -> u64 {
        self.submitted.load(Acquire)
    }

    /// Whether ticket `seq` was seen to finish, by a look at this lane. Asks nobody.
    pub(super) fn is_done(&self, seq: u64) -> bool {
        self.progress.done.load(Acquire) >= seq
    }

    /// Whether ticket `seq` is known to be finished: it was seen to, or something that came after
    /// it was, maybe on another lane. Asks nobody. True is an acquire of what it wrote.
    pub(crate) fn is_known_finished(&self, seq: u64) -> bool {
        self.progress.is_known_finished(seq)
    }

    /// Operations not known to be finished that take a place in the driver's queue.
    pub(crate) fn counted_in_flight(&self) -> u64 {
        let Some(mut submit) = self.submit.try_lock() else {
            // Someone is enqueuing: roughly, as of the last time.
            let known = self.forgotten.load(Relaxed) + self.uncounted.load(Relaxed);
            return self.submitted().saturating_sub(known);
        };
        let in_flight = self.forget_finished(&mut submit);
        drop(submit);
        self.unlocked();
        in_flight
    }

    /// Whether nothing that takes a place in the driver's queue is known to be in flight. Asks nobody
    /// and takes no lock: where tickets that take none have finished since, it may say so too early.
    pub(crate) fn seems_idle(&self) -> bool {
        self.in_flight() <= self.uncounted.load(Relaxed)
    }

    /// Tickets given out and not known to be finished, whether they name anything or not.
    pub(super) fn in_flight(&self) -> u64 {
        self.submitted().saturating_sub(self.progress.known())
    }

    /// A future of ticket `seq`, for one who was not given it by the submission.
    pub(crate) fn completion(self: &Arc<Self>, seq: u64) -> Completion {
        Completion::new(self.clone(), seq, false)
    }

    /// A future of everything enqueued so far, and of nothing that is enqueued later.
    pub(crate) fn synchronize(self: &Arc<Self>) -> Completion {
        let seq = self.submitted();
        self.request_record(seq);
        self.completion(seq)
    }

    /// A future that is ready once another operation may be enqueued, `None` where that is so now.
    pub(crate) fn room(self: &Arc<Self>) -> Option<Completion> {
        let limit = self.options.queue_limit;
        let (in_flight, wanted) = (self.counted_in_flight(), self.wanted.load(Relaxed));
        if has_room(in_flight, wanted, limit) {
            return None;
        }
        // Half a queue of room at once: one wake-up for many operations. Of no ticket that was not
        // given out: all may have finished meanwhile.
        let (submitted, oldest) = (self.submitted(), self.progress.done.load(Acquire) + 1);
        Some(self.completion(submitted.saturating_sub(limit / 2).max(oldest).min(submitted)))
    }

    /// Adds or renews a waiter. The caller looks at `done` once more afterwards.
    pub(super) fn register_waiter(
        &self,
        seq: u64,
        key: Option<WaiterKey>,
        waker: Waker,
    ) -> WaiterKey {
        let (key, replaced) = self.waiters.lock().register(seq, key, waker);
        discard(replaced);
        key
    }

    pub(super) fn remove_waiter(&self, key: WaiterKey) {
        let removed = self.waiters.lock().remove(key);
        discard(removed);
    }

    pub(super) fn take_waiters(&self, through: u64) -> Wakers {
        self.waiters.lock().take_through(through)
    }

    /// The lowest ticket that someone waits for.
    pub(super) fn lowest_waited(&self) -> Option<u64> {
        self.waiters.lock().lowest()
    }

    /// How long to leave ticket `seq` alone before asking for it.
    pub(super) fn next_look(&self, seq: u64, now: Instant) -> Duration {
        let outlook = self.frontier.lock().outlook(seq, now);
        match outlook {
            Some((elapsed, estimate)) => next_look(elapsed, estimate),
            // Not recorded yet: in a moment, or after trouble in a while.
            None => next_look(Duration::ZERO, None) * (1 << self.records.count().min(8)),
        }
    }

    pub(super) fn estimate(&self, seq: u64) -> Option<Estimate> {
        self.frontier.lock().estimate(seq)
    }

    /// Whether either's driver understands the other's events: on one device, and among CUDA's.
    pub(crate) fn can_share_events(&self, other: &Lane) -> bool {
        let simulated = |lane: &Lane| lane.driver().info().simulated;
        self.id().device() == other.id().device() || !simulated(self) && !simulated(other)
    }

    pub(crate) fn ticket(&self, seq: u64) -> Ticket {
        Ticket { lane: self.id(), seq }
    }
}

/// Whether a queue with so many operations in flight takes `calls` more. An empty one takes any
/// operation, so that none is refused for ever.
pub(super) fn has_room(in_flight: u64, calls: u64, limit: u64) -> bool {
    in_flight == 0 || in_flight + calls <= limit
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane")
            .field("id", &self.options.id)
            .field("role", &self.options.role)
            .field("submitted", &self.submitted)
            .field("recorded", &self.recorded)
            .field("done", &self.progress.done)
            .finish_non_exhaustive()
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let stream = std::mem::take(&mut self.submit.lock().stream);
        if self.role().is_adopted() || self.reactor.is_lost() {
            return; // not ours, or it takes nothing back
        }
        if let Err(cause) = self.driver().stream_destroy(stream) {
            let error = self.reactor.refused("destroying a stream", cause);
            self.reactor.hook().not_released(|| format!("stream {}", self.describe()), error);
            self.reactor.announce();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::driver::sim::{SimOptions, open};
    use crate::reactor::{Held, OpKey, Operation, ReactorOptions, Recording};

    #[test]
    fn room_is_not_waited_for_where_all_has_finished_and_someone_is_enqueuing() {
        const WORK: OpKey = OpKey::of(&Operation::kernel("work"));
        let options = ReactorOptions {
            device: 0,
            inline_spin: Duration::ZERO,
            by_hand: false,
            hook: Default::default(),
        };
        let reactor = Reactor::new(open(SimOptions::new()).0, options);
        let id = LaneId::new(0, 0);
        let options = LaneOptions { id, role: StreamRole::Task, priority: 0, queue_limit: 2 };
        let lane = Lane::open(&reactor, options).unwrap();
        for _ in 0..2 {
            let mut enqueue = lane.enqueue(WORK, 1).unwrap();
            enqueue.take_ticket();
            enqueue.finish(Recording::Lazy, Held::No);
        }
        assert_eq!(lane.counted_in_flight(), 2);
        lane.request_record(2);
        while !lane.probe(2) {
            std::thread::sleep(Duration::from_micros(50));
        }
        let _enqueuing = lane.submit.lock();
        let room = lane.room();
        assert!(room.is_none_or(|room| room.is_finished().unwrap()), "it waits for what never was");
    }
}
