//! The record against the definition: a history for each byte.

use std::collections::BTreeSet;

use super::*;
use crate::random::SplitMix64;

#[derive(Clone, Debug, Default)]
struct Byte {
    writer: Option<Ticket>,
    readers: Vec<Ticket>,
    defined: bool,
}

#[derive(Debug)]
struct Model {
    bytes: Vec<Byte>,
    shared: bool,
    allocated: Ticket,
    /// Not known to be finished.
    unfinished: BTreeSet<Ticket>,
}

/// What the model has to put back.
#[derive(Debug)]
struct Taken {
    access: Access,
    by: Ticket,
    /// For each byte of the access: where, and what was there.
    bytes: Vec<(usize, Byte)>,
    shared: bool,
}

fn bytes_of(region: &Region) -> impl Iterator<Item = usize> + use<> {
    let (start, row, rows, pitch) = (region.start(), region.row(), region.rows(), region.pitch());
    (0..rows).flat_map(move |i| (0..row).map(move |j| start + i * pitch + j))
}

impl Model {
    /// Ascending, each once.
    fn unfinished_of(&self, mut tickets: Vec<Ticket>) -> Vec<Ticket> {
        tickets.sort_unstable();
        tickets.dedup();
        tickets.retain(|ticket| self.unfinished.contains(ticket));
        tickets
    }

    fn of(&self, region: &Region) -> impl Iterator<Item = (usize, &Byte)> {
        bytes_of(region).map(|at| (at, &self.bytes[at]))
    }

    /// Those of `region` not known to be finished: writers, and readers where `readers`.
    fn users(&self, region: &Region, readers: bool) -> Vec<Ticket> {
        let mut users = Vec::new();
        for (_, byte) in self.of(region) {
            users.extend(byte.writer);
            users.extend(byte.readers.iter().filter(|_| readers));
        }
        self.unfinished_of(users)
    }

    /// The same without readers of a byte that a later one of their lane stands for. There are such
    /// where a write between the two was taken back, and a record may keep them or not.
    fn needed(&self, region: &Region, readers: bool) -> Vec<Ticket> {
        let mut needed = Vec::new();
        for (_, byte) in self.of(region) {
            needed.extend(byte.writer);
            let is_last = |reader: &&Ticket| {
                !byte.readers.iter().any(|other| other.lane == reader.lane && other > *reader)
            };
            needed.extend(byte.readers.iter().filter(|_| readers).filter(is_last));
        }
        self.unfinished_of(needed)
    }

    fn undefined_in(&self, region: &Region) -> Option<Range<usize>> {
        let first = self.of(region).find(|(_, byte)| !byte.defined)?.0;
        let rest = self.of(region).skip_while(|(at, _)| *at < first);
        let run = rest.enumerate().take_while(|(i, (at, byte))| *at == first + i && !byte.defined);
        // Rows that touch are one piece, so a run within the region ends with its row.
        Some(first..first + run.count())
    }

    fn note(&mut self, access: &Access, by: Ticket) -> Taken {
        let shared = self.shared;
        let bytes: Vec<_> = self.of(&access.region).map(|(at, byte)| (at, byte.clone())).collect();
        self.shared |= self
            .users(&access.region, true)
            .iter()
            .any(|user| user.lane != by.lane && *user != self.allocated);
        for (at, _) in &bytes {
            let byte = &mut self.bytes[*at];
            if access.mode.writes() {
                *byte = Byte { writer: Some(by), readers: Vec::new(), defined: true };
            } else {
                let of_lane = byte.readers.iter().filter(|reader| reader.lane == by.lane);
                if let Some(latest) = of_lane.max().copied() {
                    byte.readers.retain(|reader| *reader != latest);
                }
                byte.readers.push(by);
            }
        }
        self.unfinished.insert(by);
        Taken { access: *access, by, bytes, shared }
    }

    fn undo(&mut self, replaced: Taken, is_last: bool) {
        let Taken { access, by, bytes, shared } = replaced;
        if is_last {
            self.shared = shared;
        }
        for (at, before) in bytes {
            let byte = &mut self.bytes[at];
            if access.mode.writes() {
                if byte.writer == Some(by) {
                    let since = std::mem::replace(byte, before).readers;
                    byte.readers.extend(since);
                }
            } else if byte.readers.contains(&by) {
                byte.readers.retain(|reader| *reader != by);
                let of_lane = before.readers.iter().filter(|reader| reader.lane == by.lane);
                byte.readers.extend(of_lane.max());
            }
        }
    }

