//! The checker against the definition: random steps, judged by brute force as well.

use std::collections::HashMap;
use std::ops::Range;
use std::panic::Location;

use super::*;
use crate::driver::{DevicePtr, DriverCall};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }
}

/// Handles of streams and of events, from 1.
const HANDLES: u64 = 5;
/// Where device memory is.
const MEMORY: Range<u64> = 0x1000..0x1020;
/// The one pinned block.
const PINNED: Range<u64> = 0x9000..0x9010;

/// What a driver sees.
#[derive(Debug)]
enum Seen {
    Step(Step),
    /// An end that is refused, and what other threads do before it is.
    Refused(Step, Vec<Step>),
}

/// What there is, and what a call is about to end, which nobody names meanwhile.
#[derive(Default)]
struct World {
    streams: [bool; HANDLES as usize + 1],
    events: [bool; HANDLES as usize + 1],
    blocks: Vec<Range<u64>>,
    pinned: bool,
    ending: Option<Step>,
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Streams belong to two devices.
fn device_of(step: &Step) -> u32 {
    match *step {
        Step::StreamCreated { stream }
        | Step::StreamDestroyed { stream }
        | Step::Recorded { stream, .. }
        | Step::Waited { stream, .. }
        | Step::Allocated { stream, .. }
        | Step::Freed { stream, .. }
        | Step::Work { stream, .. } => (stream % 2) as u32,
        _ => 0,
    }
}

impl World {
    fn new() -> Self {
        let mut world = World::default();
        // Some were made before anybody watched.
        world.streams[1..4].fill(true);
        world.events[1..5].fill(true);
        world
    }

    fn stream(&self, random: &mut Random) -> Option<u64> {
        let stream = 1 + random.below(HANDLES);
        let ends = matches!(self.ending, Some(Step::StreamDestroyed { stream: s }) if s == stream);
        (self.streams[stream as usize] && !ends).then_some(stream)
    }

    fn event(&self, random: &mut Random) -> Option<u64> {
        let event = 1 + random.below(HANDLES);
        let ends = matches!(self.ending, Some(Step::EventDestroyed { event: e }) if e == event);
        (self.events[event as usize] && !ends).then_some(event)
    }

    /// Whether nobody is freeing what is there.
    fn stays(&self, range: &Range<u64>) -> bool {
        match self.ending {
            Some(Step::Freed { ptr, .. }) => {
                let freed = self.blocks.iter().find(|block| block.start == ptr.0);
                freed.is_none_or(|freed| !overlap(freed, range))
            }
            Some(Step::HostFreed { .. }) => !overlap(&PINNED, range),
            _ => true,
        }
    }

    fn block(&self, random: &mut Random) -> Option<Range<u64>> {
        let block = self.blocks.get(random.below(4) as usize)?;
        self.stays(block).then(|| block.clone())
    }

    /// A part of some memory: mostly of live blocks.
    fn part(&self, random: &mut Random) -> Option<Range<u64>> {
        let whole = match random.below(64) {
            0..8 => MEMORY,
            8..18 if self.pinned => PINNED,
            _ => self.block(random)?,
        };
        let start = whole.start + random.below(whole.end - whole.start);
        let part = start..start + 1 + random.below(whole.end - start);
        self.stays(&part).then_some(part)
    }

    fn touched(&self, random: &mut Random) -> Option<Touched> {
        let part = self.part(random)?;
        let bytes = part.end - part.start;
        let writes = random.one_in(3);
        if random.one_in(2) {
            let (row, pitch) = (1 + random.below(3), 1 + random.below(5));
            let rows = bytes.saturating_sub(row) / pitch;
            let rows = (row as usize, rows as usize, pitch as usize);
            return Some(Touched::in_rows(part.start, rows, writes));
        }
        Some(Touched::new(part.start, bytes as usize, writes))
    }

