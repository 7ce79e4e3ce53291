//! Events made in advance and used again, never while someone still refers to them.

use std::sync::{Arc, Weak};

use super::hook::ErrorHook;
use crate::driver::{Driver, DriverResult, EventHandle};
use crate::error::Error;
use crate::sync::Mutex;

/// An event out of the pool. It goes back when the last reference is gone, so a recording that
/// anyone can still query or wait on is never replaced by another.
pub(crate) type EventRef = Arc<PooledEvent>;

pub(crate) struct PooledEvent {
    handle: EventHandle,
    timed: bool,
    pool: Weak<Shelves>,
    driver: Arc<dyn Driver>,
    hook: ErrorHook,
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
        match self.pool.upgrade() {
            Some(shelves) if !self.timed => shelves.handles.lock().push(handle),
            _ => destroy(&*self.driver, &self.hook, handle),
        }
    }
}

/// On a lost device nothing is destroyed; what made it lost is told elsewhere.
fn destroy(driver: &dyn Driver, hook: &ErrorHook, handle: EventHandle) {
    let what = format!("event {:#x}", handle.raw());
    match driver.event_destroy(handle) {
        Err(source) if !source.is_sticky() => {
            let why = Error::Refused { operation: "destroying an event", source };
            hook.not_released(|| what, why);
        }
        _ => {}
    }
}

/// The events of one device.
pub(super) struct EventPool {
    driver: Arc<dyn Driver>,
    hook: ErrorHook,
    shelves: Arc<Shelves>,
}

struct Shelves {
    /// Whole references that nobody else holds: taking one allocates nothing.
    ready: Mutex<Vec<EventRef>>,
    /// Events whose last reference was dropped outside the pool.
    handles: Mutex<Vec<EventHandle>>,
}

impl EventPool {
    /// A pool with `count` events in it.
    pub(super) fn new(
        driver: Arc<dyn Driver>,
        hook: ErrorHook,
        count: usize,
    ) -> DriverResult<Self> {
        let shelves = Arc::new(Shelves {
            ready: Mutex::new(Vec::with_capacity(count)),
            handles: Mutex::new(Vec::new()),
        });
        let pool = EventPool { driver, hook, shelves };
        for _ in 0..count {
            let event = pool.wrap(pool.driver.event_create(false)?, false);
            pool.give_back(event);
        }
        Ok(pool)
    }

    /// An event that nobody refers to. Timed ones are made when asked for.
    pub(super) fn take(&self, timed: bool) -> DriverResult<EventRef> {
        if timed {
            return Ok(self.wrap(self.driver.event_create(true)?, true));
        }
        if let Some(event) = self.shelves.ready.lock().pop() {
            return Ok(event);
        }
        let spare = self.shelves.handles.lock().pop();
        let handle = match spare {
            Some(handle) => handle,
            None => self.driver.event_create(false)?,
        };
        Ok(self.wrap(handle, false))
    }

    /// Takes back a reference; the event is ready again if it was the last one.
    pub(super) fn give_back(&self, mut event: EventRef) {
        // Two droppers that both see another both fall through to `PooledEvent::drop`.
        if Arc::get_mut(&mut event).is_some_and(|event| !event.timed) {
            self.shelves.ready.lock().push(event);
        }
    }

    fn wrap(&self, handle: EventHandle, timed: bool) -> EventRef {
        Arc::new(PooledEvent {
            handle,
            timed,
            pool: Arc::downgrade(&self.shelves),
            driver: self.driver.clone(),
            hook: self.hook.clone(),
        })
    }
}

impl Drop for EventPool {
    fn drop(&mut self) {
        // References still out destroy their event themselves: the shelves are gone by then.
        for handle in std::mem::take(&mut *self.shelves.handles.lock()) {
            destroy(&*self.driver, &self.hook, handle);
        }
    }
}