    fn undefine(&mut self, replaced: &Taken) {
        for (at, _) in replaced.bytes.iter().filter(|_| replaced.access.mode.writes()) {
            let byte = &mut self.bytes[*at];
            byte.defined &= byte.writer != Some(replaced.by);
        }
    }
}

const LANES: u64 = 5;

/// An operation of one or two accesses that may still be taken back.
struct Pending {
    notes: Notes,
    /// The same in the model.
    taken: Vec<Taken>,
    /// How much was noted up to it.
    number: u64,
}

impl Pending {
    fn by(&self) -> Ticket {
        self.taken[0].by
    }
}

/// Two records of the same accesses, and those of them that may still be taken back.
struct Both {
    random: SplitMix64,
    hazards: Hazards,
    model: Model,
    seq: u64,
    pending: Vec<Pending>,
    /// Counts as a record does what was noted and not taken back in turn.
    noted: u64,
    pitches: [usize; 3],
}

impl Both {
    fn new(mut random: SplitMix64) -> Self {
        let bytes = 1 + random.below(40) as usize;
        let allocated = Ticket { lane: LaneId(random.below(LANES)), seq: 1 };
        let byte = Byte { writer: Some(allocated), ..Byte::default() };
        let model = Model {
            bytes: vec![byte; bytes],
            shared: false,
            allocated,
            unfinished: BTreeSet::from([allocated]),
        };
        let pitches = [(); 3].map(|()| 2 + random.below(7) as usize);
        let hazards = Hazards::new(bytes, Some(allocated));
        Both { random, hazards, model, seq: 1, pending: Vec::new(), noted: 0, pitches }
    }

    fn below(&mut self, n: usize) -> usize {
        self.random.below(n as u64) as usize
    }

    fn any_region(&mut self) -> Region {
        let bytes = self.model.bytes.len();
        let which = self.below(8);
        let pitch = self.pitches[[0, 0, 0, 0, 1, 2, 0, 0][which]];
        if which >= 6 || bytes < 2 * pitch {
            if self.below(2) == 0 {
                return Region::of_bytes(0..bytes);
            }
            let start = self.below(bytes);
            let len = self.below(bytes - start + 1);
            return Region::of_bytes(start..start + len);
        }
        let row = 1 + self.below(pitch);
        let start = self.below(bytes - pitch - row + 1);
        let start = if self.below(2) == 0 { start % pitch } else { start };
        let most = (bytes - start - row) / pitch + 1;
        let rows = if self.below(2) == 0 { most } else { 1 + self.below(most) };
        Region::of_rows(start, row, rows, pitch)
    }

    /// One that no operation that may still be taken back keeps away: of two accesses to a byte
    /// where one writes, the write is the earlier.
    fn any_access(&mut self) -> Option<Access> {
        let modes = [Mode::Read, Mode::Read, Mode::Update, Mode::Overwrite];
        let access = Access { region: self.any_region(), mode: modes[self.below(4)] };
        let mut pending = self.pending.iter().flat_map(|pending| &pending.taken);
        let legal = !access.mode.writes()
            || pending.all(|taken| !taken.access.region.overlaps(&access.region));
        legal.then_some(access)
    }

    fn any_lane(&mut self) -> LaneId {
        loop {
            let lane = LaneId(self.random.below(LANES));
            if self.pending.iter().all(|pending| pending.by().lane != lane) {
                return lane;
            }
        }
    }

    fn compare(&mut self, access: &Access, lane: LaneId) {
        let (hazards, model) = (&self.hazards, &self.model);
        let Access { region, mode } = access;
        let all = Region::of_bytes(0..model.bytes.len());
        let mut found = [Vec::new(), Vec::new()];
        hazards.conflicts(access, |ticket| found[0].push(ticket));
        hazards.users(|ticket| found[1].push(ticket));
        let private = hazards.is_private_to(lane);
        assert!(!private || found[1].iter().all(|user| user.lane == lane), "{hazards:?}");
        let found = found.map(|tickets| model.unfinished_of(tickets));
        let asked = [(region, mode.writes()), (&all, true)];
        for (found, (region, readers)) in found.into_iter().zip(asked) {
            let expected = model.users(region, readers);
            if found != expected {
                let missing = |ticket| !found.contains(ticket);
                let wrong = found.iter().any(|ticket| !expected.contains(ticket))
                    || model.needed(region, readers).iter().any(missing);
                assert!(!wrong, "{found:?}, not {expected:?}, for {access:?} of {hazards:?}");
            }
        }
        assert_eq!(hazards.undefined_in(region), model.undefined_in(region), "{region:?}");
        let mut undefined = Vec::new();
        for around in hazards.undefined_around(region) {
            region.each_common(&around, |range| undefined.extend(range));
        }
        undefined.sort_unstable();
        let expected = model.of(region).filter(|(_, byte)| !byte.defined).map(|(at, _)| at);
        assert_eq!(undefined, expected.collect::<Vec<_>>(), "{region:?} of {hazards:?}");
        assert_eq!(hazards.is_shared(), model.shared, "{hazards:?}");
    }

