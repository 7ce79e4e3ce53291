//! Steps that a driver could see, at random.

use std::ops::Range;
use std::panic::Location;

use smallvec::SmallVec;

use crate::driver::step::{Step, Touched};
use crate::driver::{DevicePtr, DriverCall};

/// SplitMix64.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
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
/// How the one pinned block came to be.
#[derive(Clone, Copy)]
enum Pinned {
    Allocated,
    Registered,
}

/// The one pinned block.
pub(super) const PINNED: Range<u64> = 0x9000..0x9010;

/// What a driver sees.
#[derive(Debug)]
pub(super) enum Seen {
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
    pinned: Option<Pinned>,
    ending: Option<Step>,
    /// What work touches is mostly rows.
    mostly_rows: bool,
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Streams belong to two devices.
pub(super) fn device_of(step: &Step) -> u32 {
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
            Some(Step::HostFreed { .. } | Step::HostUnregistered { .. }) => {
                !overlap(&PINNED, range)
            }
            _ => true,
        }
    }

    fn block(&self, random: &mut Random) -> Option<Range<u64>> {
        let block = self.blocks.get(random.below(4) as usize)?;
        self.stays(block).then(|| block.clone())
    }

    /// Some memory: mostly a live block.
    fn whole(&self, random: &mut Random) -> Option<Range<u64>> {
        match random.below(64) {
            0..8 => Some(MEMORY),
            8..18 if self.pinned.is_some() => Some(PINNED),
            _ => self.block(random),
        }
    }

    /// A part of it.
    fn part(&self, random: &mut Random) -> Option<Range<u64>> {
        let whole = self.whole(random)?;
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

    /// Of rows: a copy, with as many rows on both sides and as long, at pitches of their own; or only
    /// one side of it.
    fn of_rows(&self, random: &mut Random) -> Option<SmallVec<[Touched; 4]>> {
        let (row, rows) = (1 + random.below(3), 2 + random.below(3));
        let mut side = |writes| {
            let whole = self.whole(random)?;
            Some(Touched { writes, ..self.rows_of(&whole, (row, rows), random)? })
        };
        let both = [side(false)?, side(true)?];
        Some(match random.below(8) {
            0..4 => both.into_iter().collect(),
            4..7 => SmallVec::from_slice(&both[..1]),
            _ => SmallVec::from_slice(&both[1..]),
        })
    }

    /// So many bytes in so many rows, somewhere in there, at some pitch.
    fn rows_of(
        &self,
        whole: &Range<u64>,
        (row, rows): (u64, u64),
        random: &mut Random,
    ) -> Option<Touched> {
        let pitch = row + 1 + random.below(4);
        let extent = (rows - 1) * pitch + row;
        let room = (whole.end - whole.start).checked_sub(extent)?;
        let start = whole.start + random.below(room + 1);
        let shape = (row as usize, rows as usize, pitch as usize);
        self.stays(&(start..start + extent)).then(|| Touched::in_rows(start, shape, false))
    }

    /// One that could come next, if the dice say so.
    fn step(&self, random: &mut Random) -> Option<Step> {
        Some(match random.below(40) {
            0..10 => {
                let stream = self.stream(random)?;
                let rows = match random.below(8) {
                    0..2 => self.of_rows(random),
                    2..8 if self.mostly_rows => self.of_rows(random),
                    _ => None,
                };
                let touched = rows.unwrap_or_else(|| {
                    let touched = 0..1 + random.below(2);
                    touched.filter_map(|_| self.touched(random)).collect()
                });
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
            36 if self.pinned.is_none() => {
                let (ptr, bytes) = (PINNED.start, (PINNED.end - PINNED.start) as usize);
                match random.one_in(3) {
                    true => Step::HostRegistered { ptr, bytes },
                    false => Step::HostAllocated { ptr, bytes, write_combined: false },
                }
            }
            37 if self.stays(&PINNED) && random.one_in(3) => match self.pinned? {
                Pinned::Allocated => Step::HostFreed { ptr: PINNED.start },
                Pinned::Registered => Step::HostUnregistered { ptr: PINNED.start },
            },
            38 if self.pinned.is_some() && self.stays(&PINNED) => {
                let bytes = (random.below(2) * (PINNED.end - PINNED.start)) as usize;
                Step::Owned { ptr: PINNED.start, bytes, made_at: Location::caller() }
            }
            39 if self.pinned.is_some() && self.stays(&PINNED) => {
                let writes = random.one_in(2);
                let touched = match self.rows_of(&PINNED, (1 + random.below(3), 3), random) {
                    Some(rows) if random.one_in(2) => Touched { writes, ..rows },
                    _ => {
                        let bytes = 1 + random.below(PINNED.end - PINNED.start);
                        Touched::new(PINNED.start, bytes as usize, writes)
                    }
                };
                touched.by_host()
            }
            _ => return None,
        })
    }

    /// Mostly has the step come after all that is on the streams, or nearly, or else there would be a
    /// race in nearly all that is made here.
    fn order(&self, step: &Step, random: &mut Random, seen: &mut Vec<Seen>) {
        let (touches, by) = match *step {
            Step::Work { stream, .. } | Step::Freed { stream, .. } => (true, Some(stream)),
            Step::HostFreed { .. }
            | Step::HostUnregistered { .. }
            | Step::Owned { .. }
            | Step::HostAccess { .. } => (true, None),
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
            Step::HostAllocated { .. } => self.pinned = Some(Pinned::Allocated),
            Step::HostRegistered { .. } => self.pinned = Some(Pinned::Registered),
            Step::HostFreed { .. } | Step::HostUnregistered { .. } => self.pinned = None,
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
            | Step::HostUnregistered { .. }
    )
}

/// What a driver could see: of live objects, each handle and address of one at a time.
pub(super) fn seen(random: &mut Random, count: usize) -> Vec<Seen> {
    let mut world = World::new();
    let mut seen = Vec::new();
    if random.one_in(2) {
        world.mostly_rows = true;
        // One block for all of them, which the host knows to be there.
        let bytes = (MEMORY.end - MEMORY.start) as usize;
        for step in [
            Step::Allocated { ptr: DevicePtr(MEMORY.start), bytes, stream: 1 },
            Step::Recorded { event: 1, stream: 1 },
            Step::Queried { event: 1, finished: true },
        ] {
            world.has(&step);
            seen.push(Seen::Step(step));
        }
    }
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