    /// One that could come next, if the dice say so.
    fn step(&self, random: &mut Random) -> Option<Step> {
        Some(match random.below(40) {
            0..10 => {
                let stream = self.stream(random)?;
                let touched = (0..1 + random.below(2)).filter_map(|_| self.touched(random));
                let touched = touched.collect();
                let call = DriverCall::Launch;
                Step::Work { call, name: "work", stream, function: 0, touched }
            }
            10..17 => Step::Recorded { event: self.event(random)?, stream: self.stream(random)? },
            17..25 => {
                let (event, stream) = (self.event(random)?, self.stream(random)?);
                Step::Waited { stream, event, lost: random.one_in(8), nth: 0 }
            }
            25..30 => Step::Queried { event: self.event(random)?, finished: !random.one_in(3) },
            30..32 => {
                let start = MEMORY.start + random.below(MEMORY.end - MEMORY.start);
                let bytes = 1 + random.below(MEMORY.end - start);
                let range = start..start + bytes;
                if self.blocks.iter().any(|block| overlap(block, &range)) {
                    return None;
                }
                let (ptr, bytes) = (DevicePtr(start), bytes as usize);
                Step::Allocated { ptr, bytes, stream: self.stream(random)? }
            }
            32..34 => {
                let ptr = DevicePtr(self.block(random)?.start);
                Step::Freed { ptr, stream: self.stream(random)? }
            }
            34 => match 1 + random.below(HANDLES) {
                event if self.events[event as usize] => {
                    Step::EventDestroyed { event: self.event(random)? }
                }
                event => Step::EventCreated { event },
            },
            35 => match 1 + random.below(HANDLES) {
                stream if self.streams[stream as usize] => {
                    Step::StreamDestroyed { stream: self.stream(random)? }
                }
                stream => Step::StreamCreated { stream },
            },
            36 if !self.pinned => Step::HostAllocated {
                ptr: PINNED.start,
                bytes: (PINNED.end - PINNED.start) as usize,
            },
            37 if self.pinned && self.stays(&PINNED) && random.one_in(3) => {
                Step::HostFreed { ptr: PINNED.start }
            }
            38 if self.pinned && self.stays(&PINNED) => {
                let bytes = (random.below(2) * (PINNED.end - PINNED.start)) as usize;
                Step::Owned { ptr: PINNED.start, bytes, made_at: Location::caller() }
            }
            39 if self.pinned && self.stays(&PINNED) => {
                let bytes = 1 + random.below(PINNED.end - PINNED.start) as usize;
                Step::HostAccess { ptr: PINNED.start, bytes, writes: random.one_in(2) }
            }
            _ => return None,
        })
    }

    /// Mostly has the step come after all that is on the streams, or nearly, or else there would be a
    /// race in nearly all that is made here.
    fn order(&self, step: &Step, random: &mut Random, seen: &mut Vec<Seen>) {
        let (touches, by) = match *step {
            Step::Work { stream, .. } | Step::Freed { stream, .. } => (true, Some(stream)),
            Step::HostFreed { .. } | Step::Owned { .. } | Step::HostAccess { .. } => (true, None),
            _ => (false, None),
        };
        if !touches || random.one_in(5) {
            return;
        }
        for stream in 1..=HANDLES {
            let Some(event) = self.event(random) else { continue };
            if !self.streams[stream as usize] || random.one_in(32) {
                continue;
            }
            seen.push(Seen::Step(Step::Recorded { event, stream }));
            seen.push(Seen::Step(match by {
                Some(by) => Step::Waited { stream: by, event, lost: random.one_in(64), nth: 0 },
                None => Step::Queried { event, finished: true },
            }));
        }
    }

