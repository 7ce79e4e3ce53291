//! Who waits for which operation of a lane. Pure.

use std::collections::BTreeMap;
use std::task::Waker;

use smallvec::SmallVec;

use crate::foreign::contained;

/// Names one waiter of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WaiterKey {
    seq: u64,
    id: u64,
}

/// Wakers to be woken once no lock is held.
pub(super) type Wakers = SmallVec<[Waker; 4]>;

/// The waiters of one lane, by operation.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    wakers: BTreeMap<WaiterKey, Waker>,
    last_id: u64,
}

impl Waiters {
    /// Adds a waiter for operation `seq`, or renews the waker of `key`. The waker replaced comes
    /// back, for the caller to drop once no lock is held.
    pub(super) fn register(
        &mut self,
        seq: u64,
        key: Option<WaiterKey>,
        waker: Waker,
    ) -> (WaiterKey, Option<Waker>) {
        let key = key.unwrap_or_else(|| {
            self.last_id += 1;
            WaiterKey { seq, id: self.last_id }
        });
        (key, self.wakers.insert(key, waker))
    }

    /// Removes a waiter; none is left where it was woken before.
    pub(super) fn remove(&mut self, key: WaiterKey) -> Option<Waker> {
        self.wakers.remove(&key)
    }

    /// Takes the wakers of everyone who waits for an operation up to `seq`.
    pub(super) fn take_through(&mut self, seq: u64) -> Wakers {
        let mut out = Wakers::new();
        while let Some(entry) = self.wakers.first_entry() {
            if entry.key().seq > seq {
                break;
            }
            out.push(entry.remove());
        }
        out
    }

    /// The lowest operation waited for.
    pub(super) fn lowest(&self) -> Option<u64> {
        self.wakers.first_key_value().map(|(key, _)| key.seq)
    }
}

/// Wakes each; a waker that panics does not keep the others asleep.
pub(super) fn wake_all(wakers: Wakers) {
    for waker in wakers {
        if !contained(|| waker.wake()) {
            contained(|| tracing::error!("a waker panicked; its task may not be woken"));
        }
    }
}

/// Drops a waker that is not needed any more, whatever its owner does about that.
pub(super) fn discard(waker: Option<Waker>) {
    if waker.is_some() {
        contained(|| drop(waker));
    }
}
