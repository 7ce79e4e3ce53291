//! Which calls of the driver, and which operations of the device, are made to fail. Pure.

use super::control::SimOpKind;
use crate::driver::{DriverCall, DriverError};

/// Faults that struck which are remembered: the first ones say most.
const INJECTED_KEPT: usize = 1_024;

/// Something that is to fail: the next call of the driver that matches, unless
/// [`after`](Fault::after), [`times`](Fault::times) or [`always`](Fault::always) say otherwise.
///
/// Given to [`SimOptions::fault`](super::SimOptions::fault) or
/// [`Simulator::inject`](super::Simulator::inject), and counted from there on. Several can be there
/// at a time. Each counts every call that it matches, one that another fault strikes as well; a
/// call that is the turn of several is struck by the first of them that was given.
///
/// A code that is sticky ([`DriverError::is_sticky`]) ends the device: what is pending never runs.
///
/// ```
/// use headwater::sim::{Fault, DriverCall, SimOptions};
/// use headwater::{Device, DriverError, Error};
///
/// let device = Device::builder().simulated_with(SimOptions::new()).open()?;
/// let Some(sim) = device.simulator() else { unreachable!("it was opened as one") };
/// let mut x = device.alloc::<u32>(16)?;
///
/// sim.inject(Fault::of_call(DriverCall::Fill, DriverError::NOT_SUPPORTED).after(1));
/// x.fill(1)?;
/// assert!(matches!(x.fill(2), Err(Error::Refused { .. })));
/// x.fill(3)?;
/// assert_eq!(sim.injected().len(), 1);
/// # Ok::<_, Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a fault strikes where it is injected"]
pub struct Fault {
    of: Of,
    /// Not 0.
    code: u32,
    after: u64,
    times: u64,
    takes_effect: bool,
}

/// What a fault is to strike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    AnyCall,
    Call(DriverCall),
    Run(SimOpKind),
}

impl Fault {
    /// Any call answers `code`, a `CUresult`, and does nothing.
    ///
    /// # Panics
    ///
    /// Where `code` is 0, which is CUDA's success.
    #[track_caller]
    pub fn any_call(code: u32) -> Self {
        Fault::new(Of::AnyCall, code)
    }

    /// A call of this kind answers `code`, a `CUresult`, and does nothing. `NOT_READY` (600) has
    /// an event query answer that the event was not reached, as CUDA's does.
    ///
    /// # Panics
    ///
    /// Where `code` is 0, which is CUDA's success.
    #[track_caller]
    pub fn of_call(call: DriverCall, code: u32) -> Self {
        Fault::new(Of::Call(call), code)
    }

    /// An operation of this kind is enqueued as any other, and fails when the device comes to run
    /// it. It does nothing, and ends the device with `code`, as a kernel that faults does.
    ///
    /// # Panics
    ///
    /// Where no operation of that kind fails with such a code on a GPU: one that is not sticky
    /// ([`DriverError::is_sticky`]), as [`LAUNCH_FAILED`](DriverError::LAUNCH_FAILED) is, or for a copy
    /// between host and device one that kernels make.
    #[track_caller]
    pub fn when_run(kind: SimOpKind, code: u32) -> Self {
        assert_sticky(code);
        let by_engine = matches!(kind, SimOpKind::CopyH2D | SimOpKind::CopyD2H);
        let of_kernel = DriverError::new("", code).is_of_kernel();
        assert!(!(by_engine && of_kernel), "{code} is a kernel's error: a {kind:?} runs none");
        Fault::new(Of::Run(kind), code)
    }

    #[track_caller]
    fn new(of: Of, code: u32) -> Self {
        assert!(code != 0, "0 is success: a call cannot fail with it");
        Fault { of, code, after: 0, times: 1, takes_effect: false }
    }

    /// Lets so many pass first, of what it matches.
    pub fn after(mut self, pass: u64) -> Self {
        self.after = pass;
        self
    }

    /// How many strike in a row, of what it matches. Instead of 1.
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    /// Whatever it matches is struck, until [`clear_faults`](super::Simulator::clear_faults).
    pub fn always(self) -> Self {
        self.times(u64::MAX)
    }

    /// What is struck is done all the same, and then answers the error. CUDA's calls do so with sticky
    /// codes: they also tell the errors of earlier work. With another code this is a driver that
    /// breaks its contract, in which what answers an error was not done, and this crate promises
    /// nothing. What a call makes is not told to the caller then
    /// and stays for good; a call that would not have succeeded answers its own error.
    pub fn taking_effect(mut self) -> Self {
        self.takes_effect = true;
        self
    }

    fn is_of(&self, met: Of) -> bool {
        self.of == met || self.of == Of::AnyCall && matches!(met, Of::Call(_))
    }
}

/// Whether a device can end with this error.
#[track_caller]
pub(super) fn assert_sticky(code: u32) {
    assert!(
        DriverError::new("", code).is_sticky(),
        "{code} is no error that a device ends with: 700 and 719 are"
    );
}

/// A fault that struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Injected {
    /// A call of the driver.
    #[non_exhaustive]
    Call {
        /// How many calls had been made before it, as [`calls`](super::Simulator::calls) counts.
        index: u64,
        /// Which one it was.
        call: DriverCall,
        /// What it answered.
        code: u32,
    },
    /// An operation, when the device came to run it.
    #[non_exhaustive]
    Run {
        /// As [`SimOp::id`](super::SimOp::id).
        id: u64,
        /// What it was to do.
        kind: SimOpKind,
        /// What the device ended with.
        code: u32,
    },
}

