//! A race checker: whether what crosses the seam orders all that conflicts.
//!
//! It knows of [`Step`]s and of nothing else: not how this crate decides to wait. Two accesses to a
//! byte of which one writes must be ordered by a stream, by an event recorded and waited for, or by
//! the host, which saw the one finish before it enqueued the other. That is a matter of what was
//! called, not of what happened to run when: a race is found whichever bytes came out.
//!
//! - `clock`: how far streams come before each other, and what the host knows;
//! - `shadow`: the last accesses to the bytes of a block;
//! - `report`: what is found.
//!
//! What the host knows to be finished comes before everything still to be enqueued, so it is let go
//! of: memory goes by what is in flight.

mod clock;
#[cfg(test)]
mod random;
mod report;
mod shadow;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::Location;

pub use report::{Race, RaceAccess, RacedMemory};
use smallvec::SmallVec;

use rustc_hash::FxHashMap;

use self::clock::{Clock, Host};
use self::shadow::{Access, Before, Shadow};
use super::step::{Step, Touched};

/// Races that are remembered: the first ones say most.
const RACES_KEPT: usize = 1_024;
/// Pieces of history that are never worth looking for what can go.
const PIECES_ALWAYS_KEPT: usize = 1_024;

/// The state of all that was watched so far.
#[derive(Debug, Default)]
pub(super) struct Checker {
    streams: Vec<StreamState>,
    /// Live streams by handle.
    by_handle: FxHashMap<u64, u32>,
    /// Destroyed streams whose number can be had again once the host knows all of them.
    destroyed: Vec<u32>,
    host: Host,
    /// What the last recording of each live event comes after; `None`: never recorded.
    events: FxHashMap<u64, Option<Clock>>,
    /// By address of their first byte. They do not overlap.
    blocks: BTreeMap<u64, Block>,
    /// Blocks freed by an operation that the host does not know to be finished.
    freed: BTreeMap<u64, (Block, Access)>,
    /// Pieces of history at the last look for what can go.
    pieces_kept: usize,
    /// Steps since.
    steps: usize,
    races: Vec<Race>,
}

#[derive(Debug)]
struct StreamState {
    handle: u64,
    device: u32,
    /// What comes before its next operation, beside what the host knows and its own.
    clock: Clock,
    /// Operations so far.
    number: u64,
}

#[derive(Clone, Debug)]
struct Block {
    bytes: u64,
    on_device: bool,
    made_at: Option<&'static Location<'static>>,
    shadow: Shadow,
}

/// Takes a [`Step`] back, which was told of before its call was made, and refused.
#[derive(Debug)]
pub(super) struct TakeBack(Ended);

/// What had its life ended.
#[derive(Debug)]
enum Ended {
    Nothing,
    Stream(u64, u32),
    Event(u64, Option<Clock>),
    Block(u64, Block),
}

impl TakeBack {
    pub(super) fn nothing() -> Self {
        TakeBack(Ended::Nothing)
    }
}

impl Checker {
    pub(super) fn races(&self) -> &[Race] {
        &self.races
    }

