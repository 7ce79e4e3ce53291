//! Which operations touched which bytes of one allocation, as far as later ones must know.
//!
//! Pure: no driver, no thread, no lock. The record has for each byte the last operation that wrote
//! it and, per lane, the latest that read it since. Bytes with the same history are kept together,
//! in one piece, in columns or in tiles: see [`RegionMap`], also for what it costs. A reader
//! conflicts with the last writer; a writer with the last writer and with every reader since.
//!
//! Operations known to be finished are swept out whenever the pieces have doubled, so there are as
//! many as it takes for those that are not, and to tell the bytes that were written from the rest.

use std::num::NonZeroU64;
use std::ops::Range;

use smallvec::SmallVec;

use super::region::Region;
use super::region_map::RegionMap;
use crate::reactor::{LaneId, Ticket};

/// How an operation touches bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Reads: they must have been written.
    Read,
    /// Reads and writes: they must have been written.
    Update,
    /// Writes every byte, whatever was there.
    Overwrite,
}

impl Mode {
    pub(crate) fn writes(self) -> bool {
        self != Mode::Read
    }
}

/// One access: bytes of an allocation and a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) region: Region,
    pub(crate) mode: Mode,
}

/// A ticket in one word, which is half of what a record and its notes would take otherwise: the
/// lane's number above, so that of one lane the later one is the greater. The device is the record's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Stamp(NonZeroU64);

impl Stamp {
    /// A lane would have to enqueue a million operations a second for nine years.
    const SEQ_BITS: u32 = 48;

    fn of(ticket: Ticket) -> Self {
        let word = (ticket.lane.index() as u64) << Self::SEQ_BITS | ticket.seq;
        // Tickets are numbered from 1.
        Stamp(NonZeroU64::new(word).unwrap_or(NonZeroU64::MIN))
    }

    fn is_of_lane_of(self, other: Stamp) -> bool {
        (self.0.get() ^ other.0.get()) >> Self::SEQ_BITS == 0
    }

    fn ticket(self, device: u32) -> Ticket {
        let lane = LaneId::new(device, (self.0.get() >> Self::SEQ_BITS) as u16);
        Ticket { lane, seq: self.0.get() & ((1 << Self::SEQ_BITS) - 1) }
    }
}

/// The latest reader of each lane since the last write, in ascending order.
type Readers = SmallVec<[Stamp; 4]>;

/// What happened to some bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct History {
    /// The last operation that wrote here, the allocation at first; `None`: the host did, or it is
    /// known to be finished.
    writer: Option<Stamp>,
    readers: Readers,
    /// Something was written here.
    defined: bool,
}

impl History {
    fn users(&self) -> impl Iterator<Item = Stamp> {
        self.writer.iter().chain(&self.readers).copied()
    }

    /// Notes a write; what was here before.
    fn write(&mut self, by: Stamp) -> History {
        let written = History { writer: Some(by), readers: Readers::new(), defined: true };
        std::mem::replace(self, written)
    }

    fn unwrite(&mut self, by: Stamp, before: &History) {
        if self.writer != Some(by) {
            return;
        }
        let since = std::mem::replace(self, before.clone()).readers;
        // Both readers of a lane are kept, as the later one may be taken back too.
        self.readers.extend(since);
        self.readers.sort_unstable();
    }

    /// Notes a read; the latest reader of that lane before.
    fn read(&mut self, by: Stamp) -> Option<Stamp> {
        match self.readers.iter_mut().rev().find(|reader| reader.is_of_lane_of(by)) {
            Some(reader) => Some(std::mem::replace(reader, by)),
            None => {
                let above = self.readers.partition_point(|reader| *reader < by);
                self.readers.insert(above, by);
                None
            }
        }
    }

    fn unread(&mut self, by: Stamp, before: Option<Stamp>) {
        let Some(index) = self.readers.iter().position(|reader| *reader == by) else { return };
        match before {
            Some(before) => self.readers[index] = before,
            None => drop(self.readers.remove(index)),
        }
    }

    fn sweep(&mut self, is_finished: impl Fn(Stamp) -> bool) {
        self.writer = self.writer.filter(|writer| !is_finished(*writer));
        self.readers.retain(|reader| !is_finished(*reader));
    }
}

/// Whose tickets a record can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lanes {
    None,
    One(LaneId),
    /// Any.
    Several,
}

