//! The events recorded in one stream, oldest first, and which of them is worth asking about.
//!
//! Pure: no driver, no thread, no lock. A stream is in order, so the finished recordings are always
//! a prefix; finding its end takes a query of the oldest, one of the newest, then a gallop.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::backoff::{Estimate, Estimates};

/// One event recorded in the stream.
#[derive(Debug)]
pub(super) struct Recorded<E> {
    /// All operations up to this one come before the event.
    pub(super) seq: u64,
    pub(super) event: E,
    /// What the last operation before it was, for the estimate of its duration.
    key: u32,
}

/// A stream's unfinished recordings.
#[derive(Debug)]
pub(super) struct Frontier<E> {
    /// Ascending in `seq` (two may be equal); all after the finished prefix.
    recorded: VecDeque<Recorded<E>>,
    estimates: Estimates,
    /// When the oldest recording can have begun: it was made, or its predecessor was seen to finish.
    /// What it says does not count where there is none.
    began: Option<Instant>,
    /// When a recording was last seen to be pending, since then.
    last_pending: Option<Instant>,
}

impl<E: Clone> Frontier<E> {
    pub(super) fn new() -> Self {
        Frontier {
            recorded: VecDeque::new(),
            estimates: Estimates::default(),
            began: None,
            last_pending: None,
        }
    }

    /// `now` tells the time.
    pub(super) fn push(&mut self, seq: u64, event: E, key: u32, now: impl FnOnce() -> Instant) {
        debug_assert!(self.recorded.back().is_none_or(|r| r.seq <= seq));
        if self.recorded.is_empty() {
            self.began = Some(now());
        }
        self.recorded.push_back(Recorded { seq, event, key });
    }

    pub(super) fn len(&self) -> usize {
        self.recorded.len()
    }

    /// The earliest recording that comes after operation `seq`: its index, operation and event.
    pub(super) fn covering(&self, seq: u64) -> Option<(usize, u64, E)> {
        let index = self.index(seq);
        self.recorded.get(index).map(|r| (index, r.seq, r.event.clone()))
    }

    /// Of the earliest recording that comes after operation `seq`; of none, how many there are.
    fn index(&self, seq: u64) -> usize {
        // Where each operation has an event, it is where it was to be expected.
        let first = self.recorded.front().map_or(seq, |first| first.seq);
        if let Some(expected) = seq.checked_sub(first).and_then(|at| usize::try_from(at).ok())
            && self.recorded.get(expected).is_some_and(|r| r.seq == seq)
            && (expected == 0 || self.recorded[expected - 1].seq < seq)
        {
            return expected;
        }
        self.recorded.partition_point(|r| r.seq < seq)
    }

    /// The recording at `index`, clamped to the newest.
    pub(super) fn at(&self, index: usize) -> Option<(usize, u64, E)> {
        let index = index.min(self.recorded.len().checked_sub(1)?);
        self.recorded.get(index).map(|r| (index, r.seq, r.event.clone()))
    }

    /// Takes out every recording up to `seq`, now known to be finished: their events. `now` is when that was
    /// seen; where someone was waiting, and so looking, it teaches how long the newest took.
    pub(super) fn finish(&mut self, seq: u64, now: Instant, waited_for: bool) -> SmallVec<[E; 16]> {
        let count = self.recorded.partition_point(|r| r.seq <= seq);
        let Some(newest) = count.checked_sub(1) else { return SmallVec::new() };
        if waited_for && let Some(began) = self.began {
            let running = self.last_pending.unwrap_or(began).saturating_duration_since(began);
            let finished = now.saturating_duration_since(began);
            self.estimates.learn(self.recorded[newest].key, running.min(finished), finished);
        }
        self.began = Some(now);
        self.last_pending = None;
        self.recorded.drain(..count).map(|recorded| recorded.event).collect()
    }

    /// A look found the recording it asked for pending.
    pub(super) fn pending(&mut self, now: Instant) {
        self.last_pending = Some(now);
    }

