//! The handle by which a test drives and watches the simulated device.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, MutexGuard};

use super::fault::{Fault, Injected, assert_sticky};
use super::machine::Machine;
use super::op::{SimOp, SimSpan};
use super::schedule::Schedule;
use super::state::{Permit, State};
use super::stuck::Stuck;
use super::violation::Violation;

/// Drives and watches a simulated device and the machine that it is of. Clones are the same handle;
/// none keeps the device working after its last user has gone.
///
/// Operations, time, faults, violations and page-locked memory are the machine's: with several
/// devices ([`SimMachine`](super::SimMachine)) it does not matter whose handle is asked. What is a
/// device's own, such as its streams and its failure, is that of the device whose handle it is, and of
/// all of them by the handle of [`SimMachine::simulator`](super::SimMachine::simulator).
///
/// Methods that say that they *block* wait for the device's executor thread, not for virtual time.
/// Called by a twin, which runs on that thread, they return at once without having done anything.
/// They wait for no operation longer than
/// [`SimOptions::stall_limit`](super::SimOptions::stall_limit), or ten seconds where that is not
/// said: if its twin has not returned by then, they return as if nothing more could run, and
/// [`stuck`](Simulator::stuck) names it.
#[derive(Clone)]
pub struct Simulator {
    pub(super) machine: Arc<Machine>,
    /// `None`: all of the machine's.
    device: Option<usize>,
}

impl Simulator {
    pub(super) fn new(machine: Arc<Machine>, device: Option<usize>) -> Self {
        Simulator { machine, device }
    }

    /// Whether both are of one machine, whose devices never have the same handle or address.
    pub(crate) fn shares_machine(&self, other: &Simulator) -> bool {
        Arc::ptr_eq(&self.machine, &other.machine)
    }

    /// Ordinal of the device whose handle it is; `None` where it is the machine's.
    pub fn device(&self) -> Option<usize> {
        self.device
    }

    fn devices(&self) -> Range<usize> {
        self.device.map_or(0..self.machine.devices(), |device| device..device + 1)
    }

    /// Launches, copies and fills that have not begun, in the order enqueued.
    ///
    /// Under [`Schedule::Stepped`] it blocks until the device is idle first, so that
    /// [`SimOp::runnable`] does not depend on how fast records and waits were passed.
    pub fn pending(&self) -> Vec<SimOp> {
        let mut state = self.machine.lock();
        if state.schedule == Schedule::Stepped && !self.machine.on_executor() {
            state =
                self.machine.wait_within_limit(state, State::settled).unwrap_or_else(|late| late);
        }
        state.ops().collect()
    }

    /// Runs the first runnable operation in the order enqueued. Blocks until it has run and the
    /// device is idle again; `None` where nothing is runnable.
    pub fn step(&self) -> Option<SimOp> {
        self.run_one(|op| op.runnable)
    }

    /// Runs the next operation of a stream. Blocks as [`Simulator::step`] does; `None` where the
    /// stream has none or waits for another.
    pub fn step_stream(&self, stream: u64) -> Option<SimOp> {
        self.run_one(|op| op.runnable && op.stream == stream)
    }

    /// Runs the operation of that id, if it is runnable. Blocks as [`Simulator::step`] does.
    pub fn run(&self, id: u64) -> Option<SimOp> {
        self.run_one(|op| op.runnable && op.id == id)
    }

    /// Runs operations in the order enqueued until none is runnable, and says how many it ran.
    /// Blocks meanwhile. Under [`Schedule::Eager`] the device runs them itself, and it is 0.
    pub fn run_all(&self) -> usize {
        std::iter::from_fn(|| self.step()).count()
    }

    /// A gate, closed: a launch that names it does not run before [`Simulator::open_gate`].
    pub(crate) fn gate(&self) -> u64 {
        self.machine.lock().new_gate()
    }

    /// Opens a gate for good.
    pub(crate) fn open_gate(&self, gate: u64) {
        let mut state = self.machine.lock();
        state.open_gate(gate);
        self.machine.release(state);
        self.machine.changed(); // calls that wait for room let the device move themselves
    }

