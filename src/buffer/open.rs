//! An access that is under way: some of its operations are enqueued already, others will be.

use std::fmt;
use std::sync::Arc;

use super::allocation::Allocation;
use crate::reactor::{LaneId, Ticket};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering::*};

/// What a record of an allocation and a transfer have in common. The record has it from when the
/// access is opened until somebody finds it closed; the transfer knows nothing of the buffer.
pub(crate) struct OpenState {
    /// Where all operations of the access go.
    lane: LaneId,
    /// `OPEN`, or how it ended: see [`Closed`].
    ended: AtomicU64,
    /// The memory, where its last handle was dropped meanwhile. `None` once it is closed.
    kept: Mutex<Option<Arc<Allocation>>>,
}

const OPEN: u64 = u64::MAX;

/// How an access ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed {
    /// Its last operation, which is on its stream. `None`: there was none, and nothing was touched.
    pub(crate) last: Option<Ticket>,
    /// Not all of it was enqueued.
    pub(crate) failed: bool,
}

impl OpenState {
    pub(crate) fn new(lane: LaneId) -> Self {
        OpenState { lane, ended: AtomicU64::new(OPEN), kept: Mutex::new(None) }
    }

    /// Ends the access: every operation of it is on its stream, the last one under number `last`. Where
    /// it has ended before, that stays.
    ///
    /// What comes back is dropped by the caller, once it holds no lock.
    #[must_use = "to be dropped where no lock is held"]
    pub(crate) fn close(&self, last: Option<u64>, failed: bool) -> Option<Arc<Allocation>> {
        let ended = last.unwrap_or(0) << 1 | u64::from(failed);
        let mut kept = self.kept.lock();
        // Release: who sees the end sees the calls that were made.
        let _ = self.ended.compare_exchange(OPEN, ended, AcqRel, Relaxed);
        kept.take()
    }

    /// `None` while it is open.
    pub(super) fn closed(&self) -> Option<Closed> {
        match self.ended.load(Acquire) {
            OPEN => None,
            ended => {
                // Tickets are numbered from 1.
                let seq = Some(ended >> 1).filter(|seq| *seq != 0);
                let last = seq.map(|seq| Ticket { lane: self.lane, seq });
                Some(Closed { last, failed: ended & 1 == 1 })
            }
        }
    }

    /// Keeps the memory until the access is closed; drops it where that is so already.
    pub(super) fn keep(&self, memory: Arc<Allocation>) {
        let mut kept = self.kept.lock();
        if self.closed().is_none() {
            *kept = Some(memory);
        } else {
            drop(kept);
            drop(memory);
        }
    }
}

impl fmt::Debug for OpenState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenState")
            .field("lane", &self.lane)
            .field("closed", &self.closed())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_ends_once_with_its_last_operation() {
        let lane = LaneId::new(0, 3);
        let open = OpenState::new(lane);
        assert_eq!(open.closed(), None);
        assert!(open.close(Some(7), true).is_none());
        assert!(open.close(Some(8), false).is_none());
        let last = Some(Ticket { lane, seq: 7 });
        assert_eq!(open.closed(), Some(Closed { last, failed: true }));
    }

    #[test]
    fn an_access_without_operations_ends_as_well() {
        let open = OpenState::new(LaneId::new(0, 0));
        assert!(open.close(None, false).is_none());
        assert_eq!(open.closed(), Some(Closed { last: None, failed: false }));
    }
}
