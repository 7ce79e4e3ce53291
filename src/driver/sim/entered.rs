//! A call of the driver under way: what all of them do when they come in, and when they are done.

use std::ptr::NonNull;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use super::executor;
use super::facts::Facts;
use super::fault::{Effect, Injected};
use super::machine::Machine;
use super::queue::{Recording, Stream};
use super::state::{Item, State};
use crate::driver::{DriverCall, DriverError, DriverResult};

const NOT_PERMITTED: u32 = 800;
const OPERATING_SYSTEM: u32 = 304;
pub(super) const INVALID_HANDLE: u32 = 400;

impl Machine {
    /// Where every call of the driver comes in, once, and the one place to make a call fail.
    pub(super) fn enter(
        self: &Arc<Self>,
        device: usize,
        call: DriverCall,
    ) -> DriverResult<Entered<'_>> {
        let mut state = self.turn(self.lock());
        let index = state.calls;
        state.calls += 1;
        if let Some(code) = state.devices[device].failed {
            return Err(DriverError::new(call.name(), code));
        }
        let effect = state.faults.meet_call(call);
        let mut entered = Entered { machine: self, state, device, call, index, strike: None };
        match effect {
            Some(Effect::Error { code, takes_effect: false }) => return Err(entered.struck(code)),
            Some(Effect::Error { code, .. }) => entered.strike = Some(code),
            _ => {}
        }
        Ok(entered)
    }
}

/// A call of the driver under way: it holds the lock, and its device has not failed.
///
/// A call that has done what it should ends with [`Entered::done`], or by enqueuing.
pub(super) struct Entered<'a> {
    machine: &'a Arc<Machine>,
    pub(super) state: MutexGuard<'a, State>,
    pub(super) device: usize,
    call: DriverCall,
    /// Calls made before it.
    index: u64,
    /// What it is to answer when it is done, instead of success.
    strike: Option<u32>,
}

impl<'a> Entered<'a> {
    pub(super) fn error(&self, code: u32) -> DriverError {
        DriverError::new(self.call.name(), code)
    }

    /// The call has done what it should.
    pub(super) fn done<T>(self, answer: T) -> DriverResult<T> {
        match self.strike {
            None => Ok(answer),
            Some(code) => Err(self.struck(code)),
        }
    }

    /// Waits for a copy of these bytes that is being run, which waits for nothing.
    pub(super) fn until_untouched(mut self, ptr: NonNull<u8>, bytes: usize) -> Self {
        if let Some(copy) = self.state.copying(ptr, bytes) {
            self.state = self.machine.wait_until(self.state, |state| state.running != Some(copy));
        }
        self
    }

    /// What an event query answers for a recording that is not reached: that, and somebody waits for
    /// it from here on; or that the device has been stuck for too long, which ends it.
    pub(super) fn not_reached(mut self, recording: &Recording) -> DriverResult<bool> {
        self.state.need_recording(recording);
        if self.state.stall_left() != Some(Duration::ZERO) {
            return self.done(false);
        }
        let error = self.error(DriverError::LAUNCH_TIMEOUT);
        self.machine.give_up(self.state, true);
        Err(error)
    }

    /// The call is made to fail, and the device with it if the error is sticky.
    fn struck(mut self, code: u32) -> DriverError {
        let error = self.error(code);
        let Entered { index, call, .. } = self;
        self.state.faults.note(Injected::Call { index, call, code });
        match error.is_sticky() {
            true => self.machine.fail(self.state, self.device, code),
            false => self.machine.release(self.state),
        }
        error
    }

    /// Gives the lock back while `f` runs. `f`'s value is there also where the device has failed
    /// meanwhile: it may hold user code, which is dropped without the lock.
    pub(super) fn unlocked<T>(
        self,
        f: impl FnOnce() -> T,
    ) -> Result<(Entered<'a>, T), (DriverError, T)> {
        let Entered { machine, state, device, call, index, strike } = self;
        drop(state);
        let value = f();
        let state = machine.lock();
        match state.devices[device].failed {
            Some(code) => Err((DriverError::new(call.name(), code), value)),
            None => Ok((Entered { machine, state, device, call, index, strike }, value)),
        }
    }

    /// Comes in to a stream, to enqueue something: `Err` where the handle is of no live stream of
    /// this device that this thread may use, or where there is no thread to be had for the executor.
    pub(super) fn stream(&mut self, id: u64) -> DriverResult<()> {
        if !self.state.stream(id, self.device).is_some_and(Stream::is_callers) {
            return Err(self.error(INVALID_HANDLE));
        }
        if !self.state.executor_started {
            executor::start(self.machine).map_err(|_| self.error(OPERATING_SYSTEM))?;
            self.state.executor_started = true;
        }
        Ok(())
    }

    /// Enqueues what is no work, on a stream that was come in to.
    pub(super) fn enqueue_control(mut self, stream: u64, item: Item) -> DriverResult<()> {
        self.state.push(stream, item, None);
        self.enqueued()
    }

    /// Enqueues work. Blocks while `limit` operations of the stream are unfinished, as the driver
    /// does. `host_ns` is what the call costs the host in virtual time.
    ///
    /// Where it is not enqueued the item comes back: it may hold a twin, which is dropped without
    /// the lock.
    pub(super) fn enqueue_work(
        mut self,
        stream: u64,
        item: Item,
        facts: Facts,
        limit: usize,
        host_ns: u64,
    ) -> Result<(), (DriverError, Option<Item>)> {
        if let Err(error) = self.stream(stream) {
            return Err((error, Some(item)));
        }
        let device = self.device;
        let full = |state: &State| {
            let unfinished = state.stream(stream, device).map_or(0, |stream| stream.unfinished);
            unfinished >= limit && state.devices[device].failed.is_none()
        };
        if full(&self.state) {
            if self.machine.on_executor() {
                return Err((self.error(NOT_PERMITTED), Some(item)));
            }
            self.state.blocked_calls += 1;
            self.state = self.machine.wait_for_room(self.state, stream, full);
            if let Some(code) = self.state.devices[device].failed {
                return Err((self.error(code), Some(item)));
            }
            if self.state.stream(stream, device).is_none() {
                return Err((self.error(INVALID_HANDLE), Some(item)));
            }
        }
        self.state.host_now = self.state.host_now.saturating_add(host_ns);
        self.state.push(stream, item, Some(facts));
        self.state.host_now = self.state.host_now.saturating_add(facts.keeps_host);
        self.enqueued().map_err(|error| (error, None))
    }

    fn enqueued(self) -> DriverResult<()> {
        if let Some(code) = self.strike {
            return Err(self.struck(code));
        }
        self.machine.release(self.state);
        Ok(())
    }
}