    /// Who waits for whom, if the machine is stuck: something is pending on one of its devices,
    /// nothing runs on any, and nothing could. A gate was not opened, an operation never ends, or
    /// under [`Schedule::Stepped`] a step is due. Or an operation is run that has not returned
    /// within the stall limit, from when somebody first waited for it or asked this. What nobody
    /// needs under [`Schedule::Lazy`] makes no device stuck: it is if something is needed and
    /// nothing of that can run.
    pub fn stuck(&self) -> Option<Stuck> {
        self.machine.lock().stuck()
    }

    /// Ends the devices that hold something if the machine is [`stuck`](Simulator::stuck), with a
    /// sticky error 702 ([`LAUNCH_TIMEOUT`](crate::DriverError::LAUNCH_TIMEOUT)), so that whoever
    /// waits for it is told. The report is returned and kept among the
    /// [`violations`](Simulator::violations).
    ///
    /// By itself the device does so after [`SimOptions::stall_limit`](super::SimOptions::stall_limit).
    pub fn give_up(&self) -> Option<Stuck> {
        self.machine.give_up(self.machine.lock(), false)
    }

    /// Whether this device has failed, whoever has noticed.
    pub(crate) fn has_failed(&self) -> bool {
        self.machine.lock().devices[self.devices()].iter().any(|one| one.failed.is_some())
    }

    /// How many choices of [`Schedule::Random`] differed from the tame ones so far.
    pub fn deviations(&self) -> u32 {
        self.machine.lock().turn.deviations()
    }

    /// Changes when operations run, from the next one on. A random schedule begins anew.
    pub fn set_schedule(&self, schedule: Schedule) {
        let mut state = self.machine.lock();
        state.set_schedule(schedule);
        self.machine.release(state);
        self.machine.changed();
    }

    /// Blocks until the device is idle: nothing runs, and nothing would as the schedule stands. Or
    /// until the stall limit is over for an operation that does not return.
    pub fn settle(&self) {
        if !self.machine.on_executor() {
            drop(self.machine.wait_within_limit(self.machine.lock(), State::settled));
        }
    }

    /// Operations that have run, in the order in which they ran: the last 65,536.
    ///
    /// The times of what one task enqueues before it awaits are the same on every run. Between
    /// tasks they depend on when the host's threads enqueued and saw an end, so whether spans of
    /// two tasks overlap is a matter of luck under [`Schedule::Eager`]. Under [`Schedule::Stepped`]
    /// enqueue all of it first, wait until [`pending`](Simulator::pending) has it, and run it then.
    pub fn timeline(&self) -> Vec<SimSpan> {
        self.machine.lock().spans()
    }

    /// The host's virtual clock in ns: what its calls cost so far, and no earlier than what it
    /// has seen finished by an event query.
    pub fn host_now(&self) -> u64 {
        self.machine.lock().host_now
    }

    /// What was done wrong so far: the first 1,024. A test that passed has none; where a device was
    /// lost, it says what to, a twin that panicked by its kernel's name.
    pub fn violations(&self) -> Vec<Violation> {
        self.machine.lock().violations.clone()
    }

    /// Calls that blocked because their stream's queue was full.
    pub fn blocked_calls(&self) -> u64 {
        self.machine.lock().blocked_calls
    }

    /// Bytes of this device's memory allocated, in units of 256. A free counts when its stream comes to
    /// it.
    pub fn live_device_bytes(&self) -> u64 {
        self.machine.lock().devices[self.devices()].iter().map(|one| one.memory.live()).sum()
    }

    /// Bytes of page-locked memory allocated.
    pub fn live_pinned_bytes(&self) -> u64 {
        self.machine.lock().pinned.live()
    }

    /// Streams of this device not destroyed. Like everything alive on a device that failed they
    /// stay so: no call destroys anything there.
    pub fn live_streams(&self) -> usize {
        self.machine.lock().live_streams(&self.devices())
    }

    /// Events of this device not destroyed; on a failed device as [`Simulator::live_streams`].
    pub fn live_events(&self) -> usize {
        let devices = self.devices();
        let state = self.machine.lock();
        state.events.values().filter(|event| devices.contains(&event.device)).count()
    }

