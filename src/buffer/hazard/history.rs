//! What happened to bytes that were always touched alike.

use std::num::NonZeroU64;

use smallvec::SmallVec;

use super::Mode;
use crate::reactor::{LaneId, Ticket};

/// A ticket in one word, which is half of what a record and its notes would take otherwise: the
/// lane's number above, so that of one lane the later one is the greater. The device is the record's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stamp(NonZeroU64);

impl Stamp {
    /// A lane would have to enqueue a million operations a second for nine years.
    const SEQ_BITS: u32 = 48;

    pub(super) fn of(ticket: Ticket) -> Self {
        let word = (ticket.lane.index() as u64) << Self::SEQ_BITS | ticket.seq;
        // Tickets are numbered from 1.
        Stamp(NonZeroU64::new(word).unwrap_or(NonZeroU64::MIN))
    }

    pub(super) fn is_of_lane_of(self, other: Stamp) -> bool {
        (self.0.get() ^ other.0.get()) >> Self::SEQ_BITS == 0
    }

    pub(super) fn lane(self) -> u16 {
        (self.0.get() >> Self::SEQ_BITS) as u16
    }

    pub(super) fn ticket(self, device: u32) -> Ticket {
        let lane = LaneId::new(device, self.lane());
        Ticket { lane, seq: self.0.get() & ((1 << Self::SEQ_BITS) - 1) }
    }
}

/// The latest reader of each lane since the last write, in ascending order.
pub(super) type Readers = SmallVec<[Stamp; 4]>;

/// What happened to some bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct History {
    /// The last operation that wrote here, the allocation at first; `None`: the host did, or it is
    /// known to be finished.
    pub(super) writer: Option<Stamp>,
    pub(super) readers: Readers,
    /// Something was written here.
    pub(super) defined: bool,
}

impl History {
    pub(super) fn users(&self) -> impl Iterator<Item = Stamp> {
        self.writer.iter().chain(&self.readers).copied()
    }

    /// Notes a write; what was here before.
    #[inline]
    pub(super) fn write(&mut self, by: Stamp) -> History {
        let written = History { writer: Some(by), readers: Readers::new(), defined: true };
        std::mem::replace(self, written)
    }

    /// Calls `each` with the operations that an access must come after.
    #[inline]
    pub(super) fn conflicts(&self, mode: Mode, mut each: impl FnMut(Stamp)) {
        // A reader since the last write already comes after that write, but only on its own
        // lane is the writer implied: naming it costs nothing where it is known finished.
        if let Some(writer) = self.writer {
            each(writer);
        }
        if mode.writes() {
            self.readers.iter().copied().for_each(each);
        }
    }

    pub(super) fn unwrite(&mut self, by: Stamp, before: &History) {
        if self.writer != Some(by) {
            return;
        }
        let since = std::mem::replace(self, before.clone()).readers;
        // Both readers of a lane are kept, as the later one may be taken back too.
        self.readers.extend(since);
        self.readers.sort_unstable();
    }

    /// Notes a read; the latest reader of that lane before. (Reads that were open are noted late: a later
    /// one of their lane stays.)
    #[inline]
    pub(super) fn read(&mut self, by: Stamp) -> Option<Stamp> {
        match self.readers.iter_mut().rev().find(|reader| reader.is_of_lane_of(by)) {
            Some(reader) => Some(std::mem::replace(reader, by.max(*reader))),
            None => {
                if self.readers.last().is_none_or(|last| *last < by) {
                    self.readers.push(by);
                } else {
                    let above = self.readers.partition_point(|reader| *reader < by);
                    self.readers.insert(above, by);
                }
                None
            }
        }
    }

    pub(super) fn unread(&mut self, by: Stamp, before: Option<Stamp>) {
        let Some(index) = self.readers.iter().position(|reader| *reader == by) else { return };
        match before {
            Some(before) => self.readers[index] = before,
            None => drop(self.readers.remove(index)),
        }
    }

    /// Whether another lane than that of `by` has used it, in what is not known to be finished and is not
    /// the allocation.
    #[inline(never)]
    pub(super) fn is_used_beside(
        &self,
        by: Stamp,
        allocated: Option<Stamp>,
        is_finished: impl Fn(Stamp) -> bool,
    ) -> bool {
        let is_stranger =
            |user: Stamp| !user.is_of_lane_of(by) && Some(user) != allocated && !is_finished(user);
        self.users().any(is_stranger)
    }

    pub(super) fn sweep(&mut self, is_finished: impl Fn(Stamp) -> bool) {
        self.writer = self.writer.filter(|writer| !is_finished(*writer));
        self.readers.retain(|reader| !is_finished(*reader));
    }
}
