//! How much of something is taken over time, and an engine that is filled by that. Pure.
//!
//! The record is bounded in two ways, both exact functions of the calls made. The caller says
//! before which time nothing can start any more ([`Steps::forget_before`]). Where that does not
//! help, the oldest quarter of the record is dropped, and with it the gaps in that quarter:
//! nothing is placed there any more.

use std::collections::VecDeque;

/// Changes that are remembered.
const STEPS_KEPT: usize = 4_096;

/// What is taken at a time: how many operations there are, and how much they take together of what
/// they share (threads of a device, bytes a second of a link).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) operations: u32,
    pub(super) amount: u64,
}

impl Load {
    pub(super) fn new(operations: u32, amount: u64) -> Self {
        Load { operations, amount }
    }

    pub(super) fn plus(self, other: Load) -> Load {
        Load {
            operations: self.operations.saturating_add(other.operations),
            amount: self.amount.saturating_add(other.amount),
        }
    }

    pub(super) fn fits(self, most: Load) -> bool {
        self.operations <= most.operations && self.amount <= most.amount
    }
}

/// A load that changes in steps.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// From when on, and what is taken until the next; nothing before the first. By time. Neighbours
    /// differ, and the last is nothing, since every operation ends.
    taken: VecDeque<(u64, Load)>,
    /// What was taken before it is forgotten.
    floor: u64,
}

impl Steps {
    /// Nothing starts before it.
    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    /// Index of the first step after `time`.
    fn after(&self, time: u64) -> usize {
        self.taken.partition_point(|&(at, _)| at <= time)
    }

    /// What is taken before the step of that index.
    fn before(&self, step: usize) -> Load {
        step.checked_sub(1).map_or_else(Load::default, |before| self.taken[before].1)
    }

    pub(super) fn at(&self, time: u64) -> Load {
        self.before(self.after(time))
    }

    /// The first change after `time`.
    pub(super) fn next_change(&self, time: u64) -> Option<u64> {
        self.taken.get(self.after(time)).map(|&(at, _)| at)
    }

    /// End of the first stretch in `start..end` where `load` does not fit beside what is taken.
    pub(super) fn obstacle(&self, start: u64, end: u64, load: Load, most: Load) -> Option<u64> {
        let first = self.after(start).saturating_sub(1);
        let mut steps = self.taken.range(first..).take_while(|&&(at, _)| at < end);
        let (at, _) = steps.find(|(_, taken)| !taken.plus(load).fits(most))?;
        self.next_change(*at)
    }

    /// The first time from `earliest` on at which `load` fits for `ns` beside what is taken.
    pub(super) fn first_fit(&self, earliest: u64, ns: u64, load: Load, most: Load) -> u64 {
        let mut start = earliest.max(self.floor);
        let first = self.after(start).saturating_sub(1);
        let mut blocked = false;
        for &(at, taken) in self.taken.range(first..) {
            if blocked {
                start = at;
            }
            if at >= start.saturating_add(ns) {
                break;
            }
            blocked = !taken.plus(load).fits(most);
        }
        start
    }

    pub(super) fn add(&mut self, start: u64, end: u64, load: Load) {
        if start >= end || load == Load::default() {
            return;
        }
        let (first, last) = (self.edge(start), self.edge(end));
        for (_, taken) in self.taken.range_mut(first..last) {
            *taken = taken.plus(load);
        }
        // Inside, neighbours differ as before; at the edges they may have become equal.
        for edge in [last, first] {
            if self.taken[edge].1 == self.before(edge) {
                self.taken.remove(edge);
            }
        }
        if self.taken.len() > STEPS_KEPT {
            self.forget_before(self.taken[STEPS_KEPT / 4].0);
        }
    }

    /// Index of the step at that time, which is made where there is none.
    fn edge(&mut self, time: u64) -> usize {
        let step = self.taken.partition_point(|&(at, _)| at < time);
        if self.taken.get(step).is_none_or(|&(at, _)| at != time) {
            self.taken.insert(step, (time, self.before(step)));
        }
        step
    }

