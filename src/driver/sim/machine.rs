//! The lock around the simulated machine's state, and how threads wait for it to change.
//!
//! Three kinds of threads meet here. *Callers* of the driver hold the lock for the length of a
//! call. The *executor* holds it between operations, never during one. *Tests* wait, through
//! [`Simulator`](super::Simulator), for what they asked to have happened. Nobody polls.
//!
//! Under a schedule in lock-step a call has a *turn* first: what the schedule lets run now does, and
//! the call waits for it, with the lock given back, before it does anything itself. What it enqueues
//! is for later turns. A twin's calls have none: they would wait for themselves.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use super::executor;
use super::fault::{Effect, Injected};
use super::options::SimOptions;
use super::queue::Recording;
use super::schedule::Next;
use super::state::{Facts, Garbage, Item, State};
use super::stuck::Stuck;
use crate::driver::{ContextHandle, DriverCall, DriverError, DriverResult};

const NOT_PERMITTED: u32 = 800;
const OPERATING_SYSTEM: u32 = 304;
pub(super) const INVALID_HANDLE: u32 = 400;
/// Numbers kept free for the devices of a machine.
const CONTEXTS: u64 = 1 << 16;

pub(super) struct Machine {
    /// Among the machines of this process; not 0.
    number: u64,
    devices: usize,
    state: Mutex<State>,
    /// The executor waits on it.
    something_to_run: Condvar,
    /// Callers and tests wait on it.
    something_changed: Condvar,
    /// How many do. Counted up under the lock, so that whoever changes something afterwards sees it.
    waiting: AtomicUsize,
    /// Set by the executor before it does anything.
    executor: OnceLock<ThreadId>,
}

