//! Which of the things that could happen next on the device does. Pure.

use std::collections::BTreeMap;

use super::random::Dice;

/// When the operations of a simulated device run.
///
/// Whatever the schedule: operations of one stream run in order, one runs at a time, and none runs
/// on the thread that enqueued it, or before the call that enqueued it has returned.
///
/// Under [`Lazy`](Schedule::Lazy) and [`Random`](Schedule::Random) the device is *in lock-step* with
/// the host: it moves only inside later calls of the driver, which wait for it. The same calls from
/// one thread get the same answers, bytes and virtual times then, whatever the timing of the host.
/// What has not run when the device's last user goes is dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Schedule {
    /// Everything runs as soon as it can, in the order enqueued.
    #[default]
    Eager,
    /// No launch, copy or fill runs until [`Simulator`](super::Simulator) lets it. Event records,
    /// waits, allocations and frees run by themselves as soon as their stream comes to them.
    Stepped,
    /// A launch, copy or fill runs only if something needs it: what nobody reads is never computed,
    /// and what a missing wait should have brought about has not happened.
    ///
    /// An event that is asked for needs what its recording comes after, there and in the streams
    /// waited for; the query answers that it is not finished, and the next call has it run. A call
    /// that finds its stream's queue full needs the oldest operation there. An allocation
    /// for which there is no room needs the frees that are enqueued; it is refused, and succeeds
    /// the next time. Event records, waits, allocations and frees run by themselves.
    Lazy,
    /// Any order that streams and waits allow, by a seed. Each call runs some of what could run,
    /// often nothing, sometimes several; records, waits, allocations and frees are held
    /// back as well. After a query that answered that an event is not finished the next call runs at
    /// least one, if any can.
    ///
    /// [`Schedule::random`] makes one without a limit of deviations.
    Random {
        /// Chooses the order.
        seed: u64,
        /// So many of its choices may differ from the tame ones, which are: each call runs one, the
        /// first in the order enqueued. A pause is one choice, however many calls it lasts. The
        /// first choices stay the same whatever the limit: the least limit under which a test still
        /// fails shows the choice that matters.
        /// [`Simulator::deviations`](super::Simulator::deviations) says how many a run made.
        deviations: u32,
    },
}

impl Schedule {
    /// Any order that streams and waits allow, chosen by `seed`.
    pub const fn random(seed: u64) -> Self {
        Schedule::Random { seed, deviations: u32::MAX }
    }

    /// Whether the device moves only inside calls.
    pub(super) fn is_lock_step(self) -> bool {
        matches!(self, Schedule::Lazy | Schedule::Random { .. })
    }
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
        if self.control.remove(&seq).is_none() {
            self.work.remove(&seq);
        }
    }

    /// All, in the order enqueued.
    pub(super) fn items(&self) -> Vec<(u64, Next)> {
        let control = self.control.iter().map(|(&seq, &stream)| (seq, Next::Control(stream)));
        let work = self.work.iter().map(|(&seq, &stream)| (seq, Next::Work(stream)));
        let mut items: Vec<_> = control.chain(work).collect();
        items.sort_unstable_by_key(|&(seq, _)| seq);
        items
    }
}

/// What to run next, and its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Control(u64),
    Work(u64),
}

impl Next {
    pub(super) fn stream(self) -> u64 {
        match self {
            Next::Control(stream) | Next::Work(stream) => stream,
        }
    }
}

/// What a device in lock-step may do in the call under way.
#[derive(Debug)]
pub(super) struct Turn {
    /// Grows with each turn begun.
    pub(super) number: u64,
    /// What runs next, chosen already; the turn is over where it is `None` and nothing is run.
    pub(super) next: Option<Next>,
    /// How many items ran, or are being run.
    ran: u32,
    /// Somebody asked in vain: the next turn runs something, if anything can.
    pub(super) owed: bool,
    /// It took too long, and is waited for no more.
    pub(super) overdue: bool,
    dice: Dice,
}

impl Turn {
    pub(super) fn new(schedule: Schedule) -> Self {
        let dice = match schedule {
            Schedule::Random { seed, deviations } => Dice::new(seed, deviations),
            _ => Dice::new(0, 0),
        };
        Turn { number: 0, next: None, ran: 0, owed: false, overdue: false, dice }
    }

    pub(super) fn deviations(&self) -> u32 {
        self.dice.deviations()
    }
}