    /// Says that nothing will be placed before `time` any more.
    pub(super) fn forget_before(&mut self, time: u64) {
        if time <= self.floor {
            return;
        }
        self.floor = time;
        let step = self.after(time);
        let taken = self.before(step);
        self.taken.drain(..step);
        // Otherwise the first step would be no change.
        if taken != Load::default() {
            self.taken.push_front((time, taken));
        }
    }
}

/// An engine that does one thing at a time.
///
/// Operations are placed in the order in which they execute, each into the first gap that fits
/// (*backfill*): an operation that executes later may start earlier, as it would on a device where
/// its engine stood idle meanwhile.
#[derive(Debug, Default)]
pub(super) struct Engine {
    taken: Steps,
}

impl Engine {
    /// Takes the engine for `ns`, `earliest` or later: start and end. Nothing is placed before
    /// `floor` from here on.
    pub(super) fn place(&mut self, earliest: u64, ns: u64, floor: u64) -> (u64, u64) {
        let one = Load::new(1, 0);
        self.taken.forget_before(floor);
        let start = self.taken.first_fit(earliest, ns, one, one);
        let end = start.saturating_add(ns);
        self.taken.add(start, end, one);
        (start, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Load = Load { operations: 1, amount: 0 };

    #[test]
    fn an_engine_does_one_thing_after_the_other() {
        let mut engine = Engine::default();
        assert_eq!(engine.place(0, 10, 0), (0, 10));
        assert_eq!(engine.place(0, 10, 0), (10, 20));
        assert_eq!(engine.place(5, 1, 0), (20, 21));
    }

    #[test]
    fn a_later_operation_fills_the_first_gap_that_fits() {
        let mut engine = Engine::default();
        engine.place(0, 10, 0);
        engine.place(14, 6, 0);
        engine.place(30, 10, 0);
        assert_eq!(engine.place(0, 5, 0), (20, 25), "4 ns of gap are too short");
        assert_eq!(engine.place(0, 4, 0), (10, 14));
        assert_eq!(engine.place(0, 6, 0), (40, 46));
        assert_eq!(engine.place(0, 5, 0), (25, 30));
    }

    #[test]
    fn back_to_back_operations_take_one_step_of_record() {
        let mut engine = Engine::default();
        for _ in 0..1_000 {
            engine.place(0, 3, 0);
        }
        assert_eq!(engine.taken.taken, VecDeque::from([(0, ONE), (3_000, Load::default())]));
    }

    #[test]
    fn what_is_forgotten_does_not_change_what_is_placed_later() {
        let mut steps = Steps::default();
        steps.add(0, 100, ONE);
        steps.add(10, 20, ONE);
        steps.add(50, 60, ONE);
        steps.forget_before(55);
        let two = Load::new(2, 0);
        assert_eq!(steps.taken, VecDeque::from([(55, two), (60, ONE), (100, Load::default())]));
        assert_eq!(steps.obstacle(55, 60, ONE, two), Some(60));
        steps.forget_before(500);
        assert!(steps.taken.is_empty());
    }

    #[test]
    fn the_record_is_bounded_where_gaps_never_close() {
        let mut engine = Engine::default();
        for i in 0..100_000 {
            assert_eq!(engine.place(i * 10, 5, 0), (i * 10, i * 10 + 5));
            assert!(engine.taken.taken.len() <= STEPS_KEPT);
        }
        assert!(engine.place(0, 5, 0).0 > 900_000, "forgotten gaps are not filled");
    }

    #[test]
    fn an_operation_without_cost_takes_nothing() {
        let mut engine = Engine::default();
        assert_eq!(engine.place(7, 0, 0), (7, 7));
        assert!(engine.taken.taken.is_empty());
    }
}
