//! The reactor's thread: started by the first wait, parked while nothing is waited for.

use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use super::Ticket;
use super::by_hand::hand;
use super::clock::Clock;
use super::event_pool::EventPool;
use super::fate::{News, OpenedLane};
use super::hook::ErrorHook;
use super::lane::Lane;
use super::timer_slack::PreciseSleeps;
use super::waiters::Waiters;
use crate::driver::{Driver, DriverResult, stay};
use crate::error::{DeviceFailure, Error};
use crate::foreign::contained;
use crate::sync::atomic::AtomicBool;
use crate::sync::{Condvar, Mutex, OnceLock};

/// Rounds of one lane are at least this far apart, those of many lanes further.
const SHORTEST_ROUND: Duration = Duration::from_micros(20);
const ROUND_PER_LANE: Duration = Duration::from_micros(1);

#[derive(Clone, Debug)]
pub(crate) struct ReactorOptions {
    /// Number of the device among those this process opened.
    pub(crate) device: u32,
    /// How long the first poll of a completion may spin; zero: not at all.
    pub(crate) inline_spin: Duration,
    /// While it is [turned by](Reactor::turned_by) somebody, it has no thread: whoever runs the program
    /// calls [`Reactor::turn`] when nothing else can run.
    pub(crate) by_hand: bool,
    pub(crate) hook: ErrorHook,
}

/// A device's events, its waiting and its fate.
pub(crate) struct Reactor {
    driver: Arc<dyn Driver>,
    options: ReactorOptions,
    events: EventPool,
    /// Set once, when the device is lost.
    pub(super) failure: OnceLock<Arc<DeviceFailure>>,
    /// There is something in `news`.
    pub(super) unannounced: AtomicBool,
    /// Leaf lock.
    pub(super) news: Mutex<News>,
    /// Who waits for nothing on a lane and hears of a loss. Leaf lock.
    pub(super) told_of_loss: Mutex<Waiters>,
    /// All lanes ever opened. Leaf lock.
    pub(super) lanes: Mutex<Vec<OpenedLane>>,
    inbox: Arc<Inbox>,
}

/// Where lanes are handed to the thread.
#[derive(Default)]
struct Inbox {
    state: Mutex<InboxState>,
    changed: Condvar,
}

#[derive(Default)]
struct InboxState {
    incoming: Rounds,
    /// Who turns the reactor, if somebody does: then there is no thread.
    turned_by: Option<Waker>,
    /// The thread runs. It goes on until `closed`.
    started: bool,
    /// The reactor is gone: the thread ends.
    closed: bool,
    /// The thread sleeps, until the instant if there is one.
    asleep: Option<Option<Instant>>,
}

impl Reactor {
    /// Without any event: see [`Reactor::make_events`].
    pub(crate) fn new(driver: Arc<dyn Driver>, options: ReactorOptions) -> Arc<Self> {
        Arc::new(Reactor {
            events: EventPool::new(driver.clone()),
            driver,
            options,
            failure: OnceLock::new(),
            unannounced: AtomicBool::new(false),
            news: Mutex::default(),
            told_of_loss: Mutex::default(),
            lanes: Mutex::new(Vec::new()),
            inbox: Arc::default(),
        })
    }

    /// Makes `count` events in advance (`cuEventCreate`).
    pub(crate) fn make_events(&self, count: usize) -> DriverResult<()> {
        self.events.fill(count)
    }

    pub(crate) fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    pub(crate) fn options(&self) -> &ReactorOptions {
        &self.options
    }

    pub(crate) fn hook(&self) -> &ErrorHook {
        &self.options.hook
    }

    pub(super) fn events(&self) -> &EventPool {
        &self.events
    }

    pub(super) fn register(&self, lane: &Arc<Lane>) {
        let (index, progress) = (lane.id().index(), lane.progress.clone());
        self.lanes.lock().push(OpenedLane { index, lane: Arc::downgrade(lane), progress });
    }

    /// Something that comes after all of `clock` was seen to finish.
    pub(super) fn finished_before(&self, clock: &Clock) {
        if clock.is_empty() {
            return;
        }
        let lanes = self.lanes.lock();
        for Ticket { lane, seq } in clock.iter(self.options.device) {
            if let Some(opened) = OpenedLane::find(&lanes, lane) {
                opened.progress.finished_by_implication(seq);
            }
        }
    }

