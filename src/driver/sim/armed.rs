//! Which calls of the driver, and which operations of the device, faults strike. Pure.

use super::fault::{Effect, Fault, Injected, Of};
use super::op::SimOpKind;
use crate::driver::DriverCall;
use crate::random::SplitMix64;

/// Faults that struck which are remembered: the first ones say most.
const INJECTED_KEPT: usize = 1_024;

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
    /// How much it is to let pass yet, of what it matches.
    pass: u64,
    /// How much it is to strike yet.
    left: u64,
    chance: Option<(u64, SplitMix64)>,
}

impl Armed {
    fn new(fault: Fault) -> Self {
        let Fault { after, times, chance, .. } = fault;
        let chance = chance.map(|(n, seed)| (n, SplitMix64::new(seed)));
        Armed { fault, pass: after, left: times, chance }
    }

    /// Counts one more; true where it is struck.
    fn is_turn(&mut self) -> bool {
        if self.pass > 0 {
            self.pass -= 1;
            return false;
        }
        let drawn = self.chance.as_mut().is_none_or(|(n, numbers)| numbers.below(*n) == 0);
        let struck = drawn && self.left > 0;
        self.left -= u64::from(struck);
        struck
    }
}

impl Faults {
    pub(super) fn new(faults: &[Fault]) -> Self {
        let mut all = Faults { armed: Vec::new(), injected: Vec::new() };
        faults.iter().cloned().for_each(|fault| all.inject(fault));
        all
    }

    pub(super) fn inject(&mut self, fault: Fault) {
        self.armed.push(Armed::new(fault));
    }

    pub(super) fn clear(&mut self) {
        self.armed.clear();
    }

    /// A call comes in.
    pub(super) fn meet_call(&mut self, call: DriverCall) -> Option<Effect> {
        self.meet(Of::Call(call))
    }

    /// The device comes to an operation.
    pub(super) fn meet_run(&mut self, kind: SimOpKind) -> Option<Effect> {
        self.meet(Of::Run(kind))
    }

    /// A recording on this stream was reached and is asked for the first time: how many queries say
    /// that it was not.
    pub(super) fn meet_seen(&mut self, stream: u64) -> u64 {
        let Some(Effect::Late(queries)) = self.meet(Of::Seen) else {
            return 0;
        };
        self.note(Injected::SeenLate { stream, queries });
        queries
    }

    fn meet(&mut self, met: Of) -> Option<Effect> {
        let mut effect = None;
        self.armed.retain_mut(|armed| {
            if armed.fault.is_of(met) && armed.is_turn() {
                effect.get_or_insert(armed.fault.effect);
            }
            armed.left > 0
        });
        effect
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
        let mut meet = |call: &DriverCall| match faults.meet_call(*call) {
            Some(Effect::Error { code, .. }) => code,
            _ => 0,
        };
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
        let effect = Effect::Error { code: 700, takes_effect: false };
        assert_eq!(faults.meet_run(SimOpKind::Fill), Some(effect));
        let mut any = Faults::new(&[Fault::any_call(1)]);
        assert_eq!(any.meet_run(SimOpKind::Fill), None);
    }

    #[test]
    fn chance_strikes_one_in_so_many_the_same_ones_every_time() {
        let fault = Fault::of_call(FILL, 1).one_in(4, 7);
        let struck = codes(std::slice::from_ref(&fault), &[FILL; 1_000]);
        assert_eq!(struck, codes(std::slice::from_ref(&fault), &[FILL; 1_000]));
        assert_ne!(struck, codes(&[fault.clone().one_in(4, 8)], &[FILL; 1_000]));
        let count = struck.iter().sum::<u32>();
        assert!((200..300).contains(&count), "{count}");

        let limited = codes(&[fault.clone().times(3)], &[FILL; 1_000]);
        assert_eq!(limited.iter().sum::<u32>(), 3);
        let later = codes(&[fault.after(5)], &[FILL; 1_000]);
        assert_eq!(later[..5], [0; 5]);
        assert_eq!(later[5..], struck[..995], "what passes draws no number");
        assert_eq!(codes(&[Fault::of_call(FILL, 1).one_in(1, 0)], &[FILL; 9]), [1; 9]);
    }

    #[test]
    fn what_is_slow_late_or_endless_strikes_what_it_is_of() {
        let mut faults = Faults::new(&[
            Fault::slow(SimOpKind::Fill, 5),
            Fault::never_finishes(SimOpKind::Fill).after(1),
            Fault::seen_late(2),
        ]);
        assert_eq!(faults.meet_call(FILL), None);
        assert_eq!(faults.meet_run(SimOpKind::Kernel), None);
        assert_eq!(faults.meet_run(SimOpKind::Fill), Some(Effect::Slow(5)));
        assert_eq!(faults.meet_run(SimOpKind::Fill), Some(Effect::Endless));
        assert_eq!((faults.meet_seen(4), faults.meet_seen(4)), (2, 0));
        assert_eq!(faults.injected(), [Injected::SeenLate { stream: 4, queries: 2 }]);
    }
}
