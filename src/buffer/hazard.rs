//! Which operations touched which bytes of one allocation, as far as later ones must know.
//!
//! Pure: no driver, no thread, no lock. The record is a list of adjacent spans that together cover
//! the allocation. An access splits spans at its ends and is noted in those between. A reader
//! conflicts with the last writer; a writer with the last writer and with every reader since.

use std::ops::Range;

use smallvec::SmallVec;

use super::region::Region;
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

/// The latest reader of each lane since the last write.
type Readers = SmallVec<[Ticket; 2]>;

/// Adjacent bytes with the same history.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    range: Range<usize>,
    /// The last operation that wrote here, the allocation at first; `None`: the host did.
    writer: Option<Ticket>,
    readers: Readers,
    /// Something was written here.
    defined: bool,
}

impl Span {
    /// Notes a write; what the span was before.
    fn write(&mut self, by: Ticket) -> Span {
        let range = self.range.clone();
        let written = Span { range, writer: Some(by), readers: Readers::new(), defined: true };
        std::mem::replace(self, written)
    }

    fn unwrite(&mut self, by: Ticket, before: &Span) {
        if self.writer != Some(by) {
            return;
        }
        let since = std::mem::take(&mut self.readers);
        self.writer = before.writer;
        self.readers = before.readers.clone();
        self.readers.extend(since);
        self.defined = before.defined;
    }

    /// Notes a read; the latest reader of that lane before.
    fn read(&mut self, by: Ticket) -> Option<Ticket> {
        match self.readers.iter_mut().find(|reader| reader.lane == by.lane) {
            Some(reader) => Some(std::mem::replace(reader, by)),
            None => {
                self.readers.push(by);
                None
            }
        }
    }

