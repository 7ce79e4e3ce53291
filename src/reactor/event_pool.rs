//! Events made in advance and used again, never while someone still refers to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::hook::ErrorHook;
use crate::driver::{Driver, DriverResult, EventHandle};
use crate::error::Error;
use crate::sync::Mutex;

/// An event out of the pool. It goes back when the last reference is gone, so a recording that
/// anyone can still query or wait on is never replaced by another.
///
/// Dropping it makes no driver call and runs nothing foreign: it is done under locks.
pub(crate) type EventRef = Arc<PooledEvent>;

pub(crate) struct PooledEvent {
    handle: EventHandle,
    timed: bool,
    shelves: Arc<Shelves>,
}

impl PooledEvent {
    /// The driver's event.
    pub(crate) fn handle(&self) -> &EventHandle {
        &self.handle
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
}

/// Events that nobody refers to. Destroyed with the last reference to any and the pool.
struct Shelves {
    driver: Arc<dyn Driver>,
    hook: ErrorHook,
    plain: Mutex<Vec<EventHandle>>,
    timed: Mutex<Vec<EventHandle>>,
    /// The device is lost: it takes nothing back.
    abandoned: AtomicBool,
}

impl Shelves {
    fn of(&self, timed: bool) -> &Mutex<Vec<EventHandle>> {
        if timed { &self.timed } else { &self.plain }
    }
}

impl EventPool {
    /// A pool with `count` events in it.
    pub(super) fn new(
        driver: Arc<dyn Driver>,
        hook: ErrorHook,
        count: usize,
    ) -> DriverResult<Self> {
        let shelves = Arc::new(Shelves {
            driver,
            hook,
            plain: Mutex::default(),
            timed: Mutex::default(),
            abandoned: AtomicBool::new(false),
        });
        let pool = EventPool { ready: Mutex::new(Vec::with_capacity(count)), shelves };
        for _ in 0..count {
            let event = pool.wrap(pool.shelves.driver.event_create(false)?, false);
            pool.give_back(event);
        }
        Ok(pool)
    }

    /// An event that nobody refers to; made where the pool has none.
    pub(super) fn take(&self, timed: bool) -> DriverResult<EventRef> {
        if !timed && let Some(event) = self.ready.lock().pop() {
            return Ok(event);
        }
        let spare = self.shelves.of(timed).lock().pop();
        let handle = match spare {
            Some(handle) => handle,
            None => self.shelves.driver.event_create(timed)?,
        };
        Ok(self.wrap(handle, timed))
    }

    /// Takes back a reference; the event is ready again if it was the last one.
    pub(super) fn give_back(&self, mut event: EventRef) {
        // Two droppers that both see another both fall through to `PooledEvent::drop`.
        if Arc::get_mut(&mut event).is_some_and(|event| !event.timed) {
            self.ready.lock().push(event);
        }
    }

    /// The device is lost: nothing is to be given back to it.
    pub(super) fn abandon(&self) {
        self.shelves.abandoned.store(true, Relaxed);
    }

    fn wrap(&self, handle: EventHandle, timed: bool) -> EventRef {
        Arc::new(PooledEvent { handle, timed, shelves: self.shelves.clone() })
    }
}

impl Drop for Shelves {
    fn drop(&mut self) {
        if *self.abandoned.get_mut() {
            return;
        }
        let plain = std::mem::take(&mut *self.plain.lock());
        let timed = std::mem::take(&mut *self.timed.lock());
        for handle in plain.into_iter().chain(timed) {
            let what = format!("event {:#x}", handle.raw());
            if let Err(cause) = self.driver.event_destroy(handle) {
                let why = Error::Refused { operation: "destroying an event", cause };
                self.hook.not_released(|| what, why);
                if cause.is_sticky() {
                    return; // no other will fare better
                }
            }
        }
    }
}
