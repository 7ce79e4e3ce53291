//! Random programs of raw calls, with no library above the seam: whether there is a race is a matter of
//! what was called, so the verdict is the same without anything that decides to wait.
//!
//! The programs wait by chance, some for nearly all that they need and some for little. What
//! watches the calls is held against the definition (`definition`).
#![allow(unsafe_code, clippy::unwrap_used)]

use std::ops::Range;

use super::calls::{Event, Host, Stream, at};
use super::definition::{named, races};
use super::kernels::Shape;
use super::subject::{Around, On, Subject};
use crate::driver::sim::Schedule;
use crate::driver::step::Step;
use crate::driver::{
    CopyMemory, CopyRows, CopySide, DevicePtr, DriverResult, Fact, Fill, StreamHandle,
};

const STREAMS: usize = 3;
const EVENTS: usize = 3;
const BLOCKS: usize = 3;
const BYTES: usize = 32;
const LINES: usize = 40;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }

    /// A piece of a block, of whole words.
    fn words(&mut self) -> Range<usize> {
        let first = self.below(BYTES / 4);
        let words = 1 + self.below(BYTES / 4 - first);
        4 * first..4 * (first + words)
    }

    /// Two to four rows, each side of which is inside a block.
    fn rows(&mut self) -> Rows {
        let (row, rows) = (1 + self.below(4), 2 + self.below(3));
        let mut side = || {
            let pitch = row + self.below(5);
            let extent = (rows - 1) * pitch + row;
            (self.below(BYTES - extent + 1), pitch)
        };
        Rows { row, rows, dst: side(), src: side() }
    }
}

type Bytes = [u8; BYTES];

/// Rows to copy: for each side the offset of the first one and the pitch.
struct Rows {
    row: usize,
    rows: usize,
    dst: (usize, usize),
    src: (usize, usize),
}

impl Rows {
    fn copy(&self, into: &mut Bytes, from: &Bytes) {
        for i in 0..self.rows {
            let (to, at) = (self.dst.0 + i * self.dst.1, self.src.0 + i * self.src.1);
            into[to..to + self.row].copy_from_slice(&from[at..at + self.row]);
        }
    }

    fn enqueue(
        &self,
        on: &Subject,
        dst: CopyMemory,
        src: CopyMemory,
        stream: &StreamHandle,
    ) -> DriverResult<()> {
        let side = |memory, (first, pitch): (usize, usize)| CopySide {
            memory: match memory {
                CopyMemory::Device(ptr) => device(at(ptr, first)),
                CopyMemory::Host(ptr) => {
                    CopyMemory::Host(ptr.map_addr(|start| start.saturating_add(first)))
                }
            },
            pitch,
            plane_pitch: 0,
        };
        let (dst, src) = (side(dst, self.dst), side(src, self.src));
        on.try_copy_rows(&CopyRows { dst, src, row: self.row, rows: self.rows, planes: 1 }, stream)
    }
}

fn device(ptr: DevicePtr) -> CopyMemory {
    CopyMemory::Device(ptr)
}

/// Device memory, and what it holds if each call does its work at once.
struct Block {
    ptr: DevicePtr,
    bytes: Bytes,
}

struct Program<'s> {
    on: &'s Subject,
    random: Random,
    streams: Vec<Stream<'s>>,
    events: Vec<Event<'s>>,
    /// For waits that are made with care.
    careful: Event<'s>,
    /// Of eight operations so many are ordered after all that came before them.
    care: usize,
    blocks: [Option<Block>; BLOCKS],
    host: Host,
    on_host: Bytes,
    /// Bytes were read that were not as they should be.
    wrong: bool,
}

// SAFETY (all unsafe calls in here): programs name memory that they have not freed; what they do out
// of order the simulated device does one after the other, in some order, and reports where memory is
// gone. Under its schedules in lock-step nothing runs while the host touches page-locked memory.
impl<'s> Program<'s> {
    fn new(on: &'s Subject, seed: u64) -> Self {
        let mut random = Random(seed);
        Program {
            on,
            streams: (0..STREAMS).map(|_| on.stream()).collect(),
            events: (0..EVENTS).map(|_| on.event()).collect(),
            careful: on.event(),
            care: [8, 8, 7, 4, 0][random.below(5)],
            blocks: [const { None }; BLOCKS],
            host: on.pinned_with(&[0; BYTES]),
            on_host: [0; BYTES],
            wrong: false,
            random,
        }
    }

