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

use super::options::SimOptions;
use super::schedule::Next;
use super::state::{Garbage, Item, State};
use super::stuck::{STALL_LIMIT, Stuck};
use crate::driver::ContextHandle;

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

    /// As [`Machine::wait_until`], but `Err` where an operation is run for too long meanwhile. Or where
    /// nothing runs or moves for long: the device's thread drops user code, which can block as well.
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
            let left = match state.run_left() {
                Some(left) => left,
                None => state.run_limit().max(STALL_LIMIT).saturating_sub(seen.1.elapsed()),
            };
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
    pub(super) fn turn<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
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
            // Where nothing runs the device's thread may be dropping user code, which can block as
            // well.
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
    pub(super) fn wait_for_room<'a>(
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

    /// Ends what is stuck with a sticky error, and says how it was; nothing where it is not. `log`:
    /// where nobody asked for it.
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