    /// Drops from `clock` what is known to be finished.
    pub(super) fn forget_finished(&self, clock: &mut Clock) {
        let lanes = self.lanes.lock();
        clock.retain(self.options.device, |Ticket { lane, seq }| {
            let opened = OpenedLane::find(&lanes, lane);
            opened.is_some_and(|opened| !opened.progress.is_known_finished(seq))
        });
    }

    /// The streams of the lanes that there are, each with the number of its lane.
    pub(crate) fn streams(&self) -> Vec<(u64, usize)> {
        let number = |opened: &OpenedLane| (opened.index, opened.lane.clone());
        let lanes: Vec<_> = self.lanes.lock().iter().map(number).collect();
        let stream =
            |(index, lane): (usize, Weak<Lane>)| Some((lane.upgrade()?.stream_id(), index));
        lanes.into_iter().filter_map(stream).collect()
    }

    /// Has the thread look after a lane on which ticket `seq` is waited for. It is woken only if
    /// the lane is due before the look it has planned anyway. `Err` where there is no thread and
    /// none can be started. By hand, the next turn looks after it.
    pub(super) fn watch(&self, lane: &Arc<Lane>, seq: u64) -> Result<(), Error> {
        let watched = Watched::new(lane, seq, Instant::now());
        let mut state = self.inbox.state.lock();
        if let Some(turned_by) = state.turned_by.clone() {
            state.incoming.add(watched);
            drop(state);
            // This thread turns it when it has nothing else to do; for another's wait it may be asleep.
            if hand().is_none() {
                turned_by.wake();
            }
            return Ok(());
        }
        self.ensure_thread(&mut state).map_err(|error| Error::Thread(Arc::new(error)))?;
        let due = watched.due;
        state.incoming.add(watched);
        if state.asleep.is_some_and(|until| until.is_none_or(|until| due < until)) {
            state.asleep = None;
            drop(state);
            self.inbox.changed.notify_one();
        }
        Ok(())
    }

    /// Whoever owns `waker` turns the reactor from here on, and is woken when a thread waits that
    /// cannot know of it. `None`: nobody does, and a thread looks after what is waited for.
    pub(crate) fn turned_by(&self, waker: Option<Waker>) {
        debug_assert!(self.options.by_hand || waker.is_none());
        // Taken out: the last handle of a lane is not dropped under the lock.
        let mut rounds = {
            let mut state = self.inbox.state.lock();
            state.turned_by = waker;
            std::mem::take(&mut state.incoming)
        };
        rounds.forget_unawaited();
        let mut state = self.inbox.state.lock();
        state.incoming.merge(rounds);
        if state.turned_by.is_some() || state.incoming.is_empty() {
            return;
        }
        let started = self.ensure_thread(&mut state);
        state.asleep = None;
        drop(state);
        self.inbox.changed.notify_one();
        if let Err(error) = started {
            contained(|| tracing::warn!(%error, "nobody looks after what is waited for"));
        }
    }

    /// Looks once at every lane that is waited for, in the order of their numbers and whatever time
    /// it is. For reactors that are turned by hand.
    pub(crate) fn turn(&self) -> Turned {
        // Taken out while at work: a look wakes others, whose wakers are foreign code.
        let mut rounds = std::mem::take(&mut self.inbox.state.lock().incoming);
        let woke = rounds.look_at_all();
        let mut state = self.inbox.state.lock();
        state.incoming.merge(rounds);
        match (woke, state.incoming.is_empty()) {
            (true, _) => Turned::Woke,
            (false, false) => Turned::Waiting,
            (false, true) => Turned::Idle,
        }
    }

    fn ensure_thread(&self, state: &mut InboxState) -> std::io::Result<()> {
        if !state.started {
            self.start_thread()?;
            state.started = true;
        }
        Ok(())
    }

    fn start_thread(&self) -> std::io::Result<()> {
        let (inbox, driver) = (self.inbox.clone(), Arc::downgrade(&self.driver));
        let name = format!("headwater-{}", self.options.device);
        let thread = std::thread::Builder::new().name(name);
        thread.spawn(move || {
            // Its queries are not to break a graph capture that another thread makes.
            let inside = stay();
            if let Some(Err(error)) = driver.upgrade().map(|driver| driver.relax_capture()) {
                contained(|| tracing::warn!(%error, "queries may disturb graph captures"));
            }
            drop(inside);
            inbox.run();
        })?;
        Ok(())
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        // A lost device takes nothing back, nor does one that is found lost here.
        if !self.is_lost() {
            self.events.destroy_all(|what, cause| {
                let error = self.refused("destroying an event", cause);
                self.hook().not_released(|| what, error);
                !self.is_lost()
            });
            self.announce();
        }
        self.inbox.state.lock().closed = true;
        self.inbox.changed.notify_one();
    }
}

