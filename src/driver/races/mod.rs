//! A race checker: whether what crosses the seam orders all that conflicts.
//!
//! It knows of [`Step`]s and of nothing else: not how this crate decides to wait. Two accesses to a
//! byte of which one writes must be ordered by a stream, by an event recorded and waited for, or by
//! the host, which saw the one finish before it enqueued the other. That is a matter of what was
//! called, not of what happened to run when: a race is found whichever bytes came out.
//!
//! - `clock`: how far streams come before each other, and what the host knows;
//! - `streams`: which streams there are;
//! - `blocks`: which memory there is, and in `shadow` the last accesses to the bytes of a block;
//! - `freed`: the memory that nobody may use any more;
//! - `report`: what is found.
//!
//! What the host knows to be finished comes before everything still to be enqueued, so it is let go
//! of: memory goes by what is in flight, and by what was freed.

mod blocks;
mod clock;
mod freed;
#[cfg(test)]
mod random;
mod report;
mod shadow;
mod streams;
#[cfg(test)]
mod tests;

use std::ops::Range;

pub use report::{Race, RaceAccess, RacedMemory};
use smallvec::SmallVec;

use rustc_hash::FxHashMap;

use self::blocks::{Block, Blocks};
use self::clock::{Clock, Host};
use self::freed::Freed;
use self::shadow::{Access, Before};
use self::streams::{EndedStream, Streams};
use super::rows::Rows;
use super::step::{Step, Touched};

/// Races that are remembered: the first ones say most.
const RACES_KEPT: usize = 1_024;
/// So little history that it is never worth looking for what can go.
const HISTORY_ALWAYS_KEPT: usize = 1_024;

const FREE_OF_PINNED: &str = "freeing pinned memory";

/// The state of all that was watched so far.
#[derive(Debug)]
pub(super) struct Checker {
    streams: Streams,
    host: Host,
    /// What the last recording of each live event comes after; `None`: never recorded.
    events: FxHashMap<u64, Option<Clock>>,
    blocks: Blocks,
    freed: Freed,
    /// As [`HISTORY_ALWAYS_KEPT`].
    always_kept: usize,
    /// How much history there was at the last look for what can go.
    kept: usize,
    /// Steps since.
    steps: usize,
    races: Vec<Race>,
    /// Of each race, the end of something that it hangs on, as long as that can be taken back; 0: none.
    hang_on: Vec<u64>,
    /// Ends of device memory and pinned memory so far.
    ends: u64,
}

/// Takes a [`Step`] back, which was told of before its call was made, and refused.
#[derive(Debug)]
pub(super) struct TakeBack(Ended);

/// What had its life ended.
#[derive(Debug)]
enum Ended {
    Nothing,
    Stream(EndedStream),
    Event(u64, Option<Clock>),
    /// By which end, and the free of device memory.
    Block {
        ptr: u64,
        block: Block,
        end: u64,
        free: Option<Access>,
    },
}

impl Default for Checker {
    fn default() -> Self {
        Checker::that_keeps(HISTORY_ALWAYS_KEPT)
    }
}

impl Checker {
    fn that_keeps(always_kept: usize) -> Self {
        Checker {
            streams: Streams::default(),
            host: Host::default(),
            events: FxHashMap::default(),
            blocks: Blocks::default(),
            freed: Freed::default(),
            always_kept,
            kept: 0,
            steps: 0,
            races: Vec::new(),
            hang_on: Vec::new(),
            ends: 0,
        }
    }

    pub(super) fn races(&self) -> &[Race] {
        &self.races
    }

    /// A step of `device`. Steps that end something's life are told of before the call is made,
    /// all others after it has succeeded.
    pub(super) fn step(&mut self, device: u32, step: &Step) -> TakeBack {
        self.forget_known_now_and_then();
        let take_back = match *step {
            Step::StreamDestroyed { stream } => self.streams.destroy(stream).map(Ended::Stream),
            Step::EventDestroyed { event } => {
                self.events.remove(&event).map(|recording| Ended::Event(event, recording))
            }
            Step::Freed { ptr, stream } => self.free(device, ptr.0, stream),
            Step::HostFreed { ptr } | Step::HostUnregistered { ptr } => {
                self.free_pinned(device, ptr)
            }
            _ => {
                self.ends_nothing(device, step);
                None
            }
        };
        TakeBack(take_back.unwrap_or(Ended::Nothing))
    }

