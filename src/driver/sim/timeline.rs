//! When the simulated device's engines are taken. Pure: no lock, no thread, no clock of its own.
//!
//! An engine has a number of *slots* (one for a copy engine, as many as can run at once for
//! kernels) and knows how many are taken over time. Operations are placed in the order in which
//! they execute, each into the first gap that fits (*backfill*): an operation that executes later
//! may start earlier, as it would on a device where its engine stood idle meanwhile.
//!
//! The record is bounded in two ways, both exact functions of the calls made. The caller says
//! before which time nothing can start any more ([`Engine::forget_before`]). Where that does not
//! help, the oldest quarter of the record is dropped, and with it the gaps in that quarter:
//! nothing is placed there any more.

use std::collections::BTreeMap;

/// Changes in the number of slots taken that an engine remembers.
const STEPS_KEPT: usize = 4_096;

/// What can run beside each other on the simulated device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SimEngine {
    /// Copies from host to device.
    CopyH2D,
    /// Copies from device to host.
    CopyD2H,
    /// Copies within the device, and fills.
    CopyD2D,
    /// Kernels.
    Compute,
}

/// How much of its engine an operation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    One,
    /// Runs alone on the engine.
    All,
}

/// All engines of one device.
#[derive(Debug)]
pub(super) struct Engines {
    h2d: Engine,
    d2h: Engine,
    d2d: Engine,
    compute: Engine,
}

impl Engines {
    pub(super) fn new(concurrent_kernels: u32) -> Self {
        Engines {
            h2d: Engine::new(1),
            d2h: Engine::new(1),
            d2d: Engine::new(1),
            compute: Engine::new(concurrent_kernels.max(1)),
        }
    }

    /// Takes `share` of an engine for `cost` ns, `earliest` or later: start and end.
    pub(super) fn place(
        &mut self,
        engine: SimEngine,
        share: Share,
        earliest: u64,
        cost: u64,
    ) -> (u64, u64) {
        let engine = match engine {
            SimEngine::CopyH2D => &mut self.h2d,
            SimEngine::CopyD2H => &mut self.d2h,
            SimEngine::CopyD2D => &mut self.d2d,
            SimEngine::Compute => &mut self.compute,
        };
        let slots = match share {
            Share::One => 1,
            Share::All => engine.slots,
        };
        engine.place(earliest, cost, slots)
    }

    /// Says that nothing will be placed before `time` any more.
    pub(super) fn forget_before(&mut self, time: u64) {
        for engine in [&mut self.h2d, &mut self.d2h, &mut self.d2d, &mut self.compute] {
            engine.forget_before(time);
        }
    }
}

#[derive(Debug)]
struct Engine {
    slots: u32,
    /// Slots taken from each key until the next; none before the first. Neighbours differ, and
    /// the last is 0, since every operation ends.
    taken: BTreeMap<u64, u32>,
    /// Nothing is placed before it: what was taken there is forgotten.
    floor: u64,
}

impl Engine {
    fn new(slots: u32) -> Self {
        Engine { slots, taken: BTreeMap::new(), floor: 0 }
    }

    /// `slots` is at most the engine's.
    fn place(&mut self, earliest: u64, cost: u64, slots: u32) -> (u64, u64) {
        let mut start = earliest.max(self.floor);
        while let Some(free_again) = self.obstacle(start, start.saturating_add(cost), slots) {
            start = free_again;
        }
        let end = start.saturating_add(cost);
        if start < end {
            self.take(start, end, slots);
            if self.taken.len() > STEPS_KEPT
                && let Some(&cut) = self.taken.keys().nth(STEPS_KEPT / 4)
            {
                self.forget_before(cut);
            }
        }
        (start, end)
    }

    /// End of the first stretch in `start..end` that leaves less than `slots`.
    fn obstacle(&self, start: u64, end: u64, slots: u32) -> Option<u64> {
        let first = self.step_at(start).map_or(start, |(at, _)| at);
        let mut steps = self.taken.range(first..end).peekable();
        while let Some((_, &taken)) = steps.next() {
            if taken + slots > self.slots {
                // The step after it may lie beyond `end`, where the iterator does not reach.
                let until = match steps.peek() {
                    Some(&(&at, _)) => Some(at),
                    None => self.taken.range(end..).next().map(|(&at, _)| at),
                };
                return until;
            }
        }
        None
    }

