//! How much device memory some of a program may have.

use std::sync::Arc;

use crate::sync::Mutex;

/// A limit on the device memory of buffers, and how much of it is taken.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    /// Leaf lock.
    taken: Mutex<Taken>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Taken {
    pub(super) in_use: u64,
    /// The most that it was.
    pub(super) high_water: u64,
}

impl Budget {
    pub(super) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Budget { limit, taken: Mutex::default() })
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    pub(super) fn taken(&self) -> Taken {
        *self.taken.lock()
    }

    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.sum(self.taken().in_use, bytes).is_some()
    }

    fn sum(&self, in_use: u64, bytes: u64) -> Option<u64> {
        in_use.checked_add(bytes).filter(|sum| *sum <= self.limit)
    }

    /// Takes `bytes` of it; `Err` tells how much is taken, where that leaves too little.
    pub(super) fn charge(self: &Arc<Self>, bytes: u64) -> Result<Charge, u64> {
        let mut taken = self.taken.lock();
        taken.in_use = self.sum(taken.in_use, bytes).ok_or(taken.in_use)?;
        taken.high_water = taken.high_water.max(taken.in_use);
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
        self.budget.taken.lock().in_use -= self.bytes;
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
        let Taken { in_use, high_water } = budget.taken();
        assert_eq!((in_use, high_water), (40, 100));
        drop(second);
        assert_eq!(budget.taken().in_use, 0);
    }
}