impl Machine {
    pub(super) fn new(devices: usize, options: &SimOptions) -> Arc<Self> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Arc::new(Machine {
            number: LAST.fetch_add(1, Relaxed) + 1,
            devices,
            state: Mutex::new(State::new(devices, options)),
            something_to_run: Condvar::new(),
            something_changed: Condvar::new(),
            waiting: AtomicUsize::new(0),
            executor: OnceLock::new(),
        })
    }

    pub(super) fn devices(&self) -> usize {
        self.devices
    }

    /// What names a device of this machine among all of the process.
    pub(super) fn context(&self, device: usize) -> ContextHandle {
        ContextHandle::new(self.number * CONTEXTS + device as u64)
    }

    /// The device named so, if it is one of this machine.
    pub(super) fn device_of(&self, context: ContextHandle) -> Option<usize> {
        let device = usize::try_from(context.raw() % CONTEXTS).ok()?;
        (context.raw() / CONTEXTS == self.number && device < self.devices).then_some(device)
    }

    /// No user code runs under this lock and no invariant spans a panic: poison is passed over.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits, lock given back meanwhile, until `reached`.
    pub(super) fn wait_until<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        mut reached: impl FnMut(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        while !reached(&state) {
            state = self.wait_for_change(state, None);
        }
        state
    }

    /// As [`Machine::wait_until`], but `Err` where an operation is run for too long meanwhile, or nothing
    /// moves for as long.
    pub(super) fn wait_within_limit<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        mut reached: impl FnMut(&State) -> bool,
    ) -> Result<MutexGuard<'a, State>, MutexGuard<'a, State>> {
        let mut seen = (state.moved, Instant::now());
        while !reached(&state) {
            if state.moved != seen.0 {
                seen = (state.moved, Instant::now());
            }
            let unmoved = || state.run_limit().saturating_sub(seen.1.elapsed());
            let idle = if state.running.is_none() { unmoved() } else { Duration::MAX };
            let left = state.run_left().unwrap_or(idle);
            if left.is_zero() {
                return Err(state);
            }
            state = self.wait_for_change(state, Some(left));
        }
        Ok(state)
    }

    /// Waits, lock given back meanwhile, until something may have changed, or for as long as that.
    fn wait_for_change<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        longest: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        self.waiting.fetch_add(1, Relaxed);
        let state = match longest {
            None => self.something_changed.wait(state),
            Some(longest) => {
                let waited = self.something_changed.wait_timeout(state, longest);
                waited.map(|(state, _)| state).map_err(|e| PoisonError::new(e.into_inner().0))
            }
        };
        self.waiting.fetch_sub(1, Relaxed);
        state.unwrap_or_else(PoisonError::into_inner)
    }

    /// Until so many wait for something to change.
    #[cfg(test)]
    pub(super) fn wait_for_others(&self, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.waiting.load(Relaxed) < count {
            assert!(Instant::now() < deadline, "nobody waits");
            thread::yield_now();
        }
    }

    /// Tells callers and tests to look again. Mostly none waits, and telling nobody is a call of the
    /// operating system all the same.
    pub(super) fn changed(&self) {
        if self.waiting.load(Relaxed) > 0 {
            self.something_changed.notify_all();
        }
    }

    /// Gives the lock back and sees that the executor looks at what there is to run.
    pub(super) fn release(&self, mut state: MutexGuard<'_, State>) {
        if !state.has_something_for_executor() {
            return;
        }
        // Once told it need not be told again: it looks before it parks.
        let parked = std::mem::take(&mut state.executor_parked);
        drop(state);
        if parked {
            self.something_to_run.notify_one();
        }
    }

    /// Lets the device move, under a schedule in lock-step, and waits until it has.
    fn turn<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if !state.schedule.is_lock_step() || self.on_executor() {
            return state;
        }
        while state.is_turn_under_way() {
            if state.turn.overdue {
                return state;
            }
            state = self.wait_for_turn(state); // another call's
        }
        state.turn.overdue = false;
        state.begin_turn();
        let mut garbage = Garbage::default();
        while let Some(Next::Control(stream)) = state.turn.next {
            state.run_control(stream, &mut garbage);
        }
        // The executor drops it: callers hold locks of their own.
        state.garbage.add(garbage);
        if state.turn.next.is_some() && std::mem::take(&mut state.executor_parked) {
            self.something_to_run.notify_one();
        }
        self.wait_for_turn(state)
    }

    /// Waits until the turn that is under way is over, or has taken too long.
    fn wait_for_turn<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if state.turn.overdue || !state.is_turn_under_way() {
            return state;
        }
        let (start, limit) = (Instant::now(), state.stall_limit());
        let turn = state.turn.number;
        while state.turn.number == turn && state.is_turn_under_way() {
            // Where nothing runs the device's thread may be dropping user code, which can block as well.
            let idle = limit.saturating_sub(start.elapsed());
            let left = state.run_left().unwrap_or(idle);
            if left.is_zero() {
                state.turn.overdue = true;
                break;
            }
            state = self.wait_for_change(state, Some(left));
        }
        state
    }

    /// Waits, lock given back meanwhile, until `full` is no longer so: a stream's queue.
    fn wait_for_room<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        stream: u64,
        full: impl Fn(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        while full(&state) {
            let before = state.moved;
            state.need_room(stream);
            state = self.turn(state);
            if state.moved != before || !full(&state) {
                continue;
            }
            state = match state.stall_left() {
                Some(Duration::ZERO) => {
                    self.give_up(state, true);
                    self.lock()
                }
                left => self.wait_for_change(state, left),
            };
        }
        state
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

    /// Waits until a stream has done what was given to it, or nothing more runs as the schedule
    /// stands, and moves the host's clock to that. `Err`: the device's failure.
    pub(super) fn wait_for_stream(&self, device: usize, stream: u64) -> Result<(), u32> {
        if self.on_executor() {
            return Ok(());
        }
        let mut state = self.lock();
        let recording = state.new_recording(stream);
        state.push(stream, Item::Record(Arc::clone(&recording)), None);
        self.release(state);
        state = self.lock();
        let over =
            |state: &State| recording.reached().is_some() || state.devices[device].failed.is_some();
        match state.schedule.is_lock_step() {
            false => state = self.wait_until(state, |state| over(state) || state.settled()),
            // It is needed, so it moves as long as it can.
            true => {
                while !over(&state) {
                    let before = state.moved;
                    state.need_recording(&recording);
                    state = self.turn(state);
                    if state.moved == before {
                        break;
                    }
                }
            }
        }
        if let Some(code) = state.devices[device].failed {
            return Err(code);
        }
        state.host_now = state.host_now.max(recording.reached().unwrap_or(0));
        Ok(())
    }

    /// Ends a device with a sticky error. What was pending on it is dropped by the executor:
    /// callers hold locks of their own, which user code must not meet.
    pub(super) fn fail(&self, mut state: MutexGuard<'_, State>, device: usize, code: u32) {
        let mut garbage = std::mem::take(&mut state.garbage);
        state.fail(device, code, &mut garbage);
        state.garbage = garbage;
        self.release(state);
        self.changed();
    }

    /// Ends what is stuck with a sticky error, and says how it was; nothing where it is not. `log`: where
    /// nobody asked for it.
    pub(super) fn give_up(&self, mut state: MutexGuard<'_, State>, log: bool) -> Option<Stuck> {
        let stuck = state.stuck()?;
        let mut garbage = std::mem::take(&mut state.garbage);
        garbage.reports.extend(log.then(|| stuck.clone()));
        state.give_up(&stuck, &mut garbage);
        state.garbage = garbage;
        self.release(state);
        self.changed();
        Some(stuck)
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    use super::*;
    use crate::driver::sim::Schedule;

    #[test]
    fn a_call_waits_for_one_turn_and_not_for_those_begun_later() {
        let machine = Machine::new(1, &SimOptions::new().schedule(Schedule::Lazy));
        let over = AtomicBool::new(false);
        machine.lock().turn.next = Some(Next::Work(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                let state = machine.wait_for_turn(machine.lock());
                assert!(over.load(SeqCst) && !state.turn.overdue, "its turn was under way");
            });
            machine.wait_for_others(1);
            let mut state = machine.lock();
            over.store(true, SeqCst);
            state.begin_turn();
            state.turn.next = Some(Next::Work(0));
            machine.changed();
        });
    }
}
