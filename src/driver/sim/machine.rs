//! The lock around the simulated machine's state, and how threads wait for it to change.
//!
//! Three kinds of threads meet here. *Callers* of the driver hold the lock for the length of a
//! call. The *executor* holds it between operations, never during one. *Tests* wait, through
//! [`Simulator`](super::Simulator), for what they asked to have happened. Nobody polls.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};

use super::executor;
use super::options::SimOptions;
use super::state::{Facts, Item, State};
use crate::driver::{DriverError, DriverResult};

const NOT_PERMITTED: u32 = 800;
const OPERATING_SYSTEM: u32 = 304;
pub(super) const INVALID_HANDLE: u32 = 400;

pub(super) struct Machine {
    state: Mutex<State>,
    /// The executor waits on it.
    something_to_run: Condvar,
    /// Callers and tests wait on it.
    something_changed: Condvar,
    /// Set by the executor before it does anything.
    executor: OnceLock<ThreadId>,
}

impl Machine {
    pub(super) fn new(options: &SimOptions) -> Arc<Self> {
        Arc::new(Machine {
            state: Mutex::new(State::new(options)),
            something_to_run: Condvar::new(),
            something_changed: Condvar::new(),
            executor: OnceLock::new(),
        })
    }

    /// No user code runs under this lock and no invariant spans a panic: poison is passed over.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits, lock given back meanwhile, until `reached`.
    pub(super) fn wait_until<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        mut reached: impl FnMut(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        self.something_changed
            .wait_while(state, |state| !reached(state))
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells callers and tests to look again.
    pub(super) fn changed(&self) {
        self.something_changed.notify_all();
    }

    /// Gives the lock back and sees that the executor looks at what there is to run.
    pub(super) fn release(&self, mut state: MutexGuard<'_, State>) {
        // Once told it need not be told again: it looks before it parks.
        let parked = std::mem::take(&mut state.executor_parked);
        drop(state);
        if parked {
            self.something_to_run.notify_one();
        }
    }

    /// The executor's own wait, until told by [`Machine::release`].
    pub(super) fn park<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.executor_parked = true;
        self.something_to_run
            .wait_while(state, |state| state.executor_parked)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// True in a twin: what waits for the executor would wait for ever.
    pub(super) fn on_executor(&self) -> bool {
        self.executor.get() == Some(&thread::current().id())
    }

    pub(super) fn set_executor(&self) {
        let _ = self.executor.set(thread::current().id());
    }

    /// Where every call of the driver comes in, and the one place to make a call fail.
    pub(super) fn enter(
        self: &Arc<Self>,
        device: usize,
        call: &'static str,
    ) -> DriverResult<Entered<'_>> {
        let mut entered = self.again(device, call)?;
        entered.state.calls += 1;
        Ok(entered)
    }

    /// Comes in again in the middle of a call that gave the lock back.
    pub(super) fn again(
        self: &Arc<Self>,
        device: usize,
        call: &'static str,
    ) -> DriverResult<Entered<'_>> {
        let state = self.lock();
        match state.devices[device].failed {
            Some(code) => Err(DriverError::new(call, code)),
            None => Ok(Entered { machine: self, state, device, call }),
        }
    }
}

/// A call of the driver under way: it holds the lock, and its device has not failed.
pub(super) struct Entered<'a> {
    machine: &'a Arc<Machine>,
    pub(super) state: MutexGuard<'a, State>,
    pub(super) device: usize,
    call: &'static str,
}

impl Entered<'_> {
    pub(super) fn error(&self, code: u32) -> DriverError {
        DriverError::new(self.call, code)
    }

    /// Comes in to a stream, to enqueue something: `Err` where the handle is of no live stream of
    /// this device, or where there is no thread to be had for the executor.
    pub(super) fn stream(&mut self, id: u64) -> DriverResult<()> {
        if self.state.stream(id, self.device).is_none() {
            return Err(self.error(INVALID_HANDLE));
        }
        if !self.state.executor_started {
            executor::start(self.machine).map_err(|_| self.error(OPERATING_SYSTEM))?;
            self.state.executor_started = true;
        }
        Ok(())
    }

    /// Enqueues what is no work, on a stream that was come in to.
    pub(super) fn enqueue_control(mut self, stream: u64, item: Item) {
        self.state.push(stream, item, None);
        self.machine.release(self.state);
    }

    /// Enqueues work. Blocks while `limit` operations of the stream are unfinished, as the driver
    /// does. `host_ns` is what the call costs the host in virtual time.
    ///
    /// On an error the item comes back: it may hold a twin, which is dropped without the lock.
    pub(super) fn enqueue_work(
        mut self,
        stream: u64,
        item: Item,
        facts: Facts,
        limit: usize,
        host_ns: u64,
    ) -> Result<(), (DriverError, Item)> {
        if let Err(error) = self.stream(stream) {
            return Err((error, item));
        }
        let device = self.device;
        let full = |state: &State| {
            let unfinished = state.stream(stream, device).map_or(0, |stream| stream.unfinished);
            unfinished >= limit && state.devices[device].failed.is_none()
        };
        if full(&self.state) {
            if self.machine.on_executor() {
                return Err((self.error(NOT_PERMITTED), item));
            }
            self.state.blocked_calls += 1;
            self.state = self.machine.wait_until(self.state, |state| !full(state));
            if let Some(code) = self.state.devices[device].failed {
                return Err((DriverError::new(self.call, code), item));
            }
            if self.state.stream(stream, device).is_none() {
                return Err((DriverError::new(self.call, INVALID_HANDLE), item));
            }
        }
        self.state.host_now = self.state.host_now.saturating_add(host_ns);
        self.state.push(stream, item, Some(facts));
        self.machine.release(self.state);
        Ok(())
    }
}
