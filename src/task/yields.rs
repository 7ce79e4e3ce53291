//! Polls without end: of tasks that can always run, such as those that yield until another one is done.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// After so many polls in a row the devices move, as they do where no task can run.
const POLLS_PER_MOVE: u32 = 100;
/// Fewer polls in a row are never too many, however long they take.
const MOST_POLLS: u32 = 100_000;

/// Polls since no task could run, or a device woke one.
#[derive(Debug, Default)]
pub(super) struct Yields {
    polls: Cell<u32>,
    /// When the devices first moved meanwhile.
    since: Cell<Option<Instant>>,
}

impl Yields {
    /// One more. Whether the devices are to move.
    pub(super) fn count(&self) -> bool {
        self.polls.set(self.polls.get().saturating_add(1));
        self.polls.get().is_multiple_of(POLLS_PER_MOVE)
    }

    /// Whether nothing has come of them for longer than that.
    pub(super) fn are_too_many(&self, patience: Duration) -> bool {
        let since = self.since.get().unwrap_or_else(Instant::now);
        self.since.set(Some(since));
        self.polls.get() >= MOST_POLLS && since.elapsed() > patience
    }

    /// Counts from none again.
    pub(super) fn end(&self) {
        self.polls.set(0);
        self.since.set(None);
    }
}
