//! Whether a log of driver calls has a race, from the definition and by brute force.
//!
//! What is enqueued on a stream comes after all that was enqueued there before, and after all that
//! the host had done or seen finished by then. A wait comes after the recording that its event had
//! then, a query that found its event finished too. What is not reached from one to the other along
//! these is not ordered, and two that touch a byte must be if one writes it.
//!
//! It shares nothing with the race checker, which it is there to judge, and nothing with how the
//! crate decides to wait.

use std::collections::HashMap;
use std::ops::Range;

use headwater::testing::{LoggedStep, Step, Touched};

/// A step, as far as order is concerned.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Act {
    Record {
        event: u64,
        stream: u64,
    },
    Wait {
        stream: u64,
        event: u64,
    },
    /// The host saw the event's recording finished.
    Saw {
        event: u64,
    },
    /// The handle may come back as another event's.
    Forget {
        event: u64,
    },
    /// `stream` is `None` where the host does it: memory of its own.
    Alloc {
        start: u64,
        bytes: u64,
        stream: Option<u64>,
    },
    Free {
        start: u64,
        stream: Option<u64>,
    },
    Work {
        stream: u64,
        touched: Vec<(Bytes, Does)>,
    },
    Host {
        touched: Bytes,
        does: Does,
    },
    /// Orders nothing and touches nothing.
    Nothing,
}

/// Bytes that are touched: rows of `row` bytes, one every `pitch` bytes, before `end`. What is in one
/// piece is one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes {
    start: u64,
    end: u64,
    row: u64,
    /// Not 0.
    pitch: u64,
}

impl Bytes {
    fn rows(&self) -> impl Iterator<Item = Range<u64>> {
        let starts = (self.start..self.end).step_by(self.pitch as usize);
        starts.map(|start| start..start + self.row)
    }

    fn extent(&self) -> Range<u64> {
        self.start..self.end
    }

    /// Whether they have a byte in common.
    fn meet(&self, other: &Bytes) -> bool {
        let overlap = |a: &Range<u64>, b: &Range<u64>| a.start < b.end && b.start < a.end;
        overlap(&self.extent(), &other.extent())
            && self.rows().any(|own| other.rows().any(|other| overlap(&own, &other)))
    }
}