    /// How long the unfinished part of the stream is expected to run until the recording that
    /// covers `seq` is reached.
    pub(super) fn estimate(&self, seq: u64) -> Option<Estimate> {
        self.recorded.get(self.index(seq)).and_then(|recorded| self.estimates.of(recorded.key))
    }

    /// How long the unfinished part of the stream has been running, and how long that is expected
    /// to be when the recording that covers `seq` is reached. `None` where nothing covers it.
    pub(super) fn outlook(&self, seq: u64, now: Instant) -> Option<(Duration, Option<Estimate>)> {
        let recorded = self.recorded.get(self.index(seq))?;
        let elapsed = now.saturating_duration_since(self.began?);
        Some((elapsed, self.estimates.of(recorded.key)))
    }
}

/// The search for the end of the finished prefix, as a value: ask [`Gallop::next`] which index to
/// query, tell [`Gallop::answer`] what came out.
///
/// The newest first, since often all is finished; then from the oldest on in steps that double,
/// since else the end is near; then by halves.
#[derive(Debug)]
pub(super) struct Gallop {
    /// Index known to be finished.
    low: usize,
    /// Index known to be pending, or one past the newest.
    high: usize,
    step: usize,
    asked_newest: bool,
}

impl Gallop {
    /// A search after `oldest` was found finished among `len` recordings.
    pub(super) fn new(oldest: usize, len: usize) -> Self {
        Gallop { low: oldest, high: len, step: 1, asked_newest: false }
    }

    /// The next index to query, or `None` when the newest finished one is known.
    pub(super) fn next(&mut self) -> Option<usize> {
        if self.low + 1 >= self.high {
            return None;
        }
        if !self.asked_newest {
            self.asked_newest = true;
            return Some(self.high - 1);
        }
        let half = (self.high - self.low) / 2;
        Some(self.low + half.min(self.step))
    }

    /// Takes what the query of `index` said.
    pub(super) fn answer(&mut self, index: usize, finished: bool) {
        if finished {
            self.low = index;
            self.step = self.step.saturating_mul(2);
        } else {
            // Past the end, unless it was only the newest: by halves from here on.
            if index != self.high - 1 {
                self.step = usize::MAX;
            }
            self.high = index;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queries_to_find(finished: usize, len: usize) -> usize {
        let mut gallop = Gallop::new(0, len);
        let mut queries = 0;
        while let Some(index) = gallop.next() {
            queries += 1;
            assert!(index < len);
            gallop.answer(index, index < finished);
        }
        assert_eq!(gallop.low, finished - 1, "of {len}");
        queries
    }

    #[test]
    fn the_end_of_the_finished_prefix_is_found_exactly() {
        for len in 1..80 {
            for finished in 1..=len {
                let queries = queries_to_find(finished, len);
                assert!(queries <= 14, "{queries} queries for {finished} of {len}");
            }
        }
    }

    #[test]
    fn all_finished_takes_one_query_more_and_none_finished_one() {
        assert_eq!(queries_to_find(1000, 1000), 1);
        assert_eq!(queries_to_find(1, 1000), 2);
    }

    #[test]
    fn the_earliest_covering_recording_is_asked_for() {
        let now = Instant::now();
        let mut frontier = Frontier::new();
        for seq in [3, 5, 5, 9] {
            frontier.push(seq, seq * 10, 0, || now);
        }
        assert_eq!(frontier.covering(1).map(|c| c.1), Some(3));
        assert_eq!(frontier.covering(5).map(|c| (c.0, c.1)), Some((1, 5)));
        assert_eq!(frontier.covering(4).map(|c| (c.0, c.1)), Some((1, 5)));
        assert_eq!(frontier.covering(10).map(|c| c.1), None);
        assert_eq!(frontier.finish(5, now, false)[..], [30, 50, 50]);
        assert_eq!(frontier.len(), 1);
    }
}