    fn ends_nothing(&mut self, device: u32, step: &Step) {
        match *step {
            Step::StreamCreated { stream } => {
                self.streams.create(device, stream, &self.host);
            }
            Step::Named { stream, number, ref name } => {
                let index = self.streams.get(device, stream, &self.host);
                self.streams.at_mut(index).is_named(number, name.clone());
            }
            Step::EventCreated { event } => drop(self.events.insert(event, None)),
            Step::Recorded { event, stream } => {
                let index = self.streams.get(device, stream, &self.host);
                let recording = self.streams.recording(index, &self.host);
                self.events.insert(event, Some(recording));
            }
            Step::Waited { stream, event, lost, nth } => {
                if let Some(Some(recording)) = self.events.get(&event) {
                    let mut recording = recording.clone();
                    recording.forget_known(&self.host);
                    let index = self.streams.get(device, stream, &self.host);
                    match lost {
                        true => self.streams.at_mut(index).lost(nth, recording),
                        false => self.streams.at_mut(index).clock.join(&recording),
                    }
                }
            }
            Step::Queried { event, finished } => {
                if finished && let Some(Some(recording)) = self.events.get_mut(&event) {
                    self.host.learn(recording);
                    recording.forget_known(&self.host);
                }
            }
            Step::Allocated { ptr, bytes, stream } => {
                self.freed.allocated(ptr.0..ptr.0.saturating_add(bytes as u64));
                self.blocks.insert(ptr.0, Block::new(bytes, true));
                let whole = [Touched::new(ptr.0, bytes, true)];
                self.work(device, stream, "allocation", &whole);
            }
            Step::HostAllocated { ptr, bytes, .. } | Step::HostRegistered { ptr, bytes } => {
                self.blocks.insert(ptr, Block::new(bytes, false));
            }
            Step::Work { name, stream, ref touched, .. } => {
                self.work(device, stream, name, touched);
            }
            Step::Owned { ptr, bytes, made_at } => {
                if bytes > 0 {
                    let all = Touched::new(ptr, bytes, true);
                    self.by_host(device, &all, "reuse of pinned memory");
                }
                if let Some((_, block)) = self.blocks.find(ptr) {
                    block.made_at = Some(made_at);
                }
            }
            Step::HostAccess { ptr: start, bytes, writes, row, pitch } => {
                let name = if writes { "write by the host" } else { "read by the host" };
                let touched = Touched { start, bytes, writes, row, pitch };
                self.by_host(device, &touched, name);
            }
            _ => {}
        }
    }

    /// The call that was to end something's life was refused: it lives, and nothing was found to be
    /// wrong with its end. What others did meanwhile with memory that seemed to be free is not known.
    pub(super) fn take_back(&mut self, take_back: TakeBack) {
        match take_back.0 {
            Ended::Nothing => {}
            Ended::Stream(stream) => self.streams.take_back(stream),
            Ended::Event(event, recording) => drop(self.events.insert(event, recording)),
            Ended::Block { ptr, block, end, free } => {
                if let Some(free) = free {
                    self.streams.withdraw(&free);
                    self.freed.take_back(end, ptr);
                }
                self.blocks.insert(ptr, block);
                let mut hang_on = self.hang_on.iter();
                self.races.retain(|_| hang_on.next() != Some(&end));
                self.hang_on.retain(|&hangs_on| hangs_on != end);
            }
        }
    }

    fn free(&mut self, device: u32, ptr: u64, handle: u64) -> Option<Ended> {
        let block = self.blocks.remove(ptr)?;
        self.ends += 1;
        let end = self.ends;
        let index = self.streams.get(device, handle, &self.host);
        let rows = Rows::one(ptr..ptr + block.bytes);
        let free = Access { rows, writes: true, ..self.streams.enqueue(index, "free") };
        let mut conflicts = Conflicts::new();
        self.check_block((ptr, &block), &free, &mut conflicts);
        self.found(conflicts, end);
        let memory = block.memory(ptr);
        let by = RaceAccess::by_device(&free, self.streams.at(index), &memory);
        self.freed.add(memory, by, end);
        Some(Ended::Block { ptr, block, end, free: Some(free) })
    }

    /// Host memory that was freed is not remembered: its addresses can be any other memory's of the
    /// process, of which nobody tells.
    fn free_pinned(&mut self, device: u32, ptr: u64) -> Option<Ended> {
        self.ends += 1;
        let end = self.ends;
        let all = Touched::new(ptr, usize::MAX, true);
        let conflicts = self.check_host(device, &all, FREE_OF_PINNED);
        self.found(conflicts, end);
        let block = self.blocks.remove(ptr)?;
        Some(Ended::Block { ptr, block, end, free: None })
    }

    /// An operation of a stream.
    fn work(&mut self, device: u32, handle: u64, name: &'static str, touched: &[Touched]) {
        let index = self.streams.get(device, handle, &self.host);
        let by = self.streams.enqueue(index, name);
        let touched = || {
            let touched = touched.iter().filter(|touched| touched.bytes > 0);
            touched.map(|t| Access { rows: Rows::of(t), writes: t.writes, ..by })
        };
        let mut conflicts = Conflicts::new();
        for access in touched() {
            let mut at = access.rows.extent().start;
            for (start, block) in self.blocks.over(&access.rows.extent()) {
                self.check_block((start, block), &access, &mut conflicts);
                if start <= at {
                    at = start + block.bytes;
                }
            }
            if at < access.rows.extent().end {
                self.check_freed(&access, &mut conflicts);
            }
        }
        // Noted when all are checked: ranges of one operation do not race with each other.
        for access in touched() {
            for (start, block) in self.blocks.over_mut(&access.rows.extent()) {
                let range = block.part_of(start, &access);
                block.shadow.note(access, range, &self.host);
            }
        }
        self.found(conflicts, 0);
    }