impl From<Range<u64>> for Bytes {
    fn from(range: Range<u64>) -> Self {
        let row = range.end - range.start;
        Bytes { start: range.start, end: range.end, row, pitch: row.max(1) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    Read,
    Write,
}

impl Act {
    /// On which stream it is.
    pub(crate) fn stream(&self) -> Option<u64> {
        match *self {
            Act::Record { stream, .. } | Act::Wait { stream, .. } | Act::Work { stream, .. } => {
                Some(stream)
            }
            Act::Alloc { stream, .. } | Act::Free { stream, .. } => stream,
            _ => None,
        }
    }

    /// Whether it touches memory.
    pub(crate) fn touches(&self) -> bool {
        matches!(self, Act::Alloc { .. } | Act::Free { .. } | Act::Work { .. } | Act::Host { .. })
    }

    /// Whether it is done by the host, here and now.
    fn is_by_host(&self) -> bool {
        match self {
            Act::Saw { .. } | Act::Host { .. } => true,
            Act::Alloc { stream, .. } | Act::Free { stream, .. } => stream.is_none(),
            _ => false,
        }
    }

    /// Comes after the recording of this event, too.
    fn event(&self) -> Option<u64> {
        match *self {
            Act::Wait { event, .. } | Act::Saw { event } => Some(event),
            _ => None,
        }
    }
}

/// Two steps of a log, by index, that race.
pub(crate) type Pair = (usize, usize);

/// The log as acts, one for each step.
pub(crate) fn acts(log: &[LoggedStep]) -> Vec<Act> {
    log.iter().map(act).collect()
}

fn act(logged: &LoggedStep) -> Act {
    if logged.refused.is_some() {
        return Act::Nothing;
    }
    let does = |writes| if writes { Does::Write } else { Does::Read };
    let host = |ptr: u64, bytes: usize, writes| match bytes {
        0 => Act::Nothing,
        _ => Act::Host { touched: (ptr..ptr + bytes as u64).into(), does: does(writes) },
    };
    match &logged.step {
        &Step::Recorded { event, stream, .. } => Act::Record { event, stream },
        &Step::Waited { stream, event, lost: false, .. } => Act::Wait { stream, event },
        &Step::Queried { event, finished: true, .. } => Act::Saw { event },
        &Step::EventDestroyed { event, .. } => Act::Forget { event },
        &Step::Allocated { ptr, bytes, stream, .. } => {
            Act::Alloc { start: ptr.get(), bytes: bytes as u64, stream: Some(stream) }
        }
        &Step::Freed { ptr, stream, .. } => Act::Free { start: ptr.get(), stream: Some(stream) },
        &Step::HostAllocated { ptr, bytes, .. } | &Step::HostRegistered { ptr, bytes, .. } => {
            Act::Alloc { start: ptr, bytes: bytes as u64, stream: None }
        }
        &Step::HostFreed { ptr, .. } | &Step::HostUnregistered { ptr, .. } => {
            Act::Free { start: ptr, stream: None }
        }
        Step::Work { stream, touched, .. } => {
            let touched = touched.iter().filter(|t| t.bytes > 0);
            let bytes = |t: &Touched| {
                let Range { start, end } = t.range();
                Bytes { start, end, row: t.row as u64, pitch: t.pitch as u64 }
            };
            let touched = touched.map(|t| (bytes(t), does(t.writes))).collect();
            Act::Work { stream: *stream, touched }
        }
        // Whoever had it before is done with it: that is for the new owner to write.
        &Step::Owned { ptr, bytes, .. } => host(ptr, bytes, true),
        &Step::HostAccess { bytes: 0, .. } => Act::Nothing,
        &Step::HostAccess { ptr, bytes, writes, row, pitch, .. } => {
            let (row, pitch) = (row as u64, pitch as u64);
            let touched = Bytes { start: ptr, end: ptr + bytes as u64, row, pitch };
            Act::Host { touched, does: does(writes) }
        }
        _ => Act::Nothing,
    }
}

/// Every pair that races, the later one's index ascending.
pub(crate) fn races(acts: &[Act]) -> Vec<Pair> {
    let before = Before::of(acts);
    let touches = touches(acts);
    let mut races = Vec::new();
    for (at, second) in touches.iter().enumerate() {
        for first in touches[..at].iter().filter(|first| first.conflicts_with(second)) {
            // Memory that is gone is gone, however ordered.
            let gone = second.gone && matches!(acts[first.act], Act::Free { .. });
            if gone || !before.has(first.act, second.act) {
                races.push((first.act, second.act));
            }
        }
    }
    races.dedup();
    races
}

/// The acts before act `at` that touch what it touches, and one of the two writes.
pub(crate) fn conflicts(acts: &[Act], at: usize) -> Vec<usize> {
    earlier(acts, at, Touch::conflicts_with)
}

/// The acts before act `at` that touch memory of which it touches some bytes, these or others.
pub(crate) fn of_same_memory(acts: &[Act], at: usize) -> Vec<usize> {
    earlier(acts, at, |one, other| one.block.is_some() && one.block == other.block)
}

/// The acts before act `at` that touch device memory which it touches some bytes of, these or others, and which
/// another owner got after them.
pub(crate) fn of_former_owners(log: &[LoggedStep], acts: &[Act], at: usize) -> Vec<usize> {
    let mut before = of_same_memory(acts, at);
    // Of several changes of hands the latest: what came before is all a former owner's.
    let changed = log[..at].iter().enumerate().rev().find_map(|(changed, logged)| {
        let Step::Owned { ptr, bytes: 0, .. } = logged.step else { return None };
        let made = acts[..changed].iter().rposition(|act| match act {
            Act::Alloc { start, stream: Some(_), .. } => *start == ptr,
            _ => false,
        });
        made.filter(|made| before.contains(made)).map(|_| changed)
    });
    before.retain(|act| changed.is_some_and(|changed| *act < changed));
    before
}

/// The acts before act `at` of which a touch has to do with one of its own.
fn earlier(acts: &[Act], at: usize, has_to_do: impl Fn(&Touch, &Touch) -> bool) -> Vec<usize> {
    let touches = touches(&acts[..=at]);
    let (own, earlier): (Vec<_>, Vec<_>) = touches.iter().partition(|touch| touch.act == at);
    let found = earlier.iter().filter(|first| own.iter().any(|own| has_to_do(first, own)));
    found.map(|touch| touch.act).collect()
}

/// Whether the log, which has no race, would have one without its wait `at`.
pub(crate) fn matters(acts: &[Act], at: usize) -> bool {
    assert!(matches!(acts[at], Act::Wait { .. }), "{:?}", acts[at]);
    let mut without = acts.to_vec();
    without[at] = Act::Nothing;
    !races(&without).is_empty()
}

/// For each act, which come before it.
struct Before {
    words: usize,
    /// One bit an act.
    bits: Vec<Vec<u64>>,
}

impl Before {
    fn of(acts: &[Act]) -> Before {
        let mut before = Before { words: acts.len().div_ceil(64), bits: Vec::new() };
        // The last act of each stream, of the host, and that recorded each event.
        let mut streams = HashMap::<u64, usize>::new();
        let mut host = None;
        let mut recordings = HashMap::<u64, usize>::new();
        for (at, act) in acts.iter().enumerate() {
            let mut direct = Vec::new();
            if act.stream().is_some() || act.is_by_host() {
                direct.extend(host);
                direct.extend(act.stream().and_then(|stream| streams.get(&stream)));
                direct.extend(act.event().and_then(|event| recordings.get(&event)));
            }
            before.push(&direct);
            if let Some(stream) = act.stream() {
                streams.insert(stream, at);
            }
            if act.is_by_host() {
                host = Some(at);
            }
            match act {
                Act::Record { event, .. } => drop(recordings.insert(*event, at)),
                Act::Forget { event } => drop(recordings.remove(event)),
                _ => {}
            }
        }
        before
    }

    /// The next act, which comes right after these.
    fn push(&mut self, direct: &[usize]) {
        let mut bits = vec![0; self.words];
        for &act in direct {
            bits[act / 64] |= 1 << (act % 64);
            bits.iter_mut().zip(&self.bits[act]).for_each(|(own, theirs)| *own |= theirs);
        }
        self.bits.push(bits);
    }

    fn has(&self, first: usize, second: usize) -> bool {
        self.bits[second][first / 64] >> (first % 64) & 1 == 1
    }
}

/// An act touches bytes.
#[derive(Debug)]
struct Touch {
    act: usize,
    /// Which allocation's, in the order of the log; `None`: made before the log began.
    block: Option<usize>,
    bytes: Bytes,
    does: Does,
    /// The allocation was freed earlier in the log.
    gone: bool,
}

impl Touch {
    fn conflicts_with(&self, other: &Touch) -> bool {
        self.act != other.act
            && self.block == other.block
            && (self.does == Does::Write || other.does == Does::Write)
            && self.bytes.meet(&other.bytes)
    }
}

fn touches(acts: &[Act]) -> Vec<Touch> {
    struct Block {
        range: Range<u64>,
        freed: bool,
    }
    let mut blocks = Vec::<Block>::new();
    let mut touches = Vec::new();
    for (act, what) in acts.iter().enumerate() {
        // The block that has an address now: of several at one address, the latest.
        let block_of = |blocks: &[Block], address: u64| {
            blocks.iter().rposition(|block| block.range.contains(&address))
        };
        let mut touch = |blocks: &[Block], bytes: Bytes, does| {
            let block = block_of(blocks, bytes.start);
            let gone = block.is_some_and(|block| blocks[block].freed);
            touches.push(Touch { act, block, bytes, does, gone });
        };
        match what {
            Act::Alloc { start, bytes, .. } => {
                let range = *start..start + bytes;
                blocks.push(Block { range: range.clone(), freed: false });
                touch(&blocks, range.into(), Does::Write);
            }
            Act::Free { start, .. } => {
                if let Some(block) = block_of(&blocks, *start) {
                    touch(&blocks, blocks[block].range.clone().into(), Does::Write);
                    blocks[block].freed = true;
                }
            }
            Act::Work { touched, .. } => {
                touched.iter().for_each(|(bytes, does)| touch(&blocks, *bytes, *does));
            }
            Act::Host { touched, does } => touch(&blocks, *touched, *does),
            _ => {}
        }
    }
    touches
}

const X: Range<u64> = 1000..1100;

fn work(stream: u64, touched: impl Into<Bytes>, does: Does) -> Act {
    Act::Work { stream, touched: vec![(touched.into(), does)] }
}

fn write(stream: u64) -> Act {
    work(stream, X, Does::Write)
}

fn read(stream: u64) -> Act {
    work(stream, X, Does::Read)
}

fn record(event: u64, stream: u64) -> Act {
    Act::Record { event, stream }
}

fn wait(stream: u64, event: u64) -> Act {
    Act::Wait { stream, event }
}

fn host(does: Does) -> Act {
    Act::Host { touched: X.into(), does }
}

#[test]
fn the_oracle_finds_no_race_along_a_stream_a_wait_or_a_chain_of_waits() {
    assert_eq!(races(&[write(1), read(1), write(1)]), []);
    assert_eq!(races(&[write(1), record(7, 1), wait(2, 7), read(2)]), []);
    let chain = [write(1), record(7, 1), wait(2, 7), record(8, 2), wait(3, 8), write(3)];
    assert_eq!(races(&chain), []);
}

#[test]
fn the_oracle_finds_the_pair_that_no_wait_orders() {
    assert_eq!(races(&[write(1), record(7, 1), read(2)]), [(0, 2)]);
    assert_eq!(races(&[write(1), record(7, 1), read(2), wait(2, 7), read(2)]), [(0, 2)]);
    // The wait is another stream's.
    assert_eq!(races(&[write(1), record(7, 1), wait(3, 7), read(2)]), [(0, 3)]);
}

#[test]
fn a_wait_is_for_the_recording_that_the_event_had_then() {
    let earlier = [record(7, 1), wait(2, 7), write(1), record(7, 1), read(2)];
    assert_eq!(races(&earlier), [(2, 4)]);
    let re_recorded = [write(1), record(7, 1), wait(2, 7), record(7, 3), read(2)];
    assert_eq!(races(&re_recorded), []);
    let before_the_write = [record(7, 1), write(1), wait(2, 7), read(2)];
    assert_eq!(races(&before_the_write), [(1, 3)]);
    assert_eq!(races(&[write(1), wait(2, 7), read(2)]), [(0, 2)], "never recorded");
    let another = [write(1), record(7, 1), Act::Forget { event: 7 }, wait(2, 7), read(2)];
    assert_eq!(races(&another), [(0, 4)], "another event of that handle");
}

#[test]
fn a_writer_has_to_come_after_every_reader_and_readers_need_no_order() {
    let mut acts = vec![write(1), record(7, 1), wait(2, 7), read(2), wait(3, 7), read(3)];
    assert_eq!(races(&acts), []);
    acts.extend([record(8, 3), wait(1, 8), write(1)]);
    assert_eq!(races(&acts), [(3, 8)], "it waits for one of two");
    acts.insert(8, wait(1, 9));
    acts.insert(8, record(9, 2));
    assert_eq!(races(&acts), []);
}

#[test]
fn accesses_to_different_bytes_do_not_race() {
    let halves = |end| [work(1, 1000..1050, Does::Write), work(2, end..1100, Does::Write)];
    assert_eq!(races(&halves(1050)), []);
    assert_eq!(races(&halves(1049)), [(0, 1)]);
    assert_eq!(conflicts(&[write(1), read(2), read(2), halves(1049)[1].clone()], 3), [0, 1, 2]);
    assert_eq!(conflicts(&[write(1), read(2), read(2)], 2), [0]);
}

#[test]
fn rows_race_where_they_have_a_byte_in_common_and_not_where_they_lie_between_each_other() {
    let rows = |start: u64, row: u64, rows: u64, pitch: u64| Bytes {
        start,
        end: start + (rows - 1) * pitch + row,
        row,
        pitch,
    };
    let even = rows(1000, 4, 10, 8);
    let both = |first: Bytes, second: Bytes| {
        let writes_first = races(&[work(1, first, Does::Write), work(2, second, Does::Read)]);
        assert_eq!(
            writes_first,
            races(&[work(1, first, Does::Read), work(2, second, Does::Write)])
        );
        assert_eq!(races(&[work(1, first, Does::Read), work(2, second, Does::Read)]), []);
        !writes_first.is_empty()
    };
    assert!(both(even, even));
    assert!(!both(even, rows(1004, 4, 10, 8)), "the columns beside them");
    assert!(both(even, rows(1003, 1, 10, 8)), "the last byte of each");
    assert!(!both(even, (1004..1008).into()), "a piece between two rows");
    assert!(both(even, (1004..1009).into()));
    // Another pitch: 1004, 1021, 1038 and 1055 are between the rows, and 1072 begins one.
    assert!(!both(even, rows(1004, 1, 4, 17)));
    assert!(both(even, rows(1004, 1, 5, 17)));
    assert!(!both(even, rows(1076, 8, 3, 16)), "behind them");
    assert_eq!(conflicts(&[work(1, even, Does::Write), work(2, 1000..1100, Does::Read)], 1), [0]);
}

#[test]
fn the_host_has_to_have_seen_the_end_of_what_it_reads_or_overwrites() {
    let saw = Act::Saw { event: 7 };
    assert_eq!(races(&[write(1), record(7, 1), saw.clone(), host(Does::Read)]), []);
    assert_eq!(races(&[write(1), record(7, 1), host(Does::Read), saw.clone()]), [(0, 2)]);
    assert_eq!(races(&[record(7, 1), write(1), saw.clone(), host(Does::Read)]), [(1, 3)]);
    assert_eq!(races(&[read(1), record(7, 1), host(Does::Write)]), [(0, 2)]);
    assert_eq!(races(&[read(1), record(7, 1), host(Does::Read)]), []);
    assert_eq!(races(&[host(Does::Write), read(1)]), [], "enqueued after it");
    // What the host knows comes before whatever it enqueues then, on any stream.
    assert_eq!(races(&[write(1), record(7, 1), saw, write(2)]), []);
}

#[test]
fn memory_is_written_where_it_is_allocated_and_where_it_is_freed() {
    let alloc = Act::Alloc { start: 1000, bytes: 100, stream: Some(1) };
    let free = Act::Free { start: 1000, stream: Some(1) };
    assert_eq!(races(&[alloc.clone(), write(2)]), [(0, 1)]);
    assert_eq!(races(&[alloc.clone(), write(1), free.clone()]), []);
    let other = [alloc.clone(), record(7, 1), wait(2, 7), read(2), free.clone()];
    assert_eq!(races(&other), [(3, 4)], "freed beside a reader");
    assert_eq!(races(&[alloc.clone(), free.clone(), read(1)]), [(1, 2)], "not there any more");
    // The same address, other memory: the driver has seen to that.
    let again = Act::Alloc { start: 1000, bytes: 50, stream: Some(2) };
    assert_eq!(races(&[alloc, write(1), free, again, work(2, 1000..1050, Does::Read)]), []);
}

#[test]
fn a_wait_matters_where_nothing_else_orders_what_it_does() {
    let twice = [write(1), record(7, 1), wait(2, 7), wait(2, 7), read(2)];
    assert!(!matters(&twice, 2) && !matters(&twice, 3));
    let chain = [write(1), record(7, 1), wait(2, 7), record(8, 2), wait(3, 7), wait(3, 8), read(3)];
    assert!(!matters(&chain, 2) && !matters(&chain, 4) && !matters(&chain, 5));
    assert!(matters(&[write(1), record(7, 1), wait(2, 7), read(2)], 2));
    let seen = [write(1), record(7, 1), wait(2, 7), Act::Saw { event: 7 }, read(2)];
    assert!(!matters(&seen, 2), "the host knows by then");
}