impl Lanes {
    fn with(self, lane: LaneId) -> Self {
        match self {
            Lanes::None => Lanes::One(lane),
            Lanes::One(only) if only == lane => self,
            _ => Lanes::Several,
        }
    }
}

/// The record of one allocation.
#[derive(Debug)]
pub(crate) struct Hazards {
    histories: RegionMap<History>,
    /// Of all tickets there are in it.
    device: u32,
    /// No ticket in `histories` is of another lane than these: what most operations need to know.
    lanes: Lanes,
    /// Counts what was noted, and back where the last was taken back: the same number, the same
    /// accesses.
    changes: u64,
    /// The operation that made the memory, unless it is known to be finished.
    allocated: Option<Ticket>,
    /// An access was noted while one of another lane to the same bytes was not known to be
    /// finished. Memory that is handed from one lane to another after its work there was seen to
    /// end is not shared.
    shared: bool,
    /// With more pieces than these it is time to sweep: twice as many as were left the last time,
    /// and some.
    sweep_above: usize,
}

/// So few pieces are not swept.
const FEW_PIECES: usize = 16;

/// One access as noted, with what the record said before: to put back if the operation is refused.
///
/// The operation is not known to be finished before its note is dropped, put back or undefined.
#[derive(Debug)]
pub(crate) struct Note {
    by: Ticket,
    lanes: Lanes,
    shared: bool,
    /// The record's count of changes with this one.
    number: u64,
    replaced: SmallVec<[(Region, Before); 1]>,
}

/// What a note replaced in bytes with the same history.
#[derive(Debug)]
enum Before {
    /// Of a write: the history.
    Written(History),
    /// Of a read: the latest reader of its lane.
    Read(Option<Stamp>),
}

impl Hazards {
    /// Memory with nothing in it. `allocated` is the operation that made it, its first write.
    pub(crate) fn new(bytes: usize, allocated: Option<Ticket>) -> Self {
        let writer = allocated.map(Stamp::of);
        let history = History { writer, readers: Readers::new(), defined: false };
        Hazards {
            histories: RegionMap::new(bytes, history),
            device: allocated.map_or(0, |ticket| ticket.lane.device()),
            lanes: allocated.map_or(Lanes::None, |ticket| Lanes::One(ticket.lane)),
            changes: 0,
            allocated,
            shared: false,
            sweep_above: FEW_PIECES,
        }
    }

    /// Whether no access conflicts with one on `lane`, because all are on that lane too.
    pub(crate) fn is_private_to(&self, lane: LaneId) -> bool {
        matches!(self.lanes, Lanes::None) || self.lanes == Lanes::One(lane)
    }

    /// Whether several lanes are known to use some of the bytes at a time.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }

    /// The first bytes of `region` that nothing has written, to the end of a row at most.
    pub(crate) fn undefined_in(&self, region: &Region) -> Option<Range<usize>> {
        let mut first = None;
        self.histories.visit(region, |at, history| {
            if !history.defined && first.is_none_or(|first| at < first) {
                first = Some(at);
            }
        });
        let first = first?;
        let row_end = first + region.row() - (first - region.start()) % region.pitch();
        let mut end = first;
        while let Some((run_end, history)) = self.histories.run_at(end)
            && !history.defined
            && end < row_end
        {
            end = run_end;
        }
        Some(first..end.min(row_end))
    }

    /// Regions whose bytes nothing has written, with all such bytes of `region` in them, and maybe
    /// others: found in one look at the pieces, however many rows there are.
    pub(crate) fn undefined_around(&self, region: &Region) -> SmallVec<[Region; 2]> {
        let mut undefined = SmallVec::new();
        self.histories.visit_around(region, |around, history| {
            if !history.defined {
                undefined.push(around);
            }
        });
        undefined
    }

    /// Calls `each` with the operations that `access` must come after. The same one may come up
    /// more than once.
    pub(crate) fn conflicts(&self, access: &Access, mut each: impl FnMut(Ticket)) {
        self.histories.visit(&access.region, |_, history| {
            // A reader since the last write already comes after that write, but only on its own
            // lane is the writer implied: naming it costs nothing where it is known finished.
            history.writer.iter().for_each(|writer| each(writer.ticket(self.device)));
            if access.mode.writes() {
                history.readers.iter().for_each(|reader| each(reader.ticket(self.device)));
            }
        });
    }