    fn check_block(
        &self,
        (start, block): (u64, &Block),
        access: &Access,
        conflicts: &mut Conflicts,
    ) {
        let stream = self.streams.at(access.stream);
        let before = Before { stream: Some((access.stream, &stream.clock)), host: &self.host };
        let range = block.part_of(start, access);
        block.shadow.check(&access.rows, &range, access.writes, &before, |first, bytes| {
            let memory = block.memory(start);
            add(
                conflicts,
                Conflict {
                    first: RaceAccess::by_device(first, self.streams.at(first.stream), &memory),
                    second: RaceAccess::by_device(access, stream, &memory),
                    bytes,
                    memory,
                    lost_wait: stream.lost_wait_for(first),
                    freed_by: None,
                },
            );
        });
    }

    fn check_freed(&self, access: &Access, conflicts: &mut Conflicts) {
        for (start, freed) in self.freed.over(&access.rows.extent()) {
            let range = start..freed.end();
            let Some(bytes) = access.rows.meet(&Rows::one(range.clone()), &range) else { continue };
            let (memory, stream) = (freed.memory, self.streams.at(access.stream));
            add(
                conflicts,
                Conflict {
                    first: freed.by.clone(),
                    second: RaceAccess::by_device(access, stream, &memory),
                    bytes,
                    memory,
                    lost_wait: None,
                    freed_by: Some(freed.free()),
                },
            );
        }
    }

    /// Something that the host does, here and now.
    fn by_host(&mut self, device: u32, touched: &Touched, name: &'static str) {
        let conflicts = self.check_host(device, touched, name);
        self.found(conflicts, 0);
    }

    fn check_host(&mut self, device: u32, touched: &Touched, name: &'static str) -> Conflicts {
        let mut found = Conflicts::new();
        let before = Before { stream: None, host: &self.host };
        let (rows, writes) = (Rows::of(touched), touched.writes);
        if let Some((start, block)) = self.blocks.find(touched.start) {
            let extent = rows.extent();
            let range = extent.start..extent.end.min(start + block.bytes);
            block.shadow.check(&rows, &range, writes, &before, |first, bytes| {
                let memory = block.memory(start);
                let own = range.start - start..range.end - start;
                add(
                    &mut found,
                    Conflict {
                        first: RaceAccess::by_device(first, self.streams.at(first.stream), &memory),
                        second: RaceAccess::by_host(device, name, own, writes),
                        bytes,
                        memory,
                        lost_wait: None,
                        freed_by: None,
                    },
                );
            });
        }
        found
    }

    fn found(&mut self, conflicts: Conflicts, end: u64) {
        for conflict in conflicts {
            if self.races.len() >= RACES_KEPT {
                return;
            }
            let Conflict { first, second, bytes, memory, lost_wait, freed_by } = conflict;
            let start = memory.ptr.0;
            self.races.push(Race {
                first,
                second,
                range: bytes.start - start..bytes.end - start,
                memory,
                freed: freed_by.is_some(),
                lost_wait,
            });
            self.hang_on.push(freed_by.unwrap_or(end));
        }
    }

    /// As often as history has doubled, so that it costs each step the same.
    fn forget_known_now_and_then(&mut self) {
        self.steps += 1;
        if self.steps <= self.kept.max(self.always_kept) {
            return;
        }
        self.steps = 0;
        let host = &self.host;
        self.blocks.iter_mut().for_each(|block| block.shadow.forget_known(host));
        self.streams.forget_known(host);
        for recording in self.events.values_mut().flatten() {
            recording.forget_known(host);
        }
        self.kept = self.history();
    }

    /// All that a look for what can go looks at.
    fn history(&self) -> usize {
        let blocks = self.blocks.iter().map(|block| 1 + block.shadow.len());
        let events = self.events.values().map(|event| 1 + event.as_ref().map_or(0, Clock::len));
        blocks.sum::<usize>() + events.sum::<usize>() + self.streams.len()
    }
}

type Conflicts = SmallVec<[Conflict; 0]>;

/// An access that is not ordered with one before it.
struct Conflict {
    first: RaceAccess,
    second: RaceAccess,
    /// Addresses that both touch.
    bytes: Range<u64>,
    memory: RacedMemory,
    lost_wait: Option<u64>,
    /// The first access is the free by this end.
    freed_by: Option<u64>,
}

/// Two accesses that race are one conflict, in however many pieces they meet.
fn add(conflicts: &mut Conflicts, conflict: Conflict) {
    let same = |known: &&mut Conflict| {
        (&known.first, &known.second) == (&conflict.first, &conflict.second)
    };
    match conflicts.iter_mut().find(same) {
        Some(known) if known.bytes.end == conflict.bytes.start => {
            known.bytes.end = conflict.bytes.end;
        }
        Some(_) => {}
        None => conflicts.push(conflict),
    }
}
