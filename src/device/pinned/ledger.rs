//! Which blocks of page-locked memory there are, and how many bytes in what state.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::block::PinnedBlock;
use super::stats::PinnedStats;
use crate::driver::HostKind;
use crate::reactor::Ticket;

/// Smallest block.
const SMALLEST: usize = 4096;

/// The block size for `bytes`: four classes to each doubling.
pub(super) fn class_of(bytes: usize) -> Option<usize> {
    let bytes = bytes.max(SMALLEST);
    let step = (1usize << bytes.ilog2()) / 4;
    bytes.checked_next_multiple_of(step)
}

#[derive(Debug)]
pub(super) struct Retiring {
    pub(super) block: PinnedBlock,
    /// The block is idle when all these are finished.
    pub(super) users: SmallVec<[Ticket; 2]>,
}

/// The blocks of one device that no buffer has, and the bytes of all there are.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Nothing touches these.
    idle: BTreeMap<(HostKind, usize), Vec<PinnedBlock>>,
    /// Dropped while the device may still have worked on them.
    retiring: Vec<Retiring>,
    /// The driver did not take them back.
    unreleased: Vec<PinnedBlock>,
    /// Bytes that blocks which are being made will have.
    reserved: usize,
    stats: PinnedStats,
}

/// There is no room for a block: what the limit leaves is less.
pub(super) struct NoRoom;

impl Ledger {
    pub(super) fn new(limit: Option<usize>) -> Self {
        Ledger { stats: PinnedStats { limit, ..PinnedStats::default() }, ..Ledger::default() }
    }

    pub(super) fn stats(&self) -> PinnedStats {
        self.stats
    }

    /// Bytes of all blocks, those that are being made with them.
    fn all(&self) -> usize {
        self.stats.locked().saturating_add(self.reserved)
    }

    /// An idle block of just that class, for a user.
    pub(super) fn take(&mut self, kind: HostKind, class: usize) -> Option<PinnedBlock> {
        let blocks = self.idle.get_mut(&(kind, class))?;
        let block = blocks.pop()?;
        if blocks.is_empty() {
            self.idle.remove(&(kind, class));
        }
        self.stats.idle -= class;
        self.stats.in_use += class;
        Some(block)
    }

    /// The smallest idle block that is large enough, for a user.
    pub(super) fn take_larger(&mut self, kind: HostKind, class: usize) -> Option<PinnedBlock> {
        let (&(_, larger), _) = self.idle.range((kind, class)..=(kind, usize::MAX)).next()?;
        self.take(kind, larger)
    }

    /// Room for a block that is about to be made: [`Ledger::made`] or [`Ledger::not_made`] comes next.
    pub(super) fn reserve(&mut self, class: usize) -> Result<(), NoRoom> {
        let all = self.all().checked_add(class).ok_or(NoRoom)?;
        if self.stats.limit.is_some_and(|limit| all > limit) {
            return Err(NoRoom);
        }
        self.reserved += class;
        Ok(())
    }

    pub(super) fn made(&mut self, class: usize) {
        self.reserved -= class;
        self.stats.in_use += class;
        self.stats.high_water = self.stats.high_water.max(self.stats.locked());
    }

    pub(super) fn not_made(&mut self, class: usize) {
        self.reserved -= class;
    }

    /// How few idle bytes may be left for there to be room for such a block; `None` where freeing does not
    /// make it.
    pub(super) fn idle_beside(&self, class: usize) -> Option<usize> {
        let excess = match self.stats.limit {
            None => class.min(self.stats.idle),
            Some(limit) => self.all().checked_add(class)?.saturating_sub(limit),
        };
        self.stats.idle.checked_sub(excess).filter(|_| excess > 0)
    }

    /// A user's block, which nothing touches.
    pub(super) fn is_idle(&mut self, block: PinnedBlock) {
        let bytes = block.bytes();
        self.stats.in_use -= bytes;
        self.stats.idle += bytes;
        self.idle.entry((block.kind(), bytes)).or_default().push(block);
    }

