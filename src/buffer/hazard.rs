//! Which operations touched which bytes of one allocation, as far as later ones must know.
//!
//! Pure: no driver, no thread, no lock. The record has for each byte the last operation that wrote
//! it and, per lane, the latest that read it since. Bytes with the same history are kept together,
//! in one piece, in columns or in tiles: see [`RegionMap`], and [`Cut`](super::cut::Cut) for what it costs. A reader
//! conflicts with the last writer; a writer with the last writer and with every reader since.
//!
//! Operations known to be finished are swept out whenever the pieces have doubled, so there are as
//! many as it takes for those that are not, and to tell the bytes that were written from the rest.

use std::ops::Range;

use smallvec::SmallVec;

use self::history::{History, Readers, Stamp};
pub(crate) use self::notes::Notes;
use self::notes::{Note, Replaced, Was};
use self::open::Open;
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
    /// Transfers that have not enqueued all of an access yet, if there are any.
    open: Option<Box<Open>>,
}

/// So few pieces are not swept.
const FEW_PIECES: u32 = 16;

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
            open: None,
        }
    }

    /// Memory that was somebody else's, with nothing in it: `users` may still touch it, the last of each lane.
    pub(crate) fn after(bytes: usize, users: &[Ticket]) -> Self {
        let mut readers: Readers = users.iter().map(|user| Stamp::of(*user)).collect();
        readers.sort_unstable();
        let mut lanes = Lanes::NONE;
        readers.iter().for_each(|user| lanes = lanes.with(user.lane()));
        let history = History { writer: None, readers, defined: false };
        Hazards {
            histories: RegionMap::new(bytes, history),
            device: users.first().map_or(0, |user| user.lane.device()),
            lanes,
            changes: 0,
            allocated: None,
            shared: false,
            sweep_above: FEW_PIECES,
            open: None,
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

    /// [Checks](Hazards::check) an access by `ticket`. Where it is to all bytes and these were touched alike
    /// before, as most are, that is one look, and the access is noted: true. Else it is to be
    /// [noted](Hazards::note), once it is sure to be made.
    ///
    /// `is_finished` says what is known of other tickets, and what it says of one that is finished it says
    /// for ever.
    #[inline]
    pub(crate) fn access(
        &mut self,
        access: &Access,
        ticket: Ticket,
        is_finished: impl Fn(Ticket) -> bool,
        mut after: impl FnMut(Ticket),
        notes: &mut Notes,
    ) -> Result<bool, Range<usize>> {
        let (mode, by, device) = (access.mode, Stamp::of(ticket), self.device);
        let private = self.is_private_to(ticket.lane);
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
                Ok(true)
            }
            _ => self.check(access, ticket.lane, after).map(|()| false),
        }
    }

    /// Notes an access by `ticket`, unchecked.
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
            if can_be_shared && !self.shared {
                self.shared = history.is_used_beside(by, allocated, is_finished);
            }
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

mod history;
#[cfg(test)]
mod model;
mod notes;
mod open;
#[cfg(test)]
mod tests;