    fn take(&mut self, start: u64, end: u64, slots: u32) {
        for edge in [start, end] {
            let taken = self.taken_at(edge);
            self.taken.entry(edge).or_insert(taken);
        }
        for (_, taken) in self.taken.range_mut(start..end) {
            *taken += slots;
        }
        // Inside, neighbours differ as before; at the edges they may have become equal.
        for edge in [start, end] {
            let before = self.taken.range(..edge).next_back().map_or(0, |(_, &taken)| taken);
            if self.taken.get(&edge) == Some(&before) {
                self.taken.remove(&edge);
            }
        }
    }

    fn forget_before(&mut self, time: u64) {
        if time <= self.floor {
            return;
        }
        let taken = self.taken_at(time);
        self.taken = self.taken.split_off(&time);
        if taken > 0 {
            self.taken.insert(time, taken);
        } else if self.taken.get(&time) == Some(&0) {
            self.taken.remove(&time);
        }
        self.floor = time;
    }

    fn step_at(&self, time: u64) -> Option<(u64, u32)> {
        self.taken.range(..=time).next_back().map(|(&at, &taken)| (at, taken))
    }

    fn taken_at(&self, time: u64) -> u32 {
        self.step_at(time).map_or(0, |(_, taken)| taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slot_runs_one_after_the_other() {
        let mut engine = Engine::new(1);
        assert_eq!(engine.place(0, 10, 1), (0, 10));
        assert_eq!(engine.place(0, 10, 1), (10, 20));
        assert_eq!(engine.place(5, 1, 1), (20, 21));
    }

    #[test]
    fn a_later_operation_fills_the_first_gap_that_fits() {
        let mut engine = Engine::new(1);
        engine.place(0, 10, 1);
        engine.place(14, 6, 1);
        engine.place(30, 10, 1);
        assert_eq!(engine.place(0, 5, 1), (20, 25), "4 ns of gap are too short");
        assert_eq!(engine.place(0, 4, 1), (10, 14));
        assert_eq!(engine.place(0, 6, 1), (40, 46));
        assert_eq!(engine.place(0, 5, 1), (25, 30));
    }

    #[test]
    fn slots_run_beside_each_other_and_an_exclusive_operation_alone() {
        let mut engine = Engine::new(2);
        assert_eq!(engine.place(0, 10, 1), (0, 10));
        assert_eq!(engine.place(0, 20, 1), (0, 20));
        assert_eq!(engine.place(0, 5, 1), (10, 15));
        assert_eq!(engine.place(0, 5, 2), (20, 25));
        assert_eq!(engine.place(0, 7, 1), (25, 32), "15..20 is too short and 20..25 taken");
        assert_eq!(engine.place(0, 5, 1), (15, 20));
    }

    #[test]
    fn back_to_back_operations_take_one_step_of_record() {
        let mut engine = Engine::new(1);
        for _ in 0..1_000 {
            engine.place(0, 3, 1);
        }
        assert_eq!(engine.taken, BTreeMap::from([(0, 1), (3_000, 0)]));
    }

    #[test]
    fn what_is_forgotten_does_not_change_what_is_placed_later() {
        let mut engine = Engine::new(2);
        engine.place(0, 100, 1);
        engine.place(10, 10, 1);
        engine.place(50, 10, 1);
        engine.forget_before(55);
        assert_eq!(engine.taken, BTreeMap::from([(55, 2), (60, 1), (100, 0)]));
        assert_eq!(engine.place(55, 5, 1), (60, 65));
        engine.forget_before(500);
        assert!(engine.taken.is_empty());
    }

    #[test]
    fn the_record_is_bounded_where_gaps_never_close() {
        let mut engine = Engine::new(1);
        for i in 0..100_000 {
            assert_eq!(engine.place(i * 10, 5, 1), (i * 10, i * 10 + 5));
            assert!(engine.taken.len() <= STEPS_KEPT);
        }
        assert!(engine.place(0, 5, 1).0 > 900_000, "forgotten gaps are not filled");
    }

    #[test]
    fn an_operation_without_cost_takes_nothing() {
        let mut engine = Engine::new(1);
        assert_eq!(engine.place(7, 0, 1), (7, 7));
        assert!(engine.taken.is_empty());
    }
}