    fn unread(&mut self, by: Ticket, before: Option<Ticket>) {
        let Some(index) = self.readers.iter().position(|reader| *reader == by) else { return };
        match before {
            Some(before) => self.readers[index] = before,
            None => drop(self.readers.swap_remove(index)),
        }
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

/// The record of one allocation.
#[derive(Debug)]
pub(crate) struct Hazards {
    /// Ascending, adjacent; together the allocation. Empty only where that is.
    spans: SmallVec<[Span; 1]>,
    /// No ticket in `spans` is of another lane than these: what most operations need to know.
    lanes: Lanes,
    /// The last access; `None` before the first.
    last: Option<Ticket>,
    /// An access was noted while one of another lane was not known to be finished. Memory that is
    /// handed from one lane to another after its work there was seen to end is not shared.
    shared: bool,
}

/// One access as noted, with what the record said before: to put back if the operation is refused.
#[derive(Debug)]
pub(crate) struct Note {
    by: Ticket,
    lanes: Lanes,
    last: Option<Ticket>,
    shared: bool,
    spans: SmallVec<[Before; 1]>,
}

/// What a note replaced in one span.
#[derive(Debug)]
enum Before {
    /// Of a write: the span.
    Written(Span),
    /// Of a read: where, and the latest reader of its lane.
    Read { range: Range<usize>, reader: Option<Ticket> },
}

impl Hazards {
    /// Memory with nothing in it. `allocated` is the operation that made it, its first write.
    pub(crate) fn new(bytes: usize, allocated: Option<Ticket>) -> Self {
        let span =
            Span { range: 0..bytes, writer: allocated, readers: Readers::new(), defined: false };
        let lanes = allocated.map_or(Lanes::None, |ticket| Lanes::One(ticket.lane));
        Hazards { spans: SmallVec::from_iter([span]), lanes, last: None, shared: false }
    }

    /// Whether no access conflicts with one on `lane`, because all are on that lane too.
    pub(crate) fn is_private_to(&self, lane: LaneId) -> bool {
        matches!(self.lanes, Lanes::None) || self.lanes == Lanes::One(lane)
    }

    /// Whether several lanes are known to use this memory at a time.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }

    /// The first bytes in `range` that nothing has written.
    pub(crate) fn undefined_in(&self, region: &Region) -> Option<Range<usize>> {
        let range = &region.extent();
        if let [Span { defined: true, .. }] = self.spans[..] {
            return None;
        }
        let span = self.overlapping(range).find(|span| !span.defined)?;
        Some(span.range.start.max(range.start)..span.range.end.min(range.end))
    }

    /// Calls `each` with the operations that `access` must come after. The same one may come up
    /// more than once.
    pub(crate) fn conflicts(&self, access: &Access, mut each: impl FnMut(Ticket)) {
        for span in self.overlapping(&access.region.extent()) {
            // A reader since the last write already comes after that write, but only on its own
            // lane is the writer implied: naming it costs nothing where it is known finished.
            span.writer.iter().for_each(|t| each(*t));
            if access.mode.writes() {
                span.readers.iter().for_each(|t| each(*t));
            }
        }
    }

    /// Notes an access by `ticket`; `is_finished` says what is known of others.
    pub(crate) fn note(
        &mut self,
        access: &Access,
        ticket: Ticket,
        is_finished: impl FnOnce(Ticket) -> bool,
    ) -> Note {
        let (lanes, last, shared) = (self.lanes, self.last, self.shared);
        let stranger = last.filter(|last| last.lane != ticket.lane && !shared);
        self.shared |= stranger.is_some_and(|last| !is_finished(last));
        self.last = Some(ticket);
        let indices = self.split(&access.region.extent());
        let replaces_all = access.mode.writes() && indices == (0..self.spans.len());
        if self.is_private_to(ticket.lane) || replaces_all {
            self.lanes = Lanes::One(ticket.lane);
        } else {
            self.lanes = Lanes::Several;
        }
        let note = |span: &mut Span| match access.mode.writes() {
            true => Before::Written(span.write(ticket)),
            false => Before::Read { range: span.range.clone(), reader: span.read(ticket) },
        };
        let spans = match &mut self.spans[indices] {
            [whole] => SmallVec::from_buf([note(whole)]),
            several => several.iter_mut().map(note).collect(),
        };
        Note { by: ticket, lanes, last, shared, spans }
    }

    /// The operation of a note was refused after part of it was enqueued: what it wrote is unknown,
    /// and it still has to be waited for.
    pub(crate) fn undefine(&mut self, note: Note) {
        for before in note.spans {
            let Before::Written(before) = before else { continue };
            for index in self.split(&before.range) {
                let span = &mut self.spans[index];
                span.defined &= span.writer != Some(note.by);
            }
        }
    }

    /// The operation of a note was refused: the record is as if there had been none. Where another
    /// access was noted since, that stays, and keeps what it has to come after.
    ///
    /// Of several notes by one operation the last is undone first.
    pub(crate) fn undo(&mut self, note: Note) {
        let Note { by, lanes, last, shared, spans } = note;
        if self.last == Some(by) {
            (self.lanes, self.last, self.shared) = (lanes, last, shared);
        } else {
            self.lanes = Lanes::Several;
        }
        for before in spans {
            match before {
                Before::Written(before) => {
                    for index in self.split(&before.range) {
                        self.spans[index].unwrite(by, &before);
                    }
                }
                Before::Read { range, reader } => {
                    for index in self.split(&range) {
                        self.spans[index].unread(by, reader);
                    }
                }
            }
        }
    }

    /// The host, with nothing in flight there, wrote these bytes.
    pub(crate) fn written_by_host(&mut self, region: &Region) {
        let bytes = self.spans.last().map_or(0, |span| span.range.end);
        if region.piece() == Some(0..bytes) {
            let span =
                Span { range: 0..bytes, writer: None, readers: Readers::new(), defined: true };
            self.spans = SmallVec::from_iter([span]);
            self.lanes = Lanes::None;
            self.last = None;
            self.shared = false;
            return;
        }
        for row in 0..region.rows() {
            let start = region.start() + row * region.pitch();
            for index in self.split(&(start..start + region.row())) {
                let span = &mut self.spans[index];
                (span.writer, span.readers, span.defined) = (None, Readers::new(), true);
            }
        }
    }

    /// Calls `each` with every operation that may still touch this memory.
    pub(crate) fn users(&self, mut each: impl FnMut(Ticket)) {
        for span in &self.spans {
            span.writer.iter().chain(&span.readers).for_each(|t| each(*t));
        }
    }

    fn overlapping(&self, range: &Range<usize>) -> impl Iterator<Item = &Span> {
        let range = range.clone();
        self.spans
            .iter()
            .filter(move |span| span.range.start < range.end && range.start < span.range.end)
    }

    /// Splits spans so that `range` begins and ends between two; the indices of those inside.
    fn split(&mut self, range: &Range<usize>) -> Range<usize> {
        if let [whole] = &self.spans[..]
            && whole.range == *range
        {
            return 0..1;
        }
        let first = self.split_at(range.start);
        let end = self.split_at(range.end);
        first..end
    }

    /// Splits the span that has `at` strictly inside; the index of the first span from `at` on.
    fn split_at(&mut self, at: usize) -> usize {
        let index = self.spans.partition_point(|span| span.range.end <= at);
        let Some(span) = self.spans.get_mut(index) else { return index };
        if span.range.start >= at {
            return index;
        }
        let mut upper = span.clone();
        upper.range.start = at;
        span.range.end = at;
        self.spans.insert(index + 1, upper);
        index + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn t(lane: u64, seq: u64) -> Ticket {
        Ticket { lane: LaneId(lane), seq }
    }

    fn read(range: Range<usize>) -> Access {
        Access { region: Region::of_bytes(range), mode: Mode::Read }
    }

    fn overwrite(range: Range<usize>) -> Access {
        Access { region: Region::of_bytes(range), mode: Mode::Overwrite }
    }

    /// Notes, where nothing else is known to be finished.
    fn note(hazards: &mut Hazards, access: &Access, ticket: Ticket) -> Note {
        hazards.note(access, ticket, |_| false)
    }

    fn conflicts(hazards: &Hazards, access: &Access) -> Vec<Ticket> {
        let mut out = Vec::new();
        hazards.conflicts(access, |t| out.push(t));
        out.sort();
        out.dedup();
        out
    }

    #[test]
    fn the_allocation_is_the_first_write_and_defines_nothing() {
        let hazards = Hazards::new(100, Some(t(0, 1)));
        assert_eq!(conflicts(&hazards, &overwrite(0..100)), [t(0, 1)]);
        assert_eq!(hazards.undefined_in(&Region::of_bytes(10..20)), Some(10..20));
    }

    #[test]
    fn readers_come_after_the_writer_only_and_a_writer_after_them_all() {
        let mut hazards = Hazards::new(8, None);
        note(&mut hazards, &overwrite(0..8), t(0, 1));
        note(&mut hazards, &read(0..8), t(1, 1));
        assert_eq!(conflicts(&hazards, &read(0..8)), [t(0, 1)]);
        note(&mut hazards, &read(0..8), t(2, 1));
        note(&mut hazards, &read(0..8), t(1, 5));
        assert_eq!(conflicts(&hazards, &overwrite(0..8)), [t(0, 1), t(1, 5), t(2, 1)]);
        note(&mut hazards, &overwrite(0..8), t(3, 1));
        assert_eq!(conflicts(&hazards, &read(0..8)), [t(3, 1)]);
    }

    /// Holds what `is_private_to` says against the tickets that are there.
    fn private_to(hazards: &Hazards, lane: u64) -> bool {
        let mut others = false;
        hazards.users(|user| others |= user.lane != LaneId(lane));
        let private = hazards.is_private_to(LaneId(lane));
        assert!(!(private && others), "{hazards:?}");
        private
    }

    #[test]
    fn memory_is_private_to_a_lane_while_no_other_has_touched_it_since_a_write_of_all_of_it() {
        let mut hazards = Hazards::new(8, Some(t(0, 1)));
        assert!(private_to(&hazards, 0) && !private_to(&hazards, 1));
        note(&mut hazards, &read(0..4), t(0, 2));
        assert!(private_to(&hazards, 0));
        note(&mut hazards, &overwrite(0..4), t(1, 1));
        assert!(!private_to(&hazards, 0) && !private_to(&hazards, 1));
        let replaced = note(&mut hazards, &overwrite(0..8), t(1, 2));
        assert!(private_to(&hazards, 1) && !private_to(&hazards, 0));
        hazards.undo(replaced);
        assert!(!private_to(&hazards, 1) && !private_to(&hazards, 0));
        hazards.written_by_host(&Region::of_bytes(0..8));
        assert!(private_to(&hazards, 0) && private_to(&hazards, 1));
        note(&mut hazards, &read(0..8), t(2, 1));
        assert!(private_to(&hazards, 2) && !private_to(&hazards, 0));
        note(&mut hazards, &read(0..8), t(3, 1));
        assert!(!private_to(&hazards, 2) && !private_to(&hazards, 3));
    }

    #[test]
    fn disjoint_ranges_do_not_conflict() {
        let mut hazards = Hazards::new(100, None);
        note(&mut hazards, &overwrite(0..50), t(0, 1));
        assert_eq!(conflicts(&hazards, &overwrite(50..100)), []);
        assert_eq!(conflicts(&hazards, &read(49..51)), [t(0, 1)]);
        assert_eq!(hazards.undefined_in(&Region::of_bytes(0..100)), Some(50..100));
        assert_eq!(hazards.undefined_in(&Region::of_bytes(0..50)), None);
    }

    #[test]
    fn a_refused_write_leaves_what_was_there() {
        let mut hazards = Hazards::new(8, Some(t(0, 1)));
        let replaced = note(&mut hazards, &overwrite(0..8), t(1, 1));
        hazards.undo(replaced);
        assert_eq!(hazards.undefined_in(&Region::of_bytes(0..8)), Some(0..8));
        assert_eq!(conflicts(&hazards, &read(0..8)), [t(0, 1)]);
    }

    #[test]
    fn a_write_refused_half_way_leaves_its_range_undefined_and_to_be_waited_for() {
        let mut hazards = Hazards::new(8, None);
        note(&mut hazards, &overwrite(0..8), t(0, 1));
        let refused = note(&mut hazards, &overwrite(0..4), t(1, 1));
        hazards.undefine(refused);
        assert_eq!(hazards.undefined_in(&Region::of_bytes(0..8)), Some(0..4));
        assert_eq!(conflicts(&hazards, &overwrite(0..4)), [t(1, 1)]);
        note(&mut hazards, &overwrite(0..4), t(2, 1));
        assert_eq!(hazards.undefined_in(&Region::of_bytes(0..8)), None);
    }

    /// Everything a later access could ask.
    fn shown(hazards: &Hazards) -> String {
        let spans: Vec<_> = hazards.spans.iter().map(|span| (span.writer, &span.readers)).collect();
        let Hazards { lanes, last, shared, .. } = hazards;
        format!("{spans:?} {lanes:?} {last:?} {shared}")
    }

    #[test]
    fn a_refused_operation_leaves_the_record_as_it_was() {
        for first in [read(0..8), overwrite(0..8)] {
            for second in [read(0..8), overwrite(0..8)] {
                for lane in [1, 2] {
                    let mut hazards = Hazards::new(8, Some(t(0, 1)));
                    note(&mut hazards, &overwrite(0..8), t(1, 1));
                    note(&mut hazards, &read(0..8), t(1, 2));
                    let before = shown(&hazards);
                    let first = note(&mut hazards, &first, t(lane, 3));
                    let second = note(&mut hazards, &second, t(lane, 3));
                    hazards.undo(second);
                    hazards.undo(first);
                    assert_eq!(shown(&hazards), before);
                }
            }
        }
    }

    #[test]
    fn a_read_noted_since_a_refused_read_stays() {
        let mut hazards = Hazards::new(8, None);
        note(&mut hazards, &overwrite(0..8), t(0, 1));
        note(&mut hazards, &read(0..8), t(1, 1));
        let refused = note(&mut hazards, &read(0..8), t(1, 2));
        note(&mut hazards, &read(0..8), t(2, 1));
        hazards.undo(refused);
        assert_eq!(conflicts(&hazards, &overwrite(0..8)), [t(0, 1), t(1, 1), t(2, 1)]);
        assert!(!private_to(&hazards, 1) && hazards.is_shared());
    }

    #[test]
    fn a_read_noted_behind_a_refused_write_stays() {
        let mut hazards = Hazards::new(8, None);
        note(&mut hazards, &overwrite(0..8), t(0, 1));
        note(&mut hazards, &read(0..8), t(2, 1));
        let replaced = note(&mut hazards, &overwrite(0..8), t(1, 1));
        note(&mut hazards, &read(0..8), t(3, 1));
        hazards.undo(replaced);
        assert_eq!(conflicts(&hazards, &overwrite(0..8)), [t(0, 1), t(2, 1), t(3, 1)]);
    }

    #[test]
    fn memory_is_shared_once_a_second_lane_touches_it() {
        let mut hazards = Hazards::new(8, Some(t(0, 1)));
        note(&mut hazards, &overwrite(0..8), t(1, 1));
        note(&mut hazards, &read(0..8), t(1, 2));
        assert!(!hazards.is_shared(), "the allocation itself does not count");
        note(&mut hazards, &read(0..8), t(2, 1));
        assert!(hazards.is_shared());
    }

    #[test]
    fn memory_handed_over_after_its_work_was_seen_to_end_is_not_shared() {
        let mut hazards = Hazards::new(8, None);
        note(&mut hazards, &overwrite(0..8), t(1, 1));
        hazards.note(&read(0..8), t(2, 1), |last| last == t(1, 1));
        hazards.note(&read(0..8), t(2, 2), |_| false);
        assert!(!hazards.is_shared());
    }
}