    /// One operation of one or two accesses.
    fn operation(&mut self) {
        let lane = self.any_lane();
        self.seq += 1;
        let by = Ticket { lane, seq: self.seq };
        let (mut notes, mut taken) = (Notes::default(), Vec::new());
        for _ in 0..1 + self.below(2) {
            let Some(access) = self.any_access() else { continue };
            self.compare(&access, lane);
            self.note(&access, by, &mut notes);
            taken.push(self.model.note(&access, by));
            self.noted += 1;
        }
        if !taken.is_empty() {
            self.pending.push(Pending { notes, taken, number: self.noted });
        }
        let mut most = self.below(4).min(LANES as usize - 1);
        // Some are taken back or stay at once, some after others were noted.
        while self.pending.len() > most {
            self.decide();
            most = most.max(self.below(3));
        }
    }

    /// Notes in the record: in one look at it, where nothing is read that nobody wrote.
    fn note(&mut self, access: &Access, by: Ticket, notes: &mut Notes) {
        let unfinished = &self.model.unfinished;
        let is_finished = |ticket| !unfinished.contains(&ticket);
        let (mut conflicts, mut after) = (Vec::new(), Vec::new());
        let before = notes.notes.len();
        self.hazards.conflicts(access, |user| conflicts.push(user));
        conflicts.retain(|user| user.lane != by.lane);
        let add = |user| after.push(user);
        match self.hazards.access(access, by, is_finished, add, notes) {
            Ok(noted) => {
                assert_eq!(after, conflicts, "{access:?}");
                assert_eq!(notes.notes.len(), before + usize::from(noted));
                if !noted {
                    self.hazards.note(access, by, is_finished, notes);
                }
            }
            Err(undefined) => {
                assert_ne!(access.mode, Mode::Overwrite);
                assert_eq!(self.model.undefined_in(&access.region), Some(undefined));
                assert_eq!(notes.notes.len(), before);
                self.hazards.note(access, by, is_finished, notes);
            }
        }
    }

    fn decide(&mut self) {
        let index = self.below(self.pending.len());
        let Pending { mut notes, taken, number } = self.pending.swap_remove(index);
        match self.random.below(6) {
            0 | 1 => {
                let is_last = number == self.noted;
                for taken in taken.into_iter().rev() {
                    self.hazards.undo(&mut notes);
                    self.model.undo(taken, is_last);
                    self.noted = if is_last { self.noted - 1 } else { self.noted + 1 };
                }
            }
            2 => {
                for taken in taken.iter().rev() {
                    self.hazards.undefine(&mut notes);
                    self.model.undefine(taken);
                }
            }
            _ => {}
        }
    }

    /// Some operations are seen to have finished, and now and then all that are is forgotten.
    fn finish(&mut self) {
        let pending: Vec<_> = self.pending.iter().map(Pending::by).collect();
        let keep = self.below(4);
        let mut random = self.random;
        self.model.unfinished.retain(|ticket| {
            pending.contains(ticket) || random.below(4) < keep as u64 || ticket.seq % 7 == 3
        });
        self.random = random;
        if self.below(2) == 0 {
            let unfinished = &self.model.unfinished;
            self.hazards.sweep(|ticket| !unfinished.contains(&ticket));
        }
    }

    fn write_on_the_host(&mut self) {
        let region = self.any_region();
        if self.model.users(&region, true).is_empty() {
            self.hazards.written_by_host(&region);
            self.noted += 1;
            for at in bytes_of(&region) {
                self.model.bytes[at] = Byte { defined: true, ..Byte::default() };
            }
            if region.bytes() == self.model.bytes.len() {
                self.model.shared = false;
            }
        }
    }
}

#[test]
fn the_record_says_of_every_byte_what_a_history_for_each_byte_says() {
    for seed in 0..1_000 {
        let mut both = Both::new(SplitMix64::new(seed));
        for _ in 0..20 {
            both.operation();
            match both.random.below(6) {
                0 => both.finish(),
                1 => both.write_on_the_host(),
                _ => {}
            }
        }
    }
}
