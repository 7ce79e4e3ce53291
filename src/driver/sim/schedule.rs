//! Which of the things that could happen next on the device does. Pure.

use std::collections::BTreeMap;

/// When the operations of a simulated device run.
///
/// Whatever the schedule: operations of one stream run in order, one runs at a time, and none runs
/// on the thread that enqueued it. Event records, waits, allocations and frees run by themselves
/// as soon as their stream comes to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Schedule {
    /// Everything runs as soon as it can, in the order enqueued.
    #[default]
    Eager,
    /// No launch, copy or fill runs until [`Simulator`](super::Simulator) lets it.
    Stepped,
}

/// Heads of streams that nothing holds back, by sequence number: the order enqueued.
#[derive(Debug, Default)]
pub(super) struct Ready {
    /// Records, allocations, frees, and waits for what was reached; the number of the stream.
    pub(super) control: BTreeMap<u64, u64>,
    /// Launches, copies and fills; the number of the stream.
    pub(super) work: BTreeMap<u64, u64>,
}

impl Ready {
    pub(super) fn remove(&mut self, seq: u64) {
        self.control.remove(&seq);
        self.work.remove(&seq);
    }
}

/// What to run next, and its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Control(u64),
    Work(u64),
}

impl Schedule {
    /// `permitted` is the one operation a test has asked for. All schedules are made here: one
    /// that chooses differently needs nothing but a rule among what is `ready`.
    pub(super) fn choose(self, ready: &Ready, permitted: Option<u64>) -> Option<Next> {
        let control = ready.control.first_key_value();
        let work = match self {
            Schedule::Eager => ready.work.first_key_value(),
            Schedule::Stepped => permitted.and_then(|seq| ready.work.get_key_value(&seq)),
        };
        match (control, work) {
            (Some((c, &stream)), Some((w, _))) if c < w => Some(Next::Control(stream)),
            (Some((_, &stream)), _) if self == Schedule::Stepped => Some(Next::Control(stream)),
            (_, Some((_, &stream))) => Some(Next::Work(stream)),
            (Some((_, &stream)), None) => Some(Next::Control(stream)),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(control: &[(u64, u64)], work: &[(u64, u64)]) -> Ready {
        Ready { control: control.iter().copied().collect(), work: work.iter().copied().collect() }
    }

    #[test]
    fn eager_goes_by_the_order_enqueued() {
        let eager = Schedule::Eager;
        assert_eq!(eager.choose(&ready(&[(2, 9)], &[(1, 8)]), None), Some(Next::Work(8)));
        assert_eq!(eager.choose(&ready(&[(1, 9)], &[(2, 8)]), None), Some(Next::Control(9)));
        assert_eq!(eager.choose(&ready(&[(5, 9)], &[]), None), Some(Next::Control(9)));
        assert_eq!(eager.choose(&ready(&[], &[]), None), None);
    }

    #[test]
    fn stepped_runs_no_work_but_what_is_permitted() {
        let stepped = Schedule::Stepped;
        assert_eq!(stepped.choose(&ready(&[], &[(1, 8)]), None), None);
        assert_eq!(stepped.choose(&ready(&[(2, 9)], &[(1, 8)]), None), Some(Next::Control(9)));
        let two = ready(&[], &[(1, 8), (2, 7)]);
        assert_eq!(stepped.choose(&two, Some(2)), Some(Next::Work(7)));
        assert_eq!(stepped.choose(&two, Some(3)), None, "it is not ready");
    }
}