    fn run(&mut self) -> DriverResult<()> {
        (0..LINES).try_for_each(|_| self.line())?;
        self.host_knows_all()?;
        for block in std::mem::take(&mut self.blocks).into_iter().flatten() {
            self.down(0, 0..BYTES, &block)?;
            self.host_knows_all()?;
            self.host_reads();
        }
        Ok(())
    }

    fn line(&mut self) -> DriverResult<()> {
        let stream = self.random.below(STREAMS);
        let event = self.random.below(EVENTS);
        let (driver, handle) = (&self.on.driver, &self.streams[stream]);
        match self.random.below(16) {
            0..3 => driver.event_record(&self.events[event], handle),
            3..6 => driver.stream_wait(handle, &self.events[event]),
            6 => driver.event_query(&self.events[event]).map(drop),
            7 => {
                if self.random.below(8) < self.care {
                    self.host_knows_all()?;
                }
                match self.random.below(2) {
                    0 => self.host_reads(),
                    _ => self.host_writes(),
                }
                Ok(())
            }
            8 => self.alloc_or_free(stream),
            _ => self.work(stream),
        }
    }

    /// Orders what the stream is given next after all there is, mostly.
    fn take_care(&mut self, stream: usize) -> DriverResult<()> {
        if self.random.below(8) >= self.care {
            return Ok(());
        }
        let driver = &self.on.driver;
        for other in (0..STREAMS).filter(|other| *other != stream) {
            driver.event_record(&self.careful, &self.streams[other])?;
            driver.stream_wait(&self.streams[stream], &self.careful)?;
        }
        Ok(())
    }

    fn host_knows_all(&mut self) -> DriverResult<()> {
        let driver = &self.on.driver;
        for stream in &self.streams {
            driver.event_record(&self.careful, stream)?;
            let mut asked = 0;
            while !driver.event_query(&self.careful)? {
                asked += 1;
                assert!(asked < 10_000, "it is never finished");
            }
        }
        Ok(())
    }

    fn tell_of_host(&self, writes: bool) {
        self.on.driver.tell(Fact::HostAccess {
            ptr: self.host.ptr(),
            row: BYTES,
            rows: 1,
            pitch: 0,
            writes,
        });
    }

    fn host_reads(&mut self) {
        self.tell_of_host(false);
        self.wrong |= self.on.bytes(self.host, BYTES) != self.on_host;
    }

    fn host_writes(&mut self) {
        self.tell_of_host(true);
        self.on_host = [self.random.below(256) as u8; BYTES];
        self.on.write(self.host, &self.on_host);
    }

    fn alloc_or_free(&mut self, stream: usize) -> DriverResult<()> {
        let index = self.random.below(BLOCKS);
        if self.blocks[index].is_some() {
            self.take_care(stream)?;
        }
        let (driver, handle) = (&self.on.driver, &self.streams[stream]);
        match self.blocks[index].take() {
            // SAFETY: as said at the impl.
            Some(block) => unsafe { driver.free(block.ptr, handle) },
            None => {
                let ptr = driver.alloc(BYTES, handle)?;
                let value = self.random.below(256) as u8;
                self.blocks[index] = Some(Block { ptr, bytes: [value; BYTES] });
                self.on.try_fill(fill(ptr, value, BYTES), handle)
            }
        }
    }

    fn work(&mut self, stream: usize) -> DriverResult<()> {
        let index = self.random.below(BLOCKS);
        let other = (index + 1 + self.random.below(BLOCKS - 1)) % BLOCKS;
        let Some(mut block) = self.blocks[index].take() else {
            return self.alloc_or_free(stream);
        };
        let done = self.take_care(stream).and_then(|()| self.work_on(stream, &mut block, other));
        self.blocks[index] = Some(block);
        done
    }