    /// Modules of this device not unloaded; on a failed device as [`Simulator::live_streams`].
    pub fn live_modules(&self) -> usize {
        self.machine.lock().devices[self.devices()].iter().map(|one| one.modules.live()).sum()
    }

    /// Calls of the driver made so far, whatever they answered. A fault of
    /// [`any_call`](Fault::any_call) given to the options and [`after`](Fault::after) `k` strikes
    /// the call that makes this `k + 1`.
    ///
    /// Calls by the library's own threads are among them: how often it asks for an event that is
    /// awaited depends on how long that takes.
    pub fn calls(&self) -> u64 {
        self.machine.lock().calls
    }

    /// One more fault, from the next call or operation on.
    pub fn inject(&self, fault: Fault) {
        self.machine.lock().faults.inject(fault);
    }

    /// Takes all faults out, those of the options too. What they did stays.
    pub fn clear_faults(&self) {
        self.machine.lock().faults.clear();
    }

    /// The faults that struck so far, in the order in which they did: the first 1,024.
    pub fn injected(&self) -> Vec<Injected> {
        self.machine.lock().faults.injected().to_vec()
    }

    /// This device fails here and now, as if a kernel had faulted: every later call answers `code`,
    /// and what is pending never runs. One that failed before keeps its first error.
    ///
    /// Other devices of the machine go on, unless they
    /// [share its fate](super::SimOptions::shared_fate). What waits on one of them for an event that
    /// this one has not come to is [`stuck`](Simulator::stuck): no device takes a wait back.
    ///
    /// # Panics
    ///
    /// Where `code` is not sticky ([`is_sticky`](crate::DriverError::is_sticky)), as 700 and 719 are.
    #[track_caller]
    pub fn fail(&self, code: u32) {
        assert_sticky(code);
        for device in self.devices() {
            self.machine.fail(self.machine.lock(), device, code);
        }
    }

    fn run_one(&self, wanted: impl Fn(&SimOp) -> bool) -> Option<SimOp> {
        if self.machine.on_executor() {
            return None;
        }
        let state = self.machine.wait_within_limit(self.machine.lock(), State::settled).ok()?;
        let (state, ran) = self.run_alone(self.set_stepping(state, true), wanted);
        drop(self.set_stepping(state, false));
        ran
    }

    /// As [`Simulator::run_one`], while tests step.
    fn run_alone<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        wanted: impl Fn(&SimOp) -> bool,
    ) -> (MutexGuard<'a, State>, Option<SimOp>) {
        let idle = |state: &State| state.permit.is_none() && state.settled();
        let mut state = match self.machine.wait_within_limit(state, idle) {
            Ok(state) => state,
            Err(late) => return (late, None),
        };
        let Some(op) = state.ops().find(&wanted) else {
            return (state, None);
        };
        state.permit = Some(Permit { seq: op.id, ran: None });
        self.machine.release(state);

        let known = |state: &State| state.permit.as_ref().is_none_or(|p| p.ran.is_some());
        state =
            self.machine.wait_within_limit(self.machine.lock(), known).unwrap_or_else(|late| late);
        let ran = state.permit.take().and_then(|permit| permit.ran);
        self.machine.changed(); // others who wait to step
        let settled = self.machine.wait_within_limit(state, State::settled);
        (settled.unwrap_or_else(|late| late), (ran == Some(true)).then_some(op))
    }

    /// Notes that a test steps: what costs no time runs by itself meanwhile, in lock-step too.
    pub(super) fn set_stepping<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        stepping: bool,
    ) -> MutexGuard<'a, State> {
        match stepping {
            true => state.stepping += 1,
            false => state.stepping -= 1,
        }
        if !stepping {
            self.machine.changed(); // calls that wait for room let the device move again
        }
        if !state.schedule.is_lock_step() {
            return state;
        }
        self.machine.release(state);
        self.machine.lock()
    }
}

impl fmt::Debug for Simulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.machine.lock();
        f.debug_struct("Simulator")
            .field("device", &self.device)
            .field("schedule", &state.schedule)
            .field("pending", &state.ops().count())
            .field("host_now", &state.host_now)
            .finish_non_exhaustive()
    }
}