    /// Notes an access by `ticket`; `is_finished` says what is known of others, and what it says of
    /// one that is finished it says for ever.
    pub(crate) fn note(
        &mut self,
        access: &Access,
        ticket: Ticket,
        is_finished: impl Fn(Ticket) -> bool,
    ) -> Note {
        let Access { region, mode } = access;
        if self.histories.pieces() > self.sweep_above || self.histories.misfits(region) {
            self.sweep(&is_finished);
        }
        let (lanes, shared, by) = (self.lanes, self.shared, Stamp::of(ticket));
        self.device = ticket.lane.device();
        let mut can_be_shared = !shared && !self.is_private_to(ticket.lane);
        let (allocated, lane, device) = (self.allocated.map(Stamp::of), ticket.lane, self.device);
        let is_stranger = |user: Stamp| {
            !user.is_of_lane_of(by) && Some(user) != allocated && !is_finished(user.ticket(device))
        };
        let mut note = |history: &mut History| {
            if can_be_shared && history.users().any(is_stranger) {
                self.shared = true;
                can_be_shared = false;
            }
            match mode.writes() {
                true => Before::Written(history.write(by)),
                false => Before::Read(history.read(by)),
            }
        };
        let replaced = match self.histories.all_mut(region) {
            Some(history) => SmallVec::from_buf([(*region, note(history))]),
            None => {
                let mut replaced = SmallVec::new();
                self.histories.edit(region, |bytes, history| replaced.push((bytes, note(history))));
                replaced
            }
        };
        let replaces_all = mode.writes() && self.histories.is_all(region);
        self.lanes = if replaces_all { Lanes::One(lane) } else { lanes.with(lane) };
        self.changes += 1;
        Note { by: ticket, lanes, shared, number: self.changes, replaced }
    }

    /// The operation of a note was refused after part of it was enqueued: what it wrote is unknown,
    /// and it still has to be waited for.
    pub(crate) fn undefine(&mut self, note: Note) {
        let by = Stamp::of(note.by);
        for (bytes, before) in note.replaced {
            if let Before::Written(_) = before {
                self.histories.edit(&bytes, |_, history| {
                    history.defined &= history.writer != Some(by);
                });
            }
        }
    }

    /// The operation of a note was refused: the record is as if there had been none. Where another
    /// access was noted since, that stays, and keeps what it has to come after.
    ///
    /// Of several notes by one operation the last is undone first.
    pub(crate) fn undo(&mut self, note: Note) {
        let Note { by, lanes, shared, number, replaced } = note;
        let by = Stamp::of(by);
        if self.changes == number {
            (self.lanes, self.shared) = (lanes, shared);
            self.changes -= 1;
        } else {
            // Those who came between do not know of what is put back here.
            self.lanes = Lanes::Several;
            self.changes += 1;
        }
        for (bytes, before) in replaced {
            self.histories.edit(&bytes, |_, history| match &before {
                Before::Written(before) => history.unwrite(by, before),
                Before::Read(reader) => history.unread(by, *reader),
            });
        }
    }

    /// The host wrote the bytes of `region`, with nothing in flight on them.
    pub(crate) fn written_by_host(&mut self, region: &Region) {
        let written = History { writer: None, readers: Readers::new(), defined: true };
        self.histories.edit(region, |_, history| *history = written.clone());
        self.changes += 1;
        if self.histories.is_all(region) {
            self.lanes = Lanes::None;
            self.shared = false;
        }
    }

    /// Calls `each` with every operation that may still touch this memory.
    pub(crate) fn users(&self, mut each: impl FnMut(Ticket)) {
        let device = self.device;
        self.histories.each_piece(|_, history| {
            history.users().for_each(|user| each(user.ticket(device)));
        });
    }

    /// Forgets what is known to be finished.
    fn sweep(&mut self, is_finished: impl Fn(Ticket) -> bool) {
        self.allocated = self.allocated.filter(|ticket| !is_finished(*ticket));
        self.lanes = Lanes::None;
        let device = self.device;
        self.histories.compact(|history| {
            history.sweep(|user| is_finished(user.ticket(device)));
            history.users().for_each(|user| self.lanes = self.lanes.with(user.ticket(device).lane));
        });
        self.sweep_above = 2 * self.histories.pieces() + FEW_PIECES;
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