    fn work_on(&mut self, stream: usize, block: &mut Block, other: usize) -> DriverResult<()> {
        let range = self.random.words();
        let (words, to) = (range.len() as u32 / 4, at(block.ptr, range.start));
        let kind = self.random.below(9);
        let rows = self.random.rows();
        let (on, handle) = (self.on, &self.streams[stream]);
        match (kind, &self.blocks[other]) {
            (0, _) => {
                let value = self.random.below(256) as u8;
                block.bytes[range.clone()].fill(value);
                on.try_fill(fill(to, value, range.len()), handle)
            }
            (1, _) => {
                let host = self.host.at(range.start);
                block.bytes[range.clone()].copy_from_slice(&self.on_host[range.clone()]);
                // SAFETY: as said at the impl.
                unsafe { on.driver.copy_h2d(to, host.ptr(), range.len(), handle) }
            }
            (2, _) => self.down(stream, range, block),
            (3, Some(from)) => {
                block.bytes[range.clone()].copy_from_slice(&from.bytes[range.clone()]);
                on.try_copy_words(to, at(from.ptr, range.start), words, handle)
            }
            (4, Some(from)) => {
                block.bytes[range.clone()].copy_from_slice(&from.bytes[range.clone()]);
                // SAFETY: as said at the impl.
                unsafe { on.driver.copy_d2d(to, at(from.ptr, range.start), range.len(), handle) }
            }
            (5, Some(from)) => {
                rows.copy(&mut block.bytes, &from.bytes);
                rows.enqueue(on, device(block.ptr), device(from.ptr), handle)
            }
            (6, _) => {
                rows.copy(&mut block.bytes, &self.on_host);
                rows.enqueue(on, device(block.ptr), CopyMemory::Host(self.host.ptr()), handle)
            }
            (7, _) => {
                rows.copy(&mut self.on_host, &block.bytes);
                rows.enqueue(on, CopyMemory::Host(self.host.ptr()), device(block.ptr), handle)
            }
            _ => {
                for word in block.bytes[range].chunks_exact_mut(4) {
                    let value = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
                    word.copy_from_slice(&value.wrapping_add(1).to_le_bytes());
                }
                on.increment_as(to, words, Shape::of(words), handle)
            }
        }
    }

    fn down(&mut self, stream: usize, range: Range<usize>, block: &Block) -> DriverResult<()> {
        let (host, from) = (self.host.at(range.start), at(block.ptr, range.start));
        self.on_host[range.clone()].copy_from_slice(&block.bytes[range.clone()]);
        let (driver, handle): (_, &StreamHandle) = (&self.on.driver, &self.streams[stream]);
        // SAFETY: as said at the impl.
        unsafe { driver.copy_d2h(host.ptr(), from, range.len(), handle) }
    }
}

fn fill(dst: DevicePtr, value: u8, columns: usize) -> Fill {
    Fill { dst, unit: 1, value: u32::from(value), columns, rows: 1, pitch: 0 }
}

/// What came of programs.
#[derive(Debug, Default)]
struct Tally {
    clean: u32,
    racy: u32,
    /// Racy ones that read wrong bytes.
    wrong: u32,
    /// Racy ones of which the device found memory misused, and failed.
    failed: u32,
}

fn judge(seed: u64, schedule: Schedule, tally: &mut Tally) {
    let on = On::Simulated(schedule).subject(Around::Watched);
    let mut program = Program::new(&on, seed);
    let ended = program.run();
    let wrong = program.wrong;
    let (log, reported) = on.seen().unwrap();
    let pairs = races(&log);
    let what = format!("{schedule:?}, seed {seed}");
    assert_eq!(reported.is_empty(), pairs.is_empty(), "{what}: {reported:#?} {pairs:?} {log:#?}");
    if let (Some(race), Some(pair)) = (reported.first(), pairs.first()) {
        match named(&log, race).1 {
            Some(second) => assert_eq!(second, pair.1, "{what}: {race}"),
            None => assert!(matches!(log[pair.1].step, Step::HostAccess { .. }), "{what}: {race}"),
        }
    }
    for race in &reported {
        let (first, second) = named(&log, race);
        if second.is_some_and(|second| log[second].refused.is_some()) {
            continue;
        }
        let is_it = |pair: &&(usize, usize)| {
            pair.0 == first && second.is_none_or(|second| pair.1 == second)
        };
        assert!(pairs.iter().any(|pair| is_it(&pair)), "{what}: not a race: {race}");
    }
    match pairs.first() {
        None => {
            tally.clean += 1;
            assert_eq!((ended, wrong), (Ok(()), false), "{what}: without a race");
            assert_eq!(on.sim.as_ref().unwrap().violations(), [], "{what}: without a race");
        }
        Some(_) => {
            tally.racy += 1;
            tally.wrong += u32::from(wrong);
            tally.failed += u32::from(ended.is_err_and(|error| error.is_sticky()));
        }
    }
}

#[test]
fn verdicts_on_random_raw_programs_are_those_of_the_definition() {
    for lazy in [false, true] {
        let mut tally = Tally::default();
        for seed in 0..400 {
            let schedule = if lazy { Schedule::Lazy } else { Schedule::random(seed) };
            judge(seed, schedule, &mut tally);
        }
        let Tally { clean, racy, wrong, failed } = tally;
        let name = if lazy { "lazy" } else { "random" };
        println!(
            "{name}: {clean} programs without a race, {racy} with one, all reported and no other; \
             of these {wrong} read wrong bytes and {failed} misused memory"
        );
        assert!(clean > 100 && racy > 100 && wrong + failed > 50, "{tally:?}");
    }
}
