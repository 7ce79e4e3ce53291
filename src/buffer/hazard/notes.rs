//! What an operation noted, and what to put back if it is refused.

use smallvec::SmallVec;

use super::history::{History, Stamp};
use super::{Lanes, Mode};
use crate::buffer::region::Region;

/// What one operation noted, with what records said before: to put back if it is refused. A stack,
/// since the last note is taken back first, of parts that are not moved about.
///
/// The operation is not known to be finished before its notes are dropped, taken back or undefined.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(super) notes: SmallVec<[Note; 8]>,
    /// Of each [`Replaced::Pieces`] in turn, the pieces and what was replaced in each.
    pub(super) pieces: SmallVec<[(Region, Before); 2]>,
    /// Of each [`Before::Written`] in turn, what was there.
    histories: SmallVec<[History; 2]>,
}

/// One access as noted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Note {
    pub(super) by: Stamp,
    /// The record's count of changes with this one.
    pub(super) number: u64,
    pub(super) replaced: Replaced,
    /// What the record said before.
    pub(super) lanes: Lanes,
    pub(super) shared: bool,
}

/// What a note replaced.
#[derive(Clone, Copy, Debug)]
pub(super) enum Replaced {
    /// In all bytes of the allocation, which had one history.
    All(Before),
    /// In so many pieces with the same history each.
    Pieces(usize),
}

/// What a note replaced in a history.
#[derive(Clone, Copy, Debug)]
pub(super) enum Before {
    /// Of a write: all of it.
    Written,
    /// Of a read: the latest reader of its lane.
    Read(Option<Stamp>),
}

impl Notes {
    /// Notes an access by `by` in a history.
    #[inline(always)]
    pub(super) fn replace(&mut self, history: &mut History, mode: Mode, by: Stamp) -> Before {
        if mode.writes() {
            self.histories.push(history.write(by));
            Before::Written
        } else {
            Before::Read(history.read(by))
        }
    }

    /// Takes the last note out: with what was in which bytes before, of an allocation of `all`.
    pub(super) fn pop(&mut self, all: Region) -> Option<(Note, Vec<(Region, Was)>)> {
        let note = self.notes.pop()?;
        let pieces = match note.replaced {
            Replaced::All(before) => vec![(all, before)],
            Replaced::Pieces(count) => self.pieces.drain(self.pieces.len() - count..).collect(),
        };
        let was = |(bytes, before)| match before {
            Before::Written => Some((bytes, Was::Written(self.histories.pop()?))),
            Before::Read(reader) => Some((bytes, Was::Read(reader))),
        };
        Some((note, pieces.into_iter().rev().filter_map(was).collect()))
    }
}

/// A [`Before`] with what it is about.
pub(super) enum Was {
    Written(History),
    Read(Option<Stamp>),
}