impl std::fmt::Debug for Reactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reactor").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Inbox {
    fn run(&self) {
        let _precise = PreciseSleeps::for_this_thread();
        let mut rounds = Rounds::default();
        let mut incoming = Rounds::default();
        loop {
            let inside = stay();
            rounds.merge(std::mem::take(&mut incoming));
            rounds.look(Instant::now());
            drop(inside);
            let next = rounds.next(Instant::now());
            let mut state = self.state.lock();
            if state.incoming.is_empty() && !state.closed {
                state.asleep = Some(next);
                state = match next {
                    Some(at) => self.changed.wait_until(state, at),
                    None => self.changed.wait(state),
                };
                state.asleep = None;
            }
            if state.closed {
                return;
            }
            incoming = std::mem::take(&mut state.incoming);
        }
    }
}

/// What [`Reactor::turn`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turned {
    /// Someone was woken.
    Woke,
    /// Nobody was, and someone waits.
    Waiting,
    /// Nobody waits.
    Idle,
}

/// What a look at a lane came to.
struct Looked {
    /// Someone was told of an end.
    woke: bool,
    /// Someone still waits.
    waited_for: bool,
}

/// A lane and when to look at it next.
#[derive(Debug)]
pub(super) struct Watched {
    lane: Arc<Lane>,
    due: Instant,
}

impl Watched {
    /// For a lane on which ticket `seq` is waited for.
    pub(super) fn new(lane: &Arc<Lane>, seq: u64, now: Instant) -> Self {
        Watched { lane: lane.clone(), due: now + lane.next_look(seq, now) }
    }

    fn look(&mut self, now: Instant) -> Looked {
        let mut woke = false;
        loop {
            let Some(lowest) = self.lane.lowest_waited() else {
                return Looked { woke, waited_for: false };
            };
            if self.lane.reactor().check().is_err() {
                // Whoever met the failure tells all who wait.
                return Looked { woke: true, waited_for: false };
            }
            self.lane.request_record(lowest);
            if self.lane.is_done(lowest) {
                // Another thread saw that, and is still looking how far the stream is.
                self.lane.wake_finished();
            } else if !self.lane.probe(lowest) {
                self.due = now + self.lane.next_look(lowest, now);
                return Looked { woke, waited_for: true };
            }
            woke = true;
        }
    }
}

/// Lanes looked after together, in rounds: never a timer per lane.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    watched: Vec<Watched>,
}

impl Rounds {
    pub(super) fn add(&mut self, new: Watched) {
        match self.watched.iter_mut().find(|w| Arc::ptr_eq(&w.lane, &new.lane)) {
            Some(known) => known.due = known.due.min(new.due),
            None => self.watched.push(new),
        }
    }

    pub(super) fn merge(&mut self, other: Rounds) {
        for watched in other.watched {
            self.add(watched);
        }
    }

    /// Lets lanes go that nobody waits for.
    fn forget_unawaited(&mut self) {
        self.watched.retain(|watched| watched.lane.lowest_waited().is_some());
    }

    fn is_empty(&self) -> bool {
        self.watched.is_empty()
    }

    /// Looks at every lane that is due within this round; one that nobody waits for is let go. Who
    /// waits for it later has it added again.
    pub(super) fn look(&mut self, now: Instant) {
        let horizon = now + self.apart();
        self.watched.retain_mut(|watched| watched.due > horizon || watched.look(now).waited_for);
    }

    /// Looks at every lane, in the order of their numbers. Whether anyone was woken.
    fn look_at_all(&mut self) -> bool {
        self.watched.sort_by_key(|watched| watched.lane.id());
        let mut woke = false;
        self.watched.retain_mut(|watched| {
            let looked = watched.look(Instant::now());
            woke |= looked.woke;
            looked.waited_for
        });
        woke
    }

    /// When the next round is; `None` where there is no lane.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let earliest = self.watched.iter().map(|w| w.due).min()?;
        Some(earliest.max(now + self.apart()))
    }

    /// Half the time between two rounds.
    fn apart(&self) -> Duration {
        (SHORTEST_ROUND + ROUND_PER_LANE * self.watched.len() as u32) / 2
    }
}
