//! Who last touched which bytes of one block of memory. Pure.

use std::collections::BTreeMap;
use std::ops::Range;

use smallvec::SmallVec;

use super::clock::{Clock, Host};
use crate::driver::rows::Rows;

/// An access that was made, as far as a report needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    /// The stream's index.
    pub(super) stream: u32,
    /// Which operation at that index: only grows, whichever stream has the index.
    pub(super) number: u64,
    /// Which operation of the stream: 1 is the first.
    pub(super) nth: u64,
    pub(super) name: &'static str,
    /// All that it touches, of the block and elsewhere.
    pub(super) rows: Rows,
    pub(super) writes: bool,
}

/// What comes before the operation that is looked at.
pub(super) struct Before<'a> {
    /// `None`: the host itself.
    pub(super) stream: Option<(u32, &'a Clock)>,
    pub(super) host: &'a Host,
}

impl Before<'_> {
    fn has(&self, access: &Access) -> bool {
        self.host.knows(access.stream, access.number)
            || self.stream.is_some_and(|(index, clock)| {
                access.stream == index || clock.of(access.stream) >= access.number
            })
    }
}

/// Bytes with the same history.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    end: u64,
    /// The last one of all these bytes.
    write: Option<Access>,
    /// Reads since, the latest of each stream, and writes of rows, which touch some of the bytes only:
    /// the latest of each stream to the same rows.
    since: SmallVec<[Access; 2]>,
}

/// The accesses to a block that something enqueued later could still conflict with: none that the
/// host knows to be finished, once [`Shadow::forget_known`] was called.
#[derive(Clone, Debug, Default)]
pub(super) struct Shadow {
    /// By their first byte; they do not overlap. What no piece has, nobody touches.
    pieces: BTreeMap<u64, Piece>,
}

impl Shadow {
    /// How much there is to look through.
    pub(super) fn len(&self) -> usize {
        self.pieces.values().map(|piece| 1 + piece.since.len()).sum()
    }

    /// Tells `conflict` of every access to bytes of `rows` inside `range` that an access ordered
    /// after `before`, and nothing else, conflicts with, and of the first bytes that both touch.
    pub(super) fn check(
        &self,
        rows: &Rows,
        range: &Range<u64>,
        writes: bool,
        before: &Before<'_>,
        mut conflict: impl FnMut(&Access, Range<u64>),
    ) {
        if range.is_empty() {
            return;
        }
        let first = self.pieces.range(..=range.start).next_back().map_or(range.start, |p| *p.0);
        for (&start, piece) in self.pieces.range(first..range.end) {
            let both = start.max(range.start)..piece.end.min(range.end);
            // A writer that is not ordered says it all: readers since came after it, or are its own
            // races.
            let since = piece.since.iter().filter(|access| writes || access.writes);
            for access in piece.write.iter().chain(since) {
                if !before.has(access)
                    && let Some(bytes) = access.rows.meet(rows, &both)
                {
                    conflict(access, bytes);
                }
            }
        }
    }

    /// Notes an access to what it touches inside `range`.
    pub(super) fn note(&mut self, access: Access, range: Range<u64>, host: &Host) {
        if range.is_empty() {
            return;
        }
        self.split(range.start);
        self.split(range.end);
        if access.writes && access.rows.is_one() {
            while let Some((&start, _)) = self.pieces.range(range.clone()).next() {
                self.pieces.remove(&start);
            }
            let piece = Piece { end: range.end, write: Some(access), since: SmallVec::new() };
            self.pieces.insert(range.start, piece);
            return;
        }
        let is_replaced = |old: &Access| {
            let covered = access.rows.is_one() || access.rows == old.rows;
            old.stream == access.stream && old.writes == access.writes && covered
        };
        let mut gaps = SmallVec::<[(u64, u64); 2]>::new();
        let mut at = range.start;
        for (&start, piece) in self.pieces.range_mut(range.clone()) {
            if at < start {
                gaps.push((at, start));
            }
            at = piece.end;
            piece.since.retain(|old| !is_replaced(old) && !host.knows(old.stream, old.number));
            piece.since.push(access);
        }
        if at < range.end {
            gaps.push((at, range.end));
        }
        for (start, end) in gaps {
            let since = SmallVec::from_slice(&[access]);
            self.pieces.insert(start, Piece { end, write: None, since });
        }
    }

    /// Makes a piece that has `at` inside two.
    fn split(&mut self, at: u64) {
        if let Some((_, piece)) = self.pieces.range_mut(..at).next_back()
            && piece.end > at
        {
            let rest = piece.clone();
            piece.end = at;
            self.pieces.insert(at, rest);
        }
    }

    /// Lets go of accesses that the host knows to be finished.
    pub(super) fn forget_known(&mut self, host: &Host) {
        self.pieces.retain(|_, piece| {
            piece.write = piece.write.filter(|write| !host.knows(write.stream, write.number));
            piece.since.retain(|access| !host.knows(access.stream, access.number));
            piece.write.is_some() || !piece.since.is_empty()
        });
    }
}
