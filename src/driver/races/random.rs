//! The checker against the definition: random steps, judged by brute force as well.

use std::collections::HashMap;
use std::ops::Range;

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
}

const STREAMS: u64 = 4;
const EVENTS: u64 = 4;
const BLOCKS: u64 = 2;
const BYTES: u64 = 32;

fn address(block: u64) -> u64 {
    0x1000 * (block + 1)
}

/// Steps that a driver could see: of live objects, blocks allocated and freed in turn.
fn steps(random: &mut Random, count: usize) -> Vec<Step> {
    let mut live = [false; BLOCKS as usize];
    let mut steps = Vec::new();
    while steps.len() < count {
        let stream = 1 + random.below(STREAMS);
        let event = 1 + random.below(EVENTS);
        let block = random.below(BLOCKS);
        let ptr = DevicePtr(address(block));
        steps.push(match random.below(12) {
            0..4 if live[block as usize] => {
                let first = random.below(BYTES);
                let bytes = 1 + random.below(BYTES - first) as usize;
                let writes = random.below(2) == 0;
                let touched = SmallVec::from_slice(&[Touched::new(ptr.0 + first, bytes, writes)]);
                Step::Work { call: DriverCall::Launch, name: "work", stream, touched }
            }
            4..6 => Step::Recorded { event, stream },
            6..9 => Step::Waited { stream, event, lost: random.below(8) == 0 },
            9 => Step::Queried { event, finished: random.below(2) == 0 },
            10 if !live[block as usize] => {
                live[block as usize] = true;
                Step::Allocated { ptr, bytes: BYTES as usize, stream }
            }
            11 if live[block as usize] && random.below(4) == 0 => {
                live[block as usize] = false;
                Step::Freed { ptr, stream }
            }
            _ => continue,
        });
    }
    steps
}

/// An access of the step at `at`: bytes of which life of which block.
struct Judged {
    at: usize,
    life: usize,
    range: Range<u64>,
    writes: bool,
}

/// The first step that races with an earlier one, by the definition: two accesses to one byte, of
/// which one writes, and no path from the one to the other.
fn first_race(steps: &[Step]) -> Option<usize> {
    // Sets of steps: what each event's recording comes after, and what the host knows.
    let mut recordings: HashMap<u64, Vec<bool>> = HashMap::new();
    let mut host = vec![false; steps.len()];
    // For each stream, all that comes before its next step.
    let mut streams: HashMap<u64, Vec<bool>> = HashMap::new();
    let mut lives: HashMap<u64, usize> = HashMap::new();
    let mut accesses: Vec<Judged> = Vec::new();
    let join = |into: &mut Vec<bool>, from: &[bool]| {
        into.iter_mut().zip(from).for_each(|(into, from)| *into |= from);
    };
    for (at, step) in steps.iter().enumerate() {
        let mut mine = vec![false; steps.len()];
        let mut touched = Vec::new();
        match step {
            Step::Recorded { event, stream } => {
                let recording = streams.get(stream).cloned().unwrap_or(vec![false; steps.len()]);
                recordings.insert(*event, recording);
            }
            Step::Waited { stream, event, lost: false } => {
                if let Some(recording) = recordings.get(event) {
                    let stream = streams.entry(*stream).or_insert(vec![false; steps.len()]);
                    join(stream, recording);
                }
            }
            Step::Queried { event, finished: true } => {
                if let Some(recording) = recordings.get(event) {
                    join(&mut host, recording);
                }
            }
            Step::Work { stream, touched: ranges, .. } => {
                touched.extend(ranges.iter().map(|t| (t.range(), t.writes)));
                place(&mut streams, *stream, &host, &mut mine, at);
            }
            Step::Allocated { ptr, stream, .. } | Step::Freed { ptr, stream } => {
                if matches!(step, Step::Allocated { .. }) {
                    *lives.entry(ptr.0).or_default() += 1;
                }
                touched.push((ptr.0..ptr.0 + BYTES, true));
                place(&mut streams, *stream, &host, &mut mine, at);
            }
            _ => {}
        }
        for (range, writes) in touched {
            let life = lives.get(&(range.start & !0xfff)).copied().unwrap_or(0);
            for other in &accesses {
                let overlap = other.range.start < range.end && range.start < other.range.end;
                let conflict = overlap && other.life == life && (other.writes || writes);
                if conflict && other.at != at && !mine[other.at] {
                    return Some(at);
                }
            }
            accesses.push(Judged { at, life, range, writes });
        }
    }
    None
}

/// Puts a step on its stream: it comes after what is there and what the host knows.
fn place(
    streams: &mut HashMap<u64, Vec<bool>>,
    stream: u64,
    host: &[bool],
    mine: &mut [bool],
    at: usize,
) {
    let stream = streams.entry(stream).or_insert(vec![false; host.len()]);
    for (i, (mine, stream)) in mine.iter_mut().zip(&mut *stream).enumerate() {
        *stream |= host[i];
        *mine = *stream;
    }
    stream[at] = true;
}

#[test]
fn the_first_race_of_random_steps_is_the_first_by_the_definition() {
    let (mut racy, mut clean) = (0, 0);
    for seed in 0..20_000 {
        let mut random = Random(seed);
        let count = 10 + random.below(50) as usize;
        let steps = steps(&mut random, count);
        let mut checker = Checker::default();
        let found = steps.iter().position(|step| {
            checker.step(0, step);
            !checker.races().is_empty()
        });
        let by_definition = first_race(&steps);
        assert_eq!(found, by_definition, "seed {seed}: {steps:#?}");
        match found {
            Some(_) => racy += 1,
            None => clean += 1,
        }
    }
    assert!(racy > 1_000 && clean > 1_000, "{racy} with a race, {clean} without");
}