    /// A user's block, which may still be touched.
    pub(super) fn is_retiring(&mut self, retiring: Retiring) {
        self.stats.in_use -= retiring.block.bytes();
        self.stats.in_flight += retiring.block.bytes();
        self.retiring.push(retiring);
    }

    /// Those that may still be touched; they come back by [`Ledger::looked_at`].
    pub(super) fn look_at_retiring(&mut self) -> Vec<Retiring> {
        std::mem::take(&mut self.retiring)
    }

    /// Of those, which are touched no more, and which may still be.
    pub(super) fn looked_at(&mut self, done: Vec<Retiring>, busy: Vec<Retiring>) {
        self.retiring.extend(busy);
        for Retiring { block, .. } in done {
            self.stats.in_flight -= block.bytes();
            self.stats.in_use += block.bytes();
            self.is_idle(block);
        }
    }

    /// A block to be freed, where more than `keep` bytes are idle: the smallest that gets there alone,
    /// else the largest. Counts as idle until [`Ledger::freed`] or [`Ledger::is_unreleased`].
    pub(super) fn take_beyond(&mut self, keep: usize) -> Option<PinnedBlock> {
        let excess = self.stats.idle.checked_sub(keep).filter(|&excess| excess > 0)?;
        let classes = || self.idle.keys().copied();
        let enough =
            classes().filter(|&(_, class)| class >= excess).min_by_key(|&(_, class)| class);
        let of = enough.or_else(|| classes().max_by_key(|&(_, class)| class))?;
        let blocks = self.idle.get_mut(&of)?;
        let block = blocks.pop();
        if blocks.is_empty() {
            self.idle.remove(&of);
        }
        block
    }

    /// An idle block is gone.
    pub(super) fn freed(&mut self, bytes: usize) {
        self.stats.idle -= bytes;
    }

    /// The driver did not take an idle block back.
    pub(super) fn is_unreleased(&mut self, block: PinnedBlock) {
        self.stats.idle -= block.bytes();
        self.stats.unreleased += block.bytes();
        self.unreleased.push(block);
    }

    /// Those that the driver did not take back, to be tried again: they count as idle again.
    pub(super) fn take_unreleased(&mut self) -> Vec<PinnedBlock> {
        let blocks = std::mem::take(&mut self.unreleased);
        self.stats.idle += self.stats.unreleased;
        self.stats.unreleased = 0;
        blocks
    }

    pub(super) fn registered(&mut self, bytes: usize) {
        self.stats.registered += bytes;
    }

    pub(super) fn unregistered(&mut self, bytes: usize) {
        self.stats.registered -= bytes;
    }

    /// All blocks, for closing the device.
    pub(super) fn drain(&mut self) -> Vec<PinnedBlock> {
        let idle = std::mem::take(&mut self.idle).into_values().flatten();
        let retiring = std::mem::take(&mut self.retiring).into_iter().map(|r| r.block);
        idle.chain(retiring).chain(std::mem::take(&mut self.unreleased)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_class_is_at_most_a_quarter_larger_than_asked() {
        for bytes in [1, 4096, 4097, 5000, 1 << 20, (1 << 20) + 1, 16 << 20] {
            let class = class_of(bytes).unwrap_or(0);
            assert!(class >= bytes);
            assert!(bytes < SMALLEST || class <= bytes + bytes / 4 + 1, "{bytes}: {class}");
        }
        assert_eq!(class_of(usize::MAX), None);
    }

    #[test]
    fn room_is_what_the_limit_leaves_beside_what_is_being_made() {
        let mut ledger = Ledger::new(Some(10_000));
        assert!(ledger.reserve(6_000).is_ok());
        assert!(ledger.reserve(4_001).is_err());
        assert!(ledger.reserve(4_000).is_ok());
        ledger.not_made(6_000);
        ledger.made(4_000);
        let stats = ledger.stats();
        assert_eq!((stats.in_use, stats.high_water), (4_000, 4_000), "what was not made never was");
        assert!(ledger.reserve(6_001).is_err());
        assert!(ledger.reserve(6_000).is_ok());
    }
}
