//! The reactor's thread: started by the first wait, parked while nothing is waited for.

use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use super::event_pool::EventPool;
use super::lane::Lane;
use super::timer_slack::PreciseSleeps;
use super::waiters::wake_all;
use crate::driver::{Driver, DriverError, DriverResult};
use crate::error::{DeviceFailure, Error};
use crate::sync::{Condvar, Mutex};

/// Events made when a device is opened.
const EVENTS_IN_ADVANCE: usize = 64;
/// Rounds of one lane are at least this far apart, those of many lanes further.
const SHORTEST_ROUND: Duration = Duration::from_micros(20);
const ROUND_PER_LANE: Duration = Duration::from_micros(1);

#[derive(Clone, Debug)]
pub(crate) struct ReactorOptions {
    /// Number of the device among those this process opened.
    pub(crate) device: u32,
    /// How long the first poll of a completion may spin; zero: not at all.
    pub(crate) inline_spin: Duration,
}

/// A device's events, its waiting and its fate.
pub(crate) struct Reactor {
    driver: Arc<dyn Driver>,
    options: ReactorOptions,
    events: EventPool,
    /// Set once, when the device is lost.
    failure: OnceLock<Arc<DeviceFailure>>,
    /// The failure is set and those who wait are not told yet.
    unannounced: AtomicBool,
    /// All lanes ever opened, to wake their waiters when the device is lost.
    lanes: Mutex<Vec<Weak<Lane>>>,
    desk: Arc<Desk>,
}

/// Where lanes are handed to the thread.
#[derive(Default)]
struct Desk {
    state: Mutex<DeskState>,
    changed: Condvar,
}

#[derive(Default)]
struct DeskState {
    incoming: Vec<Watched>,
    /// The thread runs. It goes on until `closed`.
    started: bool,
    /// The reactor is gone: the thread ends.
    closed: bool,
    /// The thread sleeps, until the instant if there is one.
    asleep: Option<Option<Instant>>,
}

impl Reactor {
    pub(crate) fn new(driver: Arc<dyn Driver>, options: ReactorOptions) -> DriverResult<Arc<Self>> {
        Ok(Arc::new(Reactor {
            events: EventPool::new(driver.clone(), EVENTS_IN_ADVANCE)?,
            driver,
            options,
            failure: OnceLock::new(),
            unannounced: AtomicBool::new(false),
            lanes: Mutex::new(Vec::new()),
            desk: Arc::default(),
        }))
    }

    pub(crate) fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    pub(super) fn options(&self) -> &ReactorOptions {
        &self.options
    }

    pub(super) fn events(&self) -> &EventPool {
        &self.events
    }

    pub(super) fn register(&self, lane: &Arc<Lane>) {
        let mut lanes = self.lanes.lock();
        lanes.retain(|lane| lane.strong_count() > 0);
        lanes.push(Arc::downgrade(lane));
    }

