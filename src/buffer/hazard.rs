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

    fn lane(self) -> u16 {
        (self.0.get() >> Self::SEQ_BITS) as u16
    }

    fn ticket(self, device: u32) -> Ticket {
        let lane = LaneId::new(device, self.lane());
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
    #[inline]
    fn write(&mut self, by: Stamp) -> History {
        let written = History { writer: Some(by), readers: Readers::new(), defined: true };
        std::mem::replace(self, written)
    }

    /// Calls `each` with the operations that an access must come after.
    #[inline]
    fn conflicts(&self, mode: Mode, mut each: impl FnMut(Stamp)) {
        // A reader since the last write already comes after that write, but only on its own
        // lane is the writer implied: naming it costs nothing where it is known finished.
        if let Some(writer) = self.writer {
            each(writer);
        }
        if mode.writes() {
            self.readers.iter().copied().for_each(each);
        }
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
    #[inline]
    fn read(&mut self, by: Stamp) -> Option<Stamp> {
        match self.readers.iter_mut().rev().find(|reader| reader.is_of_lane_of(by)) {
            Some(reader) => Some(std::mem::replace(reader, by)),
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

    fn unread(&mut self, by: Stamp, before: Option<Stamp>) {
        let Some(index) = self.readers.iter().position(|reader| *reader == by) else { return };
        match before {
            Some(before) => self.readers[index] = before,
            None => drop(self.readers.remove(index)),
        }
    }

    /// Whether another lane than that of `by` has used it, in what is not known to be finished and is not
    /// the allocation.
    #[inline(never)]
    fn is_used_beside(
        &self,
        by: Stamp,
        allocated: Option<Stamp>,
        is_finished: impl Fn(Stamp) -> bool,
    ) -> bool {
        let is_stranger =
            |user: Stamp| !user.is_of_lane_of(by) && Some(user) != allocated && !is_finished(user);
        self.users().any(is_stranger)
    }

    fn sweep(&mut self, is_finished: impl Fn(Stamp) -> bool) {
        self.writer = self.writer.filter(|writer| !is_finished(*writer));
        self.readers.retain(|reader| !is_finished(*reader));
    }
}

/// Whose tickets a record can hold: nobody's, those of one lane, or any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lanes(u32);

impl Lanes {
    const NONE: Lanes = Lanes(u32::MAX);
    const SEVERAL: Lanes = Lanes(u32::MAX - 1);

    /// The lane's number within its device.
    fn one(lane: u16) -> Self {
        Lanes(lane.into())
    }

    fn with(self, lane: u16) -> Self {
        let one = Lanes::one(lane);
        if self == one || self == Lanes::NONE { one } else { Lanes::SEVERAL }
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
    allocated: Option<Stamp>,
    /// An access was noted while one of another lane to the same bytes was not known to be
    /// finished. Memory that is handed from one lane to another after its work there was seen to
    /// end is not shared.
    shared: bool,
    /// With more pieces than these it is time to sweep: twice as many as were left the last time,
    /// and some.
    sweep_above: u32,
}

/// So few pieces are not swept.
const FEW_PIECES: u32 = 16;

/// What one operation noted, with what records said before: to put back if it is refused. A stack,
/// since the last note is taken back first, of parts that are not moved about.
///
/// The operation is not known to be finished before its notes are dropped, taken back or undefined.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    notes: SmallVec<[Note; 8]>,
    /// Of each [`Replaced::Pieces`] in turn, the pieces and what was replaced in each.
    pieces: SmallVec<[(Region, Before); 2]>,
    /// Of each [`Before::Written`] in turn, what was there.
    histories: SmallVec<[History; 2]>,
}

/// One access as noted.
#[derive(Clone, Copy, Debug)]
struct Note {
    by: Stamp,
    /// The record's count of changes with this one.
    number: u64,
    replaced: Replaced,
    /// What the record said before.
    lanes: Lanes,
    shared: bool,
}

/// What a note replaced.
#[derive(Clone, Copy, Debug)]
enum Replaced {
    /// In all bytes of the allocation, which had one history.
    All(Before),
    /// In so many pieces with the same history each.
    Pieces(usize),
}

/// What a note replaced in a history.
#[derive(Clone, Copy, Debug)]
enum Before {
    /// Of a write: all of it.
    Written,
    /// Of a read: the latest reader of its lane.
    Read(Option<Stamp>),
}

impl Notes {
    /// Notes an access by `by` in a history.
    #[inline(always)]
    fn replace(&mut self, history: &mut History, mode: Mode, by: Stamp) -> Before {
        if mode.writes() {
            self.histories.push(history.write(by));
            Before::Written
        } else {
            Before::Read(history.read(by))
        }
    }

    /// Takes the last note out: with what was in which bytes before, of an allocation of `all`.
    fn pop(&mut self, all: Region) -> Option<(Note, Vec<(Region, Was)>)> {
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
enum Was {
    Written(History),
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
            lanes: writer.map_or(Lanes::NONE, |writer| Lanes::one(writer.lane())),
            changes: 0,
            allocated: writer,
            shared: false,
            sweep_above: FEW_PIECES,
        }
    }

    /// Whether no access conflicts with one on `lane`, because all are on that lane too.
    pub(crate) fn is_private_to(&self, lane: LaneId) -> bool {
        self.lanes == Lanes::NONE || self.lanes == Lanes::one(lane.index() as u16)
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
            history.conflicts(access.mode, |user| each(user.ticket(self.device)));
        });
    }

    /// Looks at what an access finds, without noting it: calls `after` with the operations of other
    /// lanes than `lane` that it must come after. `Err`: the first bytes that it would read and nothing
    /// has written.
    pub(crate) fn check(
        &self,
        access: &Access,
        lane: LaneId,
        mut after: impl FnMut(Ticket),
    ) -> Result<(), Range<usize>> {
        if access.mode != Mode::Overwrite
            && let Some(undefined) = self.undefined_in(&access.region)
        {
            return Err(undefined);
        }
        if !self.is_private_to(lane) {
            self.conflicts(access, |user| {
                if user.lane != lane {
                    after(user);
                }
            });
        }
        Ok(())
    }

    /// Notes an access by `ticket`, [checked](Hazards::check) first. `is_finished` says what is known of
    /// other tickets, and what it says of one that is finished it says for ever.
    #[inline]
    pub(crate) fn access(
        &mut self,
        access: &Access,
        ticket: Ticket,
        is_finished: impl Fn(Ticket) -> bool,
        mut after: impl FnMut(Ticket),
        notes: &mut Notes,
    ) -> Result<(), Range<usize>> {
        let (mode, by, device) = (access.mode, Stamp::of(ticket), self.device);
        let private = self.is_private_to(ticket.lane);
        // Most accesses are to all bytes of an allocation that were touched alike before.
        match self.histories.all_mut(&access.region) {
            Some(history) if history.defined || mode == Mode::Overwrite => {
                let shared = self.shared;
                if !private {
                    history.conflicts(mode, |user| {
                        if !user.is_of_lane_of(by) {
                            after(user.ticket(device));
                        }
                    });
                    if !shared {
                        let is_finished = |user: Stamp| is_finished(user.ticket(device));
                        self.shared = history.is_used_beside(by, self.allocated, is_finished);
                    }
                }
                let before = notes.replace(history, mode, by);
                self.noted(ticket, mode.writes(), shared, Replaced::All(before), notes);
            }
            _ => {
                self.check(access, ticket.lane, after)?;
                self.note(access, ticket, is_finished, notes);
            }
        }
        Ok(())
    }

    /// Notes an access by `ticket`, as [`Hazards::access`] does, unchecked.
    #[inline(never)]
    pub(crate) fn note(
        &mut self,
        access: &Access,
        ticket: Ticket,
        is_finished: impl Fn(Ticket) -> bool,
        notes: &mut Notes,
    ) {
        let Access { region, mode } = *access;
        if self.histories.pieces() > self.sweep_above as usize || self.histories.misfits(&region) {
            self.sweep(&is_finished);
        }
        let (shared, allocated) = (self.shared, self.allocated);
        let (by, device) = (Stamp::of(ticket), ticket.lane.device());
        let can_be_shared = !shared && !self.is_private_to(ticket.lane);
        let is_finished = |user: Stamp| is_finished(user.ticket(device));
        let mut pieces = 0;
        self.histories.edit(&region, |bytes, history| {
            self.shared |= can_be_shared && history.is_used_beside(by, allocated, is_finished);
            let before = notes.replace(history, mode, by);
            notes.pieces.push((bytes, before));
            pieces += 1;
        });
        let replaces_all = mode.writes() && self.histories.is_all(&region);
        self.noted(ticket, replaces_all, shared, Replaced::Pieces(pieces), notes);
    }

    /// An access is noted in the histories; `shared` is what the record said before.
    #[inline]
    fn noted(
        &mut self,
        ticket: Ticket,
        replaces_all: bool,
        shared: bool,
        replaced: Replaced,
        notes: &mut Notes,
    ) {
        let (by, lanes) = (Stamp::of(ticket), self.lanes);
        self.lanes = if replaces_all { Lanes::one(by.lane()) } else { lanes.with(by.lane()) };
        self.device = ticket.lane.device();
        self.changes += 1;
        notes.notes.push(Note { by, number: self.changes, replaced, lanes, shared });
    }

    /// The operation of the last of `notes` was refused after part of it was enqueued: what it wrote
    /// is unknown, and it still has to be waited for.
    pub(crate) fn undefine(&mut self, notes: &mut Notes) {
        let Some((Note { by, .. }, replaced)) = notes.pop(self.histories.all()) else { return };
        for (bytes, was) in replaced {
            if let Was::Written(_) = was {
                self.histories.edit(&bytes, |_, history| {
                    history.defined &= history.writer != Some(by);
                });
            }
        }
    }

    /// The operation of the last of `notes` was refused: the record is as if there had been none. Where
    /// another access was noted since, that stays, and keeps what it has to come after.
    pub(crate) fn undo(&mut self, notes: &mut Notes) {
        let Some((note, replaced)) = notes.pop(self.histories.all()) else { return };
        let Note { by, number, lanes, shared, .. } = note;
        if self.changes == number {
            (self.lanes, self.shared) = (lanes, shared);
            self.changes -= 1;
        } else {
            // Those who came between do not know of what is put back here.
            self.lanes = Lanes::SEVERAL;
            self.changes += 1;
        }
        for (bytes, was) in replaced {
            self.histories.edit(&bytes, |_, history| match &was {
                Was::Written(before) => history.unwrite(by, before),
                Was::Read(before) => history.unread(by, *before),
            });
        }
    }

    /// The host wrote the bytes of `region`, with nothing in flight on them.
    pub(crate) fn written_by_host(&mut self, region: &Region) {
        let written = History { writer: None, readers: Readers::new(), defined: true };
        self.histories.edit(region, |_, history| *history = written.clone());
        self.changes += 1;
        if self.histories.is_all(region) {
            self.lanes = Lanes::NONE;
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
        let device = self.device;
        self.allocated = self.allocated.filter(|user| !is_finished(user.ticket(device)));
        self.lanes = Lanes::NONE;
        self.histories.compact(|history| {
            history.sweep(|user| is_finished(user.ticket(device)));
            history.users().for_each(|user| self.lanes = self.lanes.with(user.lane()));
        });
        self.sweep_above = u32::try_from(2 * self.histories.pieces())
            .unwrap_or(u32::MAX)
            .saturating_add(FEW_PIECES);
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