    fn has(&mut self, step: &Step) {
        match *step {
            Step::StreamCreated { stream } => self.streams[stream as usize] = true,
            Step::StreamDestroyed { stream } => self.streams[stream as usize] = false,
            Step::EventCreated { event } => self.events[event as usize] = true,
            Step::EventDestroyed { event } => self.events[event as usize] = false,
            Step::Allocated { ptr, bytes, .. } => self.blocks.push(ptr.0..ptr.0 + bytes as u64),
            Step::Freed { ptr, .. } => self.blocks.retain(|block| block.start != ptr.0),
            Step::HostAllocated { .. } => self.pinned = true,
            Step::HostFreed { .. } => self.pinned = false,
            _ => {}
        }
    }
}

fn is_end(step: &Step) -> bool {
    matches!(
        step,
        Step::StreamDestroyed { .. }
            | Step::EventDestroyed { .. }
            | Step::Freed { .. }
            | Step::HostFreed { .. }
    )
}

/// What a driver could see: of live objects, each handle and address of one at a time.
fn seen(random: &mut Random, count: usize) -> Vec<Seen> {
    let mut world = World::new();
    let mut seen = Vec::new();
    while seen.len() < count {
        let Some(step) = world.step(random) else { continue };
        if !is_end(&step) || !random.one_in(3) {
            world.order(&step, random, &mut seen);
            world.has(&step);
            seen.push(Seen::Step(step));
            continue;
        }
        world.ending = Some(step.clone());
        let mut meanwhile = Vec::new();
        for _ in 0..random.below(8) {
            if let Some(step) = world.step(random) {
                world.has(&step);
                meanwhile.push(step);
            }
        }
        world.ending = None;
        seen.push(Seen::Refused(step, meanwhile));
    }
    seen
}

/// Whose a byte is.
#[derive(Clone, Copy, PartialEq)]
struct Life {
    number: usize,
    freed: bool,
}

/// An access of an operation of the device to a byte.
struct Judged {
    /// Which operation.
    at: usize,
    byte: u64,
    life: usize,
    writes: bool,
}

/// The definition, by brute force: two accesses to one byte, of which one writes, and no path from the
/// one to the other; or one to a byte that was freed.
#[derive(Default)]
struct Definition {
    /// Operations so far.
    count: usize,
    /// Sets of operations: what each event's recording comes after, and what the host knows.
    recordings: HashMap<u64, Vec<usize>>,
    host: Vec<usize>,
    /// For each stream, all that comes before its next operation.
    streams: HashMap<u64, Vec<usize>>,
    bytes: HashMap<u64, Life>,
    lives: usize,
    accesses: Vec<Judged>,
}

fn join(into: &mut Vec<usize>, from: &[usize]) {
    into.extend_from_slice(from);
    into.sort_unstable();
    into.dedup();
}

impl Definition {
    /// Whether the step races with an earlier one.
    fn races(&mut self, step: &Step) -> bool {
        match step {
            Step::StreamDestroyed { stream } => drop(self.streams.remove(stream)),
            Step::EventDestroyed { event } => drop(self.recordings.remove(event)),
            Step::Recorded { event, stream } => {
                let recording = self.streams.get(stream).cloned().unwrap_or_default();
                self.recordings.insert(*event, recording);
            }
            Step::Waited { stream, event, lost: false, .. } => {
                if let Some(recording) = self.recordings.get(event) {
                    join(self.streams.entry(*stream).or_default(), recording);
                }
            }
            Step::Queried { event, finished: true } => {
                if let Some(recording) = self.recordings.get(event) {
                    join(&mut self.host, recording);
                }
            }
            Step::Work { stream, touched, .. } => {
                let bytes = touched.iter().flat_map(|t| {
                    let in_row = |at: &u64| (at - t.start) % (t.pitch as u64) < t.row as u64;
                    t.range().filter(in_row).map(|at| (at, t.writes))
                });
                return self.operation(*stream, bytes);
            }
            Step::Allocated { ptr, bytes, stream } => {
                let whole = ptr.0..ptr.0 + *bytes as u64;
                self.is_anothers(whole.clone());
                return self.operation(*stream, whole.map(|at| (at, true)));
            }
            Step::Freed { ptr, stream } => {
                let of = self.bytes[&ptr.0];
                let mut all: Vec<u64> = self
                    .bytes
                    .iter()
                    .filter(|(_, life)| **life == of)
                    .map(|byte| *byte.0)
                    .collect();
                all.sort_unstable();
                let races = self.operation(*stream, all.iter().map(|&at| (at, true)));
                self.bytes.values_mut().filter(|life| **life == of).for_each(|l| l.freed = true);
                return races;
            }
            Step::HostAllocated { .. } => self.is_anothers(PINNED),
            Step::HostFreed { .. } => {
                let races = self.by_host(PINNED, true);
                self.bytes.retain(|at, _| !PINNED.contains(at));
                return races;
            }
            Step::Owned { ptr, bytes, .. } => return self.by_host(*ptr..ptr + *bytes as u64, true),
            Step::HostAccess { ptr, bytes, writes } => {
                return self.by_host(*ptr..ptr + *bytes as u64, *writes);
            }
            _ => {}
        }
        false
    }