    /// A step of `device`. Steps that end something's life are told of before the call is made,
    /// all others after it has succeeded.
    pub(super) fn step(&mut self, device: u32, step: &Step) -> TakeBack {
        match *step {
            Step::StreamCreated { stream } => drop(self.new_stream(device, stream)),
            Step::StreamDestroyed { stream } => {
                if let Some(index) = self.by_handle.remove(&stream) {
                    self.destroyed.push(index);
                    return TakeBack(Ended::Stream(stream, index));
                }
            }
            Step::EventCreated { event } => drop(self.events.insert(event, None)),
            Step::EventDestroyed { event } => {
                if let Some(recording) = self.events.remove(&event) {
                    return TakeBack(Ended::Event(event, recording));
                }
            }
            Step::Recorded { event, stream } => {
                let index = self.stream(device, stream);
                let recording = self.recording(index);
                self.events.insert(event, Some(recording));
            }
            Step::Waited { lost: true, .. } => {}
            Step::Waited { stream, event, .. } => {
                if let Some(Some(recording)) = self.events.get(&event) {
                    let mut recording = recording.clone();
                    recording.forget_known(&self.host);
                    let index = self.stream(device, stream) as usize;
                    self.streams[index].clock.join(&recording);
                }
            }
            Step::Queried { event, finished } => {
                if finished && let Some(Some(recording)) = self.events.get_mut(&event) {
                    self.host.learn(recording);
                    recording.forget_known(&self.host);
                }
            }
            Step::Allocated { ptr, bytes, stream } => {
                self.freed.remove(&ptr.0);
                let block = Block::new(bytes, true);
                self.blocks.insert(ptr.0, block);
                let whole = [Touched::new(ptr.0, bytes, true)];
                self.work(device, stream, "allocation", &whole);
            }
            Step::Freed { ptr, stream } => {
                let Some(bytes) = self.blocks.get(&ptr.0).map(|block| block.bytes) else {
                    return TakeBack::nothing();
                };
                let whole = [Touched::new(ptr.0, bytes as usize, true)];
                let by = self.work(device, stream, "free", &whole);
                if let Some(block) = self.blocks.remove(&ptr.0) {
                    let free = Access { first: 0, end: bytes, ..by };
                    self.freed.insert(ptr.0, (block.clone(), free));
                    return TakeBack(Ended::Block(ptr.0, block));
                }
            }
            Step::HostAllocated { ptr, bytes } => {
                drop(self.blocks.insert(ptr, Block::new(bytes, false)));
            }
            Step::HostFreed { ptr } => {
                self.by_host(device, ptr, usize::MAX, true, "freeing pinned memory");
                if let Some(block) = self.blocks.remove(&ptr) {
                    return TakeBack(Ended::Block(ptr, block));
                }
            }
            Step::Work { name, stream, ref touched, .. } => {
                self.work(device, stream, name, touched);
            }
            Step::Owned { ptr, bytes, made_at } => {
                if bytes > 0 {
                    self.by_host(device, ptr, bytes, true, "reuse of pinned memory");
                }
                if let Some((_, block)) = find(&mut self.blocks, ptr) {
                    block.made_at = Some(made_at);
                }
            }
            Step::HostAccess { ptr, bytes, writes } => {
                let name = if writes { "write by the host" } else { "read by the host" };
                self.by_host(device, ptr, bytes, writes, name);
            }
            Step::Other { .. } => {}
        }
        TakeBack::nothing()
    }

    /// The call that was to end something's life was refused: it lives.
    pub(super) fn take_back(&mut self, take_back: TakeBack) {
        match take_back.0 {
            Ended::Nothing => {}
            Ended::Stream(handle, index) => {
                self.destroyed.retain(|&destroyed| destroyed != index);
                self.by_handle.insert(handle, index);
            }
            Ended::Event(event, recording) => drop(self.events.insert(event, recording)),
            Ended::Block(ptr, block) => {
                self.freed.remove(&ptr);
                self.blocks.insert(ptr, block);
            }
        }
    }

    fn new_stream(&mut self, device: u32, handle: u64) -> u32 {
        let (streams, host) = (&mut self.streams, &self.host);
        let known = |&index: &u32| host.knows(index, streams[index as usize].number);
        let index = match self.destroyed.iter().position(known) {
            Some(at) => {
                let index = self.destroyed.swap_remove(at);
                let stream = &mut streams[index as usize];
                (stream.handle, stream.device, stream.clock) = (handle, device, Clock::default());
                index
            }
            None => {
                streams.push(StreamState { handle, device, clock: Clock::default(), number: 0 });
                streams.len() as u32 - 1
            }
        };
        self.by_handle.insert(handle, index);
        index
    }

    /// One that was made before anybody watched is met here first.
    fn stream(&mut self, device: u32, handle: u64) -> u32 {
        match self.by_handle.get(&handle) {
            Some(&index) => index,
            None => self.new_stream(device, handle),
        }
    }

    /// What an event recorded on the stream now comes after.
    fn recording(&mut self, index: u32) -> Clock {
        let StreamState { clock, number, .. } = &mut self.streams[index as usize];
        clock.forget_known(&self.host);
        let mut recording = clock.clone();
        recording.raise(index, *number);
        recording
    }

