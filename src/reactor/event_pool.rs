//! Events made in advance and used again, never while someone still refers to them.

use std::sync::Arc;

use smallvec::SmallVec;

use super::clock::Clock;
use crate::driver::{Driver, DriverError, DriverResult, EventHandle};
use crate::sync::Mutex;

/// An event out of the pool. It goes back when the last reference is gone, so a recording that
/// anyone can still query or wait on is never replaced by another.
///
/// Dropping it makes no driver call and runs nothing foreign: it is done under locks.
pub(crate) type EventRef = Arc<PooledEvent>;

pub(crate) struct PooledEvent {
    handle: EventHandle,
    timed: bool,
    /// What comes before its recording on other lanes.
    clock: Clock,
    shelves: Arc<Shelves>,
}

impl PooledEvent {
    /// The driver's event.
    pub(crate) fn handle(&self) -> &EventHandle {
        &self.handle
    }

    /// What comes before its recording on other lanes.
    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }
}

impl std::fmt::Debug for PooledEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PooledEvent").field(&self.handle).finish()
    }
}

impl Drop for PooledEvent {
    fn drop(&mut self) {
        let handle = std::mem::take(&mut self.handle);
        self.shelves.of(self.timed).lock().push(handle);
    }
}

/// The events of one device.
pub(super) struct EventPool {
    /// Whole references that nobody else holds: taking one allocates nothing.
    ready: Mutex<Vec<EventRef>>,
    shelves: Arc<Shelves>,
    driver: Arc<dyn Driver>,
}

/// Events that nobody refers to.
#[derive(Default)]
struct Shelves {
    plain: Mutex<Vec<EventHandle>>,
    timed: Mutex<Vec<EventHandle>>,
}

impl Shelves {
    fn of(&self, timed: bool) -> &Mutex<Vec<EventHandle>> {
        if timed { &self.timed } else { &self.plain }
    }
}

impl EventPool {
    /// A pool with no events in it.
    pub(super) fn new(driver: Arc<dyn Driver>) -> Self {
        EventPool { ready: Mutex::default(), shelves: Arc::default(), driver }
    }

    /// Makes `count` more.
    pub(super) fn fill(&self, count: usize) -> DriverResult<()> {
        for _ in 0..count {
            let event = self.wrap(self.driver.event_create(false)?, false, &Clock::default());
            self.give_back([event]);
        }
        Ok(())
    }

    /// An event that nobody refers to, to be recorded after all of `clock`; made where the pool has
    /// none.
    pub(super) fn take(&self, timed: bool, clock: &Clock) -> DriverResult<EventRef> {
        let ready = if timed { None } else { self.ready.lock().pop() };
        if let Some(mut event) = ready
            && let Some(own) = Arc::get_mut(&mut event)
        {
            own.clock.set(clock);
            return Ok(event);
        }
        let spare = self.shelves.of(timed).lock().pop();
        let handle = match spare {
            Some(handle) => handle,
            None => self.driver.event_create(timed)?,
        };
        Ok(self.wrap(handle, timed, clock))
    }

    /// Takes back references; an event is ready again if it was the last one.
    pub(super) fn give_back(&self, events: impl IntoIterator<Item = EventRef>) {
        // Two droppers that both see another both fall through to `PooledEvent::drop`. Whoever takes it
        // sees to it that what the last of the others did comes before.
        let is_ready = |event: &EventRef| Arc::strong_count(event) == 1 && !event.timed;
        let again = events.into_iter().filter(is_ready);
        // Before the lock: the others are dropped meanwhile, which takes another one.
        let again: SmallVec<[EventRef; 16]> = again.collect();
        self.ready.lock().extend(again);
    }

    /// Destroys all (`cuEventDestroy`), as long as `refused` says so of those that the driver does
    /// not take back. The pool goes, and so did all who refer to an event: lanes and users' events
    /// hold the reactor longer.
    pub(super) fn destroy_all(&self, mut refused: impl FnMut(String, DriverError) -> bool) {
        drop(std::mem::take(&mut *self.ready.lock())); // onto the shelves
        let plain = std::mem::take(&mut *self.shelves.plain.lock());
        let timed = std::mem::take(&mut *self.shelves.timed.lock());
        for handle in plain.into_iter().chain(timed) {
            let what = format!("event {:#x}", handle.raw());
            if let Err(cause) = self.driver.event_destroy(handle)
                && !refused(what, cause)
            {
                return;
            }
        }
    }

    fn wrap(&self, handle: EventHandle, timed: bool, clock: &Clock) -> EventRef {
        let (clock, shelves) = (clock.clone(), self.shelves.clone());
        Arc::new(PooledEvent { handle, timed, clock, shelves })
    }
}