    fn is_anothers(&mut self, range: Range<u64>) {
        self.lives += 1;
        let life = Life { number: self.lives, freed: false };
        self.bytes.extend(range.map(|at| (at, life)));
    }

    /// The next operation of a stream comes after what is there and what the host knows.
    fn operation(&mut self, stream: u64, bytes: impl Iterator<Item = (u64, bool)>) -> bool {
        let at = self.count;
        self.count += 1;
        let before = self.streams.entry(stream).or_default();
        join(before, &self.host);
        let mut races = false;
        for (byte, writes) in bytes {
            let Some(&Life { number: life, freed }) = self.bytes.get(&byte) else { continue };
            races |= freed
                || self.accesses.iter().any(|other| {
                    let same = (other.byte, other.life) == (byte, life) && other.at != at;
                    same && (other.writes || writes) && before.binary_search(&other.at).is_err()
                });
            self.accesses.push(Judged { at, byte, life, writes });
        }
        join(before, &[at]);
        races
    }

    fn by_host(&self, range: Range<u64>, writes: bool) -> bool {
        self.accesses.iter().any(|other| {
            let life = self.bytes.get(&other.byte).map(|life| life.number);
            let same = range.contains(&other.byte) && life == Some(other.life);
            same && (other.writes || writes) && self.host.binary_search(&other.at).is_err()
        })
    }
}

/// Whether there is a race by then, by the checker and by the definition.
fn judge(checker: &mut Checker, definition: &mut Definition, seen: &Seen) -> (bool, bool) {
    let mut by_definition = false;
    match seen {
        Seen::Step(step) => {
            checker.step(device_of(step), step);
            by_definition |= definition.races(step);
        }
        Seen::Refused(end, meanwhile) => {
            let take_back = checker.step(device_of(end), end);
            for step in meanwhile {
                checker.step(device_of(step), step);
                by_definition |= definition.races(step);
            }
            checker.take_back(take_back);
        }
    }
    (!checker.races().is_empty(), by_definition)
}

#[test]
fn the_first_race_of_random_steps_is_the_first_by_the_definition() {
    let (mut racy, mut clean, mut refused, mut freed) = (0, 0, 0, 0);
    for seed in 0..3_000 {
        let mut random = Random(seed);
        let count = 10 + random.below(80) as usize;
        let all = seen(&mut random, count);
        // How much is forgotten, and when, changes nothing.
        for always_kept in [0, 1, HISTORY_ALWAYS_KEPT] {
            let (mut checker, mut definition) =
                (Checker::that_keeps(always_kept), Definition::default());
            let mut race = false;
            for (at, one) in all.iter().enumerate() {
                let (found, by_definition) = judge(&mut checker, &mut definition, one);
                let told =
                    || format!("seed {seed}, keeping {always_kept}, at {at}: {:#?}", &all[..=at]);
                assert_eq!(found, by_definition, "{}", told());
                refused += usize::from(matches!(one, Seen::Refused(..)));
                race = found;
                if race {
                    freed += usize::from(checker.races()[0].freed);
                    break;
                }
            }
            match race {
                true => racy += 1,
                false => clean += 1,
            }
        }
    }
    let counts = [racy, clean, refused, freed];
    assert!(counts.iter().all(|&count| count > 60), "{counts:?}");
}