    /// An operation of a stream.
    fn work(
        &mut self,
        device: u32,
        handle: u64,
        name: &'static str,
        touched: &[Touched],
    ) -> Access {
        let index = self.stream(device, handle);
        self.streams[index as usize].number += 1;
        let number = self.streams[index as usize].number;
        let by = |first, end, writes| Access { stream: index, number, name, first, end, writes };
        let mut conflicts = SmallVec::<[Conflict; 1]>::new();
        for access in touched.iter().filter(|access| access.bytes > 0) {
            let clock = &self.streams[index as usize].clock;
            let before = Before { stream: Some((index, clock)), host: &self.host };
            let Some((start, block)) = find(&mut self.blocks, access.start) else {
                if let Some((start, block, free)) = find_freed(&self.freed, access.start) {
                    let end = (access.range().end - start).min(block.bytes);
                    let second = by(access.start - start, end, access.writes);
                    let (first, range) = (*free, second.range());
                    conflicts.push(Conflict {
                        start,
                        freed: true,
                        first,
                        second: Some(second),
                        range,
                    });
                }
                continue;
            };
            let end = (access.range().end - start).min(block.bytes);
            let second = by(access.start - start, end, access.writes);
            block.shadow.check(second.range(), access.writes, &before, |&first, range| {
                let second = Some(second);
                conflicts.push(Conflict { start, freed: false, first, second, range });
            });
        }
        // Noted when all are checked: ranges of one operation do not race with each other.
        for access in touched.iter().filter(|access| access.bytes > 0) {
            if let Some((start, block)) = find(&mut self.blocks, access.start) {
                let end = (access.range().end - start).min(block.bytes);
                block.shadow.note(by(access.start - start, end, access.writes), &self.host);
            }
        }
        for conflict in conflicts {
            self.found(device, conflict, name);
        }
        self.forget_known_now_and_then();
        by(0, 0, false)
    }

    /// Something that the host does, here and now.
    fn by_host(&mut self, device: u32, ptr: u64, bytes: usize, writes: bool, name: &'static str) {
        let mut conflicts = SmallVec::<[Conflict; 1]>::new();
        let before = Before { stream: None, host: &self.host };
        if let Some((start, block)) = find(&mut self.blocks, ptr) {
            let end = ptr.saturating_add(bytes as u64).min(start + block.bytes);
            block.shadow.check(ptr - start..end - start, writes, &before, |&first, range| {
                conflicts.push(Conflict { start, freed: false, first, second: None, range });
            });
        }
        for conflict in conflicts {
            self.found(device, conflict, name);
        }
    }

    fn found(&mut self, device: u32, conflict: Conflict, name: &'static str) {
        let Conflict { start, freed, first, second, range } = conflict;
        if self.races.len() >= RACES_KEPT {
            return;
        }
        let block = match freed {
            true => self.freed.get(&start).map(|(block, _)| block),
            false => self.blocks.get(&start),
        };
        let Some(block) = block else { return };
        let memory = RacedMemory::new(start, block.bytes, block.on_device, block.made_at);
        let described = |access: Access| {
            let StreamState { handle, device, .. } = self.streams[access.stream as usize];
            RaceAccess::by_device(access, device, handle)
        };
        let second = match second {
            Some(access) => described(access),
            None => RaceAccess::by_host(device, name, range.clone()),
        };
        self.races.push(Race::new(described(first), second, range, memory, freed));
    }

    /// As often as history has doubled, so that it costs each step the same.
    fn forget_known_now_and_then(&mut self) {
        self.steps += 1;
        if self.steps < self.pieces_kept.max(PIECES_ALWAYS_KEPT) {
            return;
        }
        self.steps = 0;
        let host = &self.host;
        self.freed.retain(|_, (_, free)| !host.knows(free.stream, free.number));
        self.blocks.values_mut().for_each(|block| block.shadow.forget_known(host));
        self.streams.iter_mut().for_each(|stream| stream.clock.forget_known(host));
        for recording in self.events.values_mut().flatten() {
            recording.forget_known(host);
        }
        self.pieces_kept = self.pieces();
    }

    fn pieces(&self) -> usize {
        self.blocks.values().map(|block| 1 + block.shadow.len()).sum::<usize>() + self.freed.len()
    }
}

/// An access that is not ordered with one before it.
struct Conflict {
    /// Where the block begins.
    start: u64,
    /// The first access is its free.
    freed: bool,
    first: Access,
    /// `None`: the host's.
    second: Option<Access>,
    /// Bytes that both touch, from the block's first.
    range: Range<u64>,
}

impl Block {
    fn new(bytes: usize, on_device: bool) -> Self {
        Block { bytes: bytes as u64, on_device, made_at: None, shadow: Shadow::default() }
    }
}

/// The block that has the address, and where it begins.
fn find(blocks: &mut BTreeMap<u64, Block>, address: u64) -> Option<(u64, &mut Block)> {
    let (&start, block) = blocks.range_mut(..=address).next_back()?;
    (address - start < block.bytes).then_some((start, block))
}

fn find_freed(
    freed: &BTreeMap<u64, (Block, Access)>,
    address: u64,
) -> Option<(u64, &Block, &Access)> {
    let (&start, (block, free)) = freed.range(..=address).next_back()?;
    (address - start < block.bytes).then_some((start, block, free))
}