impl Schedule {
    /// What the executor runs next. `permitted` is the one operation a test has asked for, if tests
    /// are `stepping`.
    pub(super) fn choose(
        self,
        ready: &Ready,
        stepping: bool,
        permitted: Option<u64>,
        turn: &Turn,
    ) -> Option<Next> {
        match self {
            Schedule::Eager => eager(ready),
            Schedule::Stepped => stepped(ready, permitted),
            Schedule::Lazy | Schedule::Random { .. } if stepping => stepped(ready, permitted),
            Schedule::Lazy | Schedule::Random { .. } => turn.next,
        }
    }

    /// A call lets the device move.
    pub(super) fn begin(self, turn: &mut Turn, ready: &Ready, needed: impl Fn(u64, u64) -> bool) {
        turn.number += 1;
        turn.ran = 0;
        self.go_on(turn, ready, needed);
        turn.owed = false;
    }

    /// Chooses what comes next in a turn, the last having run. `needed` says it of a ready operation
    /// and its stream.
    pub(super) fn go_on(self, turn: &mut Turn, ready: &Ready, needed: impl Fn(u64, u64) -> bool) {
        turn.next = match self {
            Schedule::Eager | Schedule::Stepped => None,
            Schedule::Lazy => lazy(ready, needed),
            Schedule::Random { .. } => turn.dice.choose(ready, turn.ran, turn.owed),
        };
        turn.ran = turn.ran.saturating_add(1);
    }
}

fn eager(ready: &Ready) -> Option<Next> {
    match (ready.control.first_key_value(), ready.work.first_key_value()) {
        (Some((c, _)), Some((w, &stream))) if w < c => Some(Next::Work(stream)),
        (Some((_, &stream)), _) => Some(Next::Control(stream)),
        (None, Some((_, &stream))) => Some(Next::Work(stream)),
        (None, None) => None,
    }
}

fn stepped(ready: &Ready, permitted: Option<u64>) -> Option<Next> {
    let work = || permitted.and_then(|seq| ready.work.get(&seq)).map(|&stream| Next::Work(stream));
    first_control(ready).or_else(work)
}

fn lazy(ready: &Ready, needed: impl Fn(u64, u64) -> bool) -> Option<Next> {
    let work = || ready.work.iter().find(|&(&seq, &stream)| needed(seq, stream));
    first_control(ready).or_else(|| work().map(|(_, &stream)| Next::Work(stream)))
}

fn first_control(ready: &Ready) -> Option<Next> {
    ready.control.first_key_value().map(|(_, &stream)| Next::Control(stream))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(control: &[(u64, u64)], work: &[(u64, u64)]) -> Ready {
        Ready { control: control.iter().copied().collect(), work: work.iter().copied().collect() }
    }

    #[test]
    fn eager_goes_by_the_order_enqueued() {
        assert_eq!(eager(&ready(&[(2, 9)], &[(1, 8)])), Some(Next::Work(8)));
        assert_eq!(eager(&ready(&[(1, 9)], &[(2, 8)])), Some(Next::Control(9)));
        assert_eq!(eager(&ready(&[(5, 9)], &[])), Some(Next::Control(9)));
        assert_eq!(eager(&ready(&[], &[])), None);
    }

    #[test]
    fn stepped_runs_no_work_but_what_is_permitted() {
        assert_eq!(stepped(&ready(&[], &[(1, 8)]), None), None);
        assert_eq!(stepped(&ready(&[(2, 9)], &[(1, 8)]), None), Some(Next::Control(9)));
        let two = ready(&[], &[(1, 8), (2, 7)]);
        assert_eq!(stepped(&two, Some(2)), Some(Next::Work(7)));
        assert_eq!(stepped(&two, Some(3)), None, "it is not ready");
    }

    #[test]
    fn lazy_runs_no_work_but_what_is_needed() {
        let nothing = |_, _| false;
        assert_eq!(lazy(&ready(&[], &[(1, 8)]), nothing), None);
        assert_eq!(lazy(&ready(&[(2, 9)], &[(1, 8)]), nothing), Some(Next::Control(9)));
        let two = ready(&[], &[(1, 8), (2, 7)]);
        assert_eq!(lazy(&two, |_, stream| stream == 7), Some(Next::Work(7)));
        assert_eq!(lazy(&two, |_, _| true), Some(Next::Work(8)), "the first of two");
    }

    #[test]
    fn in_lock_step_nothing_runs_between_turns_unless_it_is_stepped() {
        for schedule in [Schedule::Lazy, Schedule::random(1)] {
            let turn = Turn::new(schedule);
            let ready = ready(&[(1, 9)], &[(2, 8)]);
            assert_eq!(schedule.choose(&ready, false, None, &turn), None);
            assert_eq!(schedule.choose(&ready, true, None, &turn), Some(Next::Control(9)));
        }
    }
}
