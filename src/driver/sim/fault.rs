//! Faults as a test describes them, and as it is told that they struck. Pure.

use super::op::SimOpKind;
use crate::driver::{DriverCall, DriverError};

/// Something that is to fail, or to take long: the next call or operation that matches, unless
/// [`after`](Fault::after), [`times`](Fault::times), [`always`](Fault::always) or
/// [`one_in`](Fault::one_in) say otherwise.
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
    pub(super) effect: Effect,
    pub(super) after: u64,
    pub(super) times: u64,
    /// One in how many strikes, and the seed that chooses them. The first is not 0.
    pub(super) chance: Option<(u64, u64)>,
}

/// What a fault is to strike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    AnyCall,
    Call(DriverCall),
    Run(SimOpKind),
    /// A recording that was reached and is asked for the first time.
    Seen,
}

/// What a fault does to what it strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Error {
        /// Not 0.
        code: u32,
        /// What is struck is done all the same.
        takes_effect: bool,
    },
    /// The operation takes so many ns longer.
    Slow(u64),
    /// The operation never ends.
    Endless,
    /// So many queries say that what was reached was not.
    Late(u64),
}

impl Fault {
    /// Any call answers `code`, a `CUresult`, and does nothing.
    ///
    /// # Panics
    ///
    /// Where `code` is 0, which is CUDA's success.
    #[track_caller]
    pub fn any_call(code: u32) -> Self {
        Fault::error(Of::AnyCall, code)
    }

    /// A call of this kind answers `code`, a `CUresult`, and does nothing. `NOT_READY` (600) has
    /// an event query answer that the event was not reached, as CUDA's does;
    /// [`seen_late`](Fault::seen_late) does so for each event by itself.
    ///
    /// # Panics
    ///
    /// Where `code` is 0, which is CUDA's success.
    #[track_caller]
    pub fn of_call(call: DriverCall, code: u32) -> Self {
        Fault::error(Of::Call(call), code)
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
        Fault::error(Of::Run(kind), code)
    }

    /// An operation of this kind is begun and never ends, as a kernel that spins for ever. Its
    /// stream goes no further and other streams go on. It ends with its device:
    /// [`Simulator::stuck`](super::Simulator::stuck) tells of it,
    /// and [`SimOptions::stall_limit`](super::SimOptions::stall_limit) bounds it.
    pub fn never_finishes(kind: SimOpKind) -> Self {
        Fault::new(Of::Run(kind), Effect::Endless)
    }

    /// An operation of this kind takes `ns` nanoseconds of virtual time more than it costs.
    pub fn slow(kind: SimOpKind, ns: u64) -> Self {
        Fault::new(Of::Run(kind), Effect::Slow(ns))
    }

    /// The host sees the end of something late: the first `queries` queries that would answer that
    /// an event's recording was reached answer that it was not. What it strikes is a recording. The
    /// device does not wait: a stream that waits for it goes on.
    pub fn seen_late(queries: u64) -> Self {
        Fault::new(Of::Seen, Effect::Late(queries))
    }

    #[track_caller]
    fn error(of: Of, code: u32) -> Self {
        assert!(code != 0, "0 is success: a call cannot fail with it");
        Fault::new(of, Effect::Error { code, takes_effect: false })
    }

    fn new(of: Of, effect: Effect) -> Self {
        Fault { of, effect, after: 0, times: 1, chance: None }
    }

    /// Lets so many pass first, of what it matches.
    pub fn after(mut self, pass: u64) -> Self {
        self.after = pass;
        self
    }

    /// How many are struck, of what it matches: those that come first, unless it is by chance.
    /// Instead of 1.
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    /// Whatever it matches is struck, until [`clear_faults`](super::Simulator::clear_faults).
    pub fn always(self) -> Self {
        self.times(u64::MAX)
    }

    /// By chance: of what it matches one in `n` is struck, chosen by `seed` and the same ones every
    /// time. Without an end, unless [`times`](Fault::times) comes after it.
    ///
    /// # Panics
    ///
    /// Where `n` is 0.
    #[track_caller]
    pub fn one_in(mut self, n: u64, seed: u64) -> Self {
        assert!(n > 0, "one in 0 is no chance");
        self.chance = Some((n, seed));
        self.always()
    }

    /// What is struck is done all the same, and then answers the error, a sticky one. CUDA's calls do
    /// so: they also tell the errors of earlier work. What a call makes is not told to the caller then
    /// and stays for good; a call that would not have succeeded answers its own error.
    ///
    /// # Panics
    ///
    /// Where the error is not sticky ([`DriverError::is_sticky`]): what is refused with another one was
    /// not done, which the soundness of this crate rests on. And where it is a fault without an
    /// error: one that makes something slow, late, or endless.
    #[track_caller]
    pub fn taking_effect(self) -> Self {
        if let Effect::Error { code, .. } = self.effect {
            let sticky = DriverError::new("", code).is_sticky();
            assert!(
                sticky,
                "a call that is refused with {code} does nothing: 700 and 719 are sticky"
            );
        }
        self.whatever_the_code()
    }

    /// As [`Fault::taking_effect`], with any code: a driver that breaks its contract.
    #[track_caller]
    pub(super) fn whatever_the_code(mut self) -> Self {
        let Effect::Error { takes_effect, .. } = &mut self.effect else {
            panic!("what is slow, late or endless answers no error");
        };
        *takes_effect = true;
        self
    }

    pub(super) fn is_of(&self, met: Of) -> bool {
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
    /// An operation that took longer than it costs.
    #[non_exhaustive]
    Slow {
        /// As [`SimOp::id`](super::SimOp::id).
        id: u64,
        /// What it does.
        kind: SimOpKind,
        /// By how much, in virtual time.
        ns: u64,
    },
    /// An operation that was begun and never ends.
    #[non_exhaustive]
    NeverFinishes {
        /// As [`SimOp::id`](super::SimOp::id).
        id: u64,
        /// What it was to do.
        kind: SimOpKind,
    },
    /// A recording whose end is seen late.
    #[non_exhaustive]
    SeenLate {
        /// The stream that it was made on.
        stream: u64,
        /// How many queries say that it was not reached.
        queries: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILL: DriverCall = DriverCall::Fill;

    #[test]
    #[should_panic(expected = "answers no error")]
    fn what_answers_no_error_does_not_answer_it_late() {
        drop(Fault::seen_late(1).taking_effect());
    }

    #[test]
    #[should_panic(expected = "refused with 801 does nothing")]
    fn what_is_refused_with_an_error_that_passes_is_not_done() {
        drop(Fault::of_call(FILL, 801).taking_effect());
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