    /// `Err` once the device is lost.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.failure.get() {
            None => Ok(()),
            Some(failure) => Err(Error::DeviceLost(failure.clone())),
        }
    }

    /// The device is lost. Those who wait are told by the [`Reactor::announce`] that the caller
    /// lets follow once it holds no lock.
    pub(crate) fn fail(&self, source: DriverError, operation: Option<&'static str>) {
        let failure = DeviceFailure { device: self.options.device, operation, source };
        if self.failure.set(Arc::new(failure)).is_err() {
            return;
        }
        tracing::error!(device = self.options.device, %source, operation, "device lost");
        self.unannounced.store(true, Release);
    }

    /// Wakes everyone who waits, if the device was lost since the last call. No lock is held.
    pub(crate) fn announce(&self) {
        if !self.unannounced.load(Relaxed) || !self.unannounced.swap(false, AcqRel) {
            return;
        }
        let lanes: Vec<_> = self.lanes.lock().iter().filter_map(Weak::upgrade).collect();
        for lane in lanes {
            wake_all(lane.take_waiters(u64::MAX));
        }
    }

    /// The error of a call that the driver refused. A sticky one loses the device.
    pub(crate) fn refused(&self, operation: &'static str, source: DriverError) -> Error {
        if source.is_sticky() {
            // It came from earlier work: this call is only the first to hear of it.
            self.fail(source, None);
            if let Err(lost) = self.check() {
                return lost;
            }
        }
        Error::Refused { operation, source }
    }

    /// The error of a call on a stream that is being closed.
    pub(super) fn closed(&self) -> Error {
        let source = DriverError::new("cuStream", DriverError::INVALID_VALUE);
        Error::Refused { operation: "using a closed stream", source }
    }

    /// Has the thread look after a lane on which ticket `seq` is waited for. It is woken only if
    /// the lane is due before the look it has planned anyway.
    pub(super) fn watch(&self, lane: &Arc<Lane>, seq: u64) {
        let known = lane.watched.swap(true, AcqRel);
        if known && lane.lowest_waited().is_some_and(|lowest| lowest < seq) {
            return;
        }
        let watched = Watched::new(lane, seq, Instant::now());
        let mut state = self.desk.state.lock();
        let due = watched.due;
        state.incoming.push(watched);
        if !state.started {
            state.started = self.start_thread();
        } else if state.asleep.is_some_and(|until| until.is_none_or(|until| due < until)) {
            state.asleep = None;
            drop(state);
            self.desk.changed.notify_one();
        }
    }

    /// False where the system has no thread for us: the next wait tries again.
    fn start_thread(&self) -> bool {
        let desk = self.desk.clone();
        let name = format!("headwater-{}", self.options.device);
        match std::thread::Builder::new().name(name).spawn(move || desk.run()) {
            Ok(_) => true,
            Err(error) => {
                tracing::error!(%error, "the reactor's thread could not be started");
                false
            }
        }
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        self.desk.state.lock().closed = true;
        self.desk.changed.notify_one();
    }
}

impl std::fmt::Debug for Reactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reactor").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Desk {
    fn run(&self) {
        let _precise = PreciseSleeps::for_this_thread();
        let mut rounds = Rounds { watched: Vec::new(), of_reactor: true };
        loop {
            let next = rounds.look(Instant::now());
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
            for watched in state.incoming.drain(..) {
                rounds.add(watched);
            }
        }
    }
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

    /// To the reactor's thread, if anyone still waits.
    pub(super) fn hand_over(self) {
        if let Some(lowest) = self.lane.lowest_waited() {
            self.lane.reactor().watch(&self.lane, lowest);
        }
    }

    /// Nobody waited any more when the reactor's thread looked: whether someone has registered
    /// since, and has left the lane to it because it was still marked as watched.
    fn left_to_reactor(&self) -> bool {
        self.lane.watched.store(false, SeqCst);
        self.lane.lowest_waited().is_some()
            && self.lane.reactor().check().is_ok()
            && !self.lane.watched.swap(true, SeqCst)
    }

    /// Looks at the lane; `None` when nobody waits for it any more.
    fn look(&mut self, now: Instant) -> Option<()> {
        loop {
            let lowest = self.lane.lowest_waited()?;
            if self.lane.reactor().check().is_err() {
                return None;
            }
            self.lane.request_record(lowest);
            if !self.lane.probe(lowest) {
                self.due = now + self.lane.next_look(lowest, now);
                return Some(());
            }
        }
    }
}

/// Lanes looked after together, in rounds: never a timer per lane.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    watched: Vec<Watched>,
    /// These are the reactor thread's, which `Lane::watched` speaks of.
    of_reactor: bool,
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

    pub(super) fn into_watched(self) -> Vec<Watched> {
        self.watched
    }

    /// Looks at every lane that is due within this round, and says when the next round is.
    pub(super) fn look(&mut self, now: Instant) -> Option<Instant> {
        let round = SHORTEST_ROUND + ROUND_PER_LANE * self.watched.len() as u32;
        let of_reactor = self.of_reactor;
        self.watched.retain_mut(|watched| {
            let due = watched.due <= now + round / 2;
            !due || watched.look(now).is_some() || of_reactor && watched.left_to_reactor()
        });
        let earliest = self.watched.iter().map(|w| w.due).min()?;
        Some(earliest.max(now + round / 2))
    }
}
