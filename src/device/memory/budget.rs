//! How much device memory some of a program may have.

use std::sync::Arc;

use crate::sync::atomic::{AtomicU64, Ordering::*};

/// A limit on the device memory of buffers, and how much of it is taken.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    in_use: AtomicU64,
    high_water: AtomicU64,
}

impl Budget {
    pub(super) fn new(limit: u64) -> Arc<Self> {
        let (in_use, high_water) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Budget { limit, in_use, high_water })
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    pub(super) fn in_use(&self) -> u64 {
        self.in_use.load(Acquire)
    }

    pub(super) fn high_water(&self) -> u64 {
        self.high_water.load(Relaxed)
    }

    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.in_use().checked_add(bytes).is_some_and(|sum| sum <= self.limit)
    }

    /// Takes `bytes` of it; `Err` tells how much is taken, where that leaves too little.
    pub(super) fn charge(self: &Arc<Self>, bytes: u64) -> Result<Charge, u64> {
        let within = |in_use: u64| in_use.checked_add(bytes).filter(|sum| *sum <= self.limit);
        let before = self.in_use.fetch_update(AcqRel, Acquire, within)?;
        self.high_water.fetch_max(before + bytes, Relaxed);
        Ok(Charge { budget: self.clone(), bytes })
    }
}

/// A part of a budget that is taken until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.in_use.fetch_sub(self.bytes, AcqRel);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_stays_within_the_limit_and_comes_back() {
        let budget = Budget::new(100);
        let first = budget.charge(60).unwrap();
        assert_eq!(budget.charge(41).unwrap_err(), 60);
        assert_eq!(budget.charge(u64::MAX).unwrap_err(), 60);
        assert!(budget.has_room(40) && !budget.has_room(41) && !budget.has_room(u64::MAX));
        let second = budget.charge(40).unwrap();
        drop(first);
        assert_eq!((budget.in_use(), budget.high_water()), (40, 100));
        drop(second);
        assert_eq!(budget.in_use(), 0);
    }
}
