//! Blocks of device memory that no buffer has, by size. Pure.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::driver::DevicePtr;
use crate::reactor::{LaneId, Ticket};

/// The operations, the last of each lane, that may still touch a block.
pub(crate) type Users = SmallVec<[Ticket; 2]>;

/// A block that no buffer has.
#[derive(Debug)]
pub(super) struct Idle {
    pub(super) ptr: DevicePtr,
    pub(super) bytes: u64,
    /// Where the driver was asked for it.
    pub(super) home: LaneId,
    pub(super) users: Users,
}

/// A class is looked through for this many blocks from either end: those put last, whose lanes are
/// likely to ask, and those put first, whose users are likely to be finished.
const LOOKED_AT: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Cache {
    /// In the order in which they were put; no class is empty.
    classes: BTreeMap<u64, Vec<Idle>>,
    /// Of all blocks.
    bytes: u64,
}

impl Cache {
    pub(super) fn put(&mut self, block: Idle) {
        self.bytes += block.bytes;
        self.classes.entry(block.bytes).or_default().push(block);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn has(&self, class: u64) -> bool {
        self.classes.contains_key(&class)
    }

    /// A block of `class` bytes of whose users all are `gone`.
    pub(super) fn take(&mut self, class: u64, gone: impl Fn(Ticket) -> bool) -> Option<Idle> {
        let blocks = self.classes.get(&class)?;
        let is_free = |at: &usize| blocks[*at].users.iter().all(|user| gone(*user));
        let from_the_end = (0..blocks.len()).rev().take(LOOKED_AT);
        let others = 0..blocks.len().saturating_sub(LOOKED_AT).min(LOOKED_AT);
        let at = from_the_end.chain(others).find(is_free)?;
        self.remove(class, at)
    }

    /// The block of `class` bytes that was put first, whoever uses it.
    pub(super) fn take_first(&mut self, class: u64) -> Option<Idle> {
        self.remove(class, 0)
    }

    fn remove(&mut self, class: u64, at: usize) -> Option<Idle> {
        let blocks = self.classes.get_mut(&class)?;
        if at >= blocks.len() {
            return None;
        }
        let block = blocks.remove(at);
        if blocks.is_empty() {
            self.classes.remove(&class);
        }
        self.bytes -= block.bytes;
        Some(block)
    }

    /// Takes out blocks of at least `bytes` bytes together, if there are as many that `fit`: the
    /// smallest that is enough, else the largest ones; and all that fit where they are not enough.
    pub(super) fn take_bytes(&mut self, bytes: u64, fit: impl Fn(&Idle) -> bool) -> Vec<Idle> {
        let first_in = |blocks: &Vec<Idle>| blocks.iter().position(&fit);
        let enough = self.classes.range(bytes..);
        let smallest =
            enough.filter_map(|(class, blocks)| Some((*class, first_in(blocks)?))).next();
        if let Some((class, at)) = smallest {
            return self.remove(class, at).into_iter().collect();
        }
        let mut taken = Vec::new();
        let mut missing = bytes;
        let mut class = u64::MAX;
        while missing > 0 {
            let Some((&next, blocks)) = self.classes.range(..class).next_back() else { break };
            match first_in(blocks).and_then(|at| self.remove(next, at)) {
                Some(block) => {
                    missing = missing.saturating_sub(block.bytes);
                    taken.push(block);
                    // Once more of this class.
                    class = next + 1;
                }
                None => class = next,
            }
        }
        taken
    }

    /// Takes out blocks that `fit`, the largest first, of at most `bytes` bytes together.
    pub(super) fn take_up_to(&mut self, bytes: u64, fit: impl Fn(&Idle) -> bool) -> Vec<Idle> {
        let (mut taken, mut left) = (Vec::new(), bytes);
        for (class, blocks) in self.classes.iter_mut().rev() {
            let taken_now = blocks.extract_if(.., |block| {
                let takes = *class <= left && fit(block);
                left -= if takes { *class } else { 0 };
                takes
            });
            taken.extend(taken_now);
        }
        self.bytes -= bytes - left;
        self.classes.retain(|_, blocks| !blocks.is_empty());
        taken
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Idle> {
        self.classes.values().flatten()
    }

    /// Forgets the users that are `gone`.
    pub(super) fn sweep(&mut self, gone: impl Fn(Ticket) -> bool) {
        for block in self.classes.values_mut().flatten() {
            block.users.retain(|user| !gone(*user));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(ptr: u64, bytes: u64, users: &[u64]) -> Idle {
        let lane = LaneId::new(0, 1);
        let users = users.iter().map(|&seq| Ticket { lane, seq }).collect();
        Idle { ptr: DevicePtr(ptr), bytes, home: lane, users }
    }

    fn ptrs(blocks: &[Idle]) -> Vec<u64> {
        blocks.iter().map(|block| block.ptr.0).collect()
    }

    #[test]
    fn the_last_block_of_a_class_comes_first_if_nobody_uses_it() {
        let mut cache = Cache::default();
        cache.put(block(1, 512, &[]));
        cache.put(block(2, 512, &[1]));
        cache.put(block(3, 512, &[7]));
        cache.put(block(4, 256, &[]));
        let mut take = |done: u64| cache.take(512, |user| user.seq <= done).map(|got| got.ptr.0);
        assert_eq!(
            [take(3), take(0), take(3), take(7), take(7)],
            [Some(2), Some(1), None, Some(3), None]
        );
        assert_eq!(cache.bytes(), 256);
        assert!(cache.has(256) && !cache.has(512));
    }

    #[test]
    fn among_many_in_use_one_that_was_put_first_is_found() {
        let mut cache = Cache::default();
        for ptr in 0..100 {
            cache.put(block(ptr, 256, &[ptr]));
        }
        assert_eq!(cache.take(256, |user| user.seq <= 3).map(|got| got.ptr.0), Some(0));
    }

    #[test]
    fn the_smallest_that_is_enough_is_taken_else_the_largest() {
        let mut cache = Cache::default();
        for (ptr, bytes) in [(1, 256), (2, 1024), (3, 2048), (4, 512), (5, 512)] {
            cache.put(block(ptr, bytes, &[]));
        }
        assert_eq!(ptrs(&cache.take_bytes(600, |_| true)), [2]);
        assert_eq!(ptrs(&cache.take_bytes(2600, |_| true)), [3, 4, 5]);
        assert_eq!(ptrs(&cache.take_bytes(2600, |_| true)), [1]);
        assert_eq!(ptrs(&cache.take_bytes(1, |_| true)), []);
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn blocks_that_do_not_fit_stay() {
        let mut cache = Cache::default();
        cache.put(block(1, 1024, &[9]));
        cache.put(block(2, 512, &[]));
        let unused = |block: &Idle| block.users.is_empty();
        assert_eq!(ptrs(&cache.take_bytes(600, unused)), [2]);
        cache.sweep(|user| user.seq <= 9);
        assert_eq!(ptrs(&cache.take_bytes(600, unused)), [1]);
    }
}
