//! Device memory that was freed, until its addresses are handed out again.

use std::collections::BTreeMap;
use std::ops::Range;

use super::report::{RaceAccess, RacedMemory};

/// Of the freed ranges that are not handed out again, the latest so many are remembered, and at
/// times twice as many. A device that hands its addresses out again has as many as it had live
/// blocks at once.
const FREES_KEPT: u64 = 32_768;

/// What was freed, whatever became of it since: using it is wrong on every run.
#[derive(Debug, Default)]
pub(super) struct Freed {
    /// By address. They do not overlap, with each other or with what is allocated.
    ranges: BTreeMap<u64, FreedRange>,
}

/// Bytes of a block that was freed, and none of which is another block's yet.
#[derive(Clone, Debug)]
pub(super) struct FreedRange {
    end: u64,
    /// Which end of something it was: a later one has a higher number.
    free: u64,
    /// The whole block, as it was.
    pub(super) memory: RacedMemory,
    /// Its free.
    pub(super) by: RaceAccess,
}

impl Freed {
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// The bytes are free from here on.
    pub(super) fn add(&mut self, memory: RacedMemory, by: RaceAccess, free: u64) {
        let start = memory.ptr.0;
        self.ranges.insert(start, FreedRange { end: start + memory.bytes, free, memory, by });
        if self.ranges.len() as u64 > 2 * FREES_KEPT {
            self.ranges.retain(|_, range| range.free + FREES_KEPT > free);
        }
    }

    /// The free was none.
    pub(super) fn take_back(&mut self, free: u64, start: u64) {
        if self.ranges.get(&start).is_some_and(|range| range.free == free) {
            self.ranges.remove(&start);
        }
    }

    /// The bytes are another block's.
    pub(super) fn allocated(&mut self, range: Range<u64>) {
        let starts: Vec<u64> = self.over(&range).map(|(start, _)| start).collect();
        for start in starts {
            let Some(cut) = self.ranges.remove(&start) else { continue };
            if range.end < cut.end {
                self.ranges.insert(range.end, cut.clone());
            }
            if start < range.start {
                self.ranges.insert(start, FreedRange { end: range.start, ..cut });
            }
        }
    }

    /// All that have bytes in `range`, each with where it begins and ends.
    pub(super) fn over(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, &FreedRange)> {
        let before = self.ranges.range(..range.start).next_back();
        let before = before.filter(|(_, freed)| freed.end > range.start);
        let range = range.start..range.end.max(range.start);
        before.into_iter().chain(self.ranges.range(range)).map(|(&start, freed)| (start, freed))
    }
}

impl FreedRange {
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn free(&self) -> u64 {
        self.free
    }
}