/// A fault's turn has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Strike {
    pub(super) code: u32,
    /// What is struck is done all the same.
    pub(super) takes_effect: bool,
}

/// The faults of a machine.
#[derive(Debug)]
pub(super) struct Faults {
    /// In the order given. None has had all its turns.
    armed: Vec<Armed>,
    /// What struck so far.
    injected: Vec<Injected>,
}

#[derive(Debug)]
struct Armed {
    fault: Fault,
    /// How much it has met of what it matches.
    met: u64,
}

impl Armed {
    /// Counts one more; true where it is struck.
    fn is_turn(&mut self) -> bool {
        self.met += 1;
        self.met > self.fault.after && !self.is_over(self.met - 1)
    }

    /// Whether nothing is struck after `met` of what it matches.
    fn is_over(&self, met: u64) -> bool {
        met >= self.fault.after.saturating_add(self.fault.times)
    }
}

impl Faults {
    pub(super) fn new(faults: &[Fault]) -> Self {
        let mut all = Faults { armed: Vec::new(), injected: Vec::new() };
        faults.iter().cloned().for_each(|fault| all.inject(fault));
        all
    }

    pub(super) fn inject(&mut self, fault: Fault) {
        self.armed.push(Armed { fault, met: 0 });
    }

    pub(super) fn clear(&mut self) {
        self.armed.clear();
    }

    /// A call comes in.
    pub(super) fn meet_call(&mut self, call: DriverCall) -> Option<Strike> {
        self.meet(Of::Call(call))
    }

    /// The device comes to an operation.
    pub(super) fn meet_run(&mut self, kind: SimOpKind) -> Option<Strike> {
        self.meet(Of::Run(kind))
    }

    fn meet(&mut self, met: Of) -> Option<Strike> {
        let mut strike = None;
        self.armed.retain_mut(|armed| {
            if armed.fault.is_of(met) && armed.is_turn() {
                let Fault { code, takes_effect, .. } = armed.fault;
                strike.get_or_insert(Strike { code, takes_effect });
            }
            !armed.is_over(armed.met)
        });
        strike
    }

    /// Notes what was struck.
    pub(super) fn note(&mut self, injected: Injected) {
        if self.injected.len() < INJECTED_KEPT {
            self.injected.push(injected);
        }
    }

    pub(super) fn injected(&self) -> &[Injected] {
        &self.injected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOC: DriverCall = DriverCall::Alloc;
    const FILL: DriverCall = DriverCall::Fill;

    /// The codes that these calls meet in turn; 0: none.
    fn codes(faults: &[Fault], calls: &[DriverCall]) -> Vec<u32> {
        let mut faults = Faults::new(faults);
        let mut meet = |call: &DriverCall| faults.meet_call(*call).map_or(0, |strike| strike.code);
        calls.iter().map(&mut meet).collect()
    }

    #[test]
    fn a_fault_strikes_the_next_call_that_matches_and_no_other() {
        assert_eq!(codes(&[Fault::any_call(1)], &[FILL, FILL, ALLOC]), [1, 0, 0]);
        assert_eq!(codes(&[Fault::of_call(ALLOC, 2)], &[FILL, ALLOC, ALLOC]), [0, 2, 0]);
    }

    #[test]
    fn after_and_times_count_what_matches() {
        let calls = [FILL, ALLOC, FILL, FILL, ALLOC, FILL, FILL];
        let fills = Fault::of_call(FILL, 1);
        assert_eq!(codes(&[fills.clone().after(2)], &calls), [0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(codes(&[fills.clone().after(1).times(2)], &calls), [0, 0, 1, 1, 0, 0, 0]);
        assert_eq!(codes(&[fills.clone().after(1).always()], &calls), [0, 0, 1, 1, 0, 1, 1]);
        assert_eq!(codes(&[fills.times(0)], &calls), [0; 7]);
        assert_eq!(codes(&[Fault::any_call(3).after(4)], &calls), [0, 0, 0, 0, 3, 0, 0]);
    }

    #[test]
    fn faults_count_by_themselves_and_the_first_given_strikes() {
        let faults = [Fault::of_call(FILL, 1), Fault::any_call(2).times(2), Fault::any_call(3)];
        assert_eq!(codes(&faults, &[FILL, FILL, FILL]), [1, 2, 0]);
    }

    #[test]
    fn a_fault_that_had_its_turns_is_forgotten() {
        let mut faults = Faults::new(&[Fault::any_call(1), Fault::any_call(1).always()]);
        faults.meet_call(FILL);
        assert_eq!(faults.armed.len(), 1);
        faults.clear();
        assert_eq!(faults.meet_call(FILL), None);
    }

    #[test]
    fn faults_of_operations_are_not_met_by_calls() {
        let mut faults = Faults::new(&[Fault::when_run(SimOpKind::Fill, 700)]);
        assert_eq!(faults.meet_call(FILL), None);
        assert_eq!(faults.meet_run(SimOpKind::Kernel), None);
        let strike = Strike { code: 700, takes_effect: false };
        assert_eq!(faults.meet_run(SimOpKind::Fill), Some(strike));
        let mut any = Faults::new(&[Fault::any_call(1)]);
        assert_eq!(any.meet_run(SimOpKind::Fill), None);
    }

    #[test]
    #[should_panic(expected = "success")]
    fn success_is_no_error_to_fail_with() {
        drop(Fault::any_call(0));
    }

    #[test]
    #[should_panic(expected = "no error that a device ends with")]
    fn an_operation_does_not_fail_with_an_error_that_passes() {
        drop(Fault::when_run(SimOpKind::Kernel, 1));
    }
}
