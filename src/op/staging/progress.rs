//! How far a transfer is.

use std::fmt;
use std::sync::Arc;

use crate::reactor::Completion;
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How far a transfer of ordinary memory is: a handle, cheap to clone, for whoever shows it while
/// another task awaits the future. Outlives the future.
#[derive(Clone)]
pub struct Progress {
    of: Of,
    bytes: u64,
}

#[derive(Clone)]
enum Of {
    Pieces(Arc<Counts>),
    /// One copy, or several that were enqueued together.
    Whole(Arc<Completion>),
    /// It was refused.
    Nothing,
}

/// What the pieces of a transfer are counted in.
#[derive(Debug, Default)]
pub(super) struct Counts {
    bytes_done: AtomicU64,
}

impl Counts {
    pub(super) fn add(&self, bytes: usize) {
        self.bytes_done.fetch_add(bytes as u64, Relaxed);
    }
}

impl Progress {
    pub(super) fn of_pieces(counts: &Arc<Counts>, bytes: u64) -> Self {
        Progress { of: Of::Pieces(counts.clone()), bytes }
    }

    pub(super) fn of_whole(copied: &Completion, bytes: u64) -> Self {
        Progress { of: Of::Whole(Arc::new(copied.of_same())), bytes }
    }

    pub(super) fn of_nothing(bytes: u64) -> Self {
        Progress { of: Of::Nothing, bytes }
    }

    /// Bytes that are where they are to be, as far as is known: asks nobody. Never goes back, and stays
    /// behind [`bytes`](Progress::bytes) where the transfer fails or is dropped.
    pub fn bytes_done(&self) -> u64 {
        match &self.of {
            Of::Pieces(counts) => counts.bytes_done.load(Relaxed),
            Of::Whole(copied) if copied.is_known_finished() => self.bytes,
            Of::Whole(_) | Of::Nothing => 0,
        }
    }

    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress")
            .field("bytes_done", &self.bytes_done())
            .field("bytes", &self.bytes)
            .finish()
    }
}
