//! What a race is, by every byte and every operation before.

use std::collections::HashMap;
use std::ops::Range;

use super::steps::PINNED;
use crate::driver::step::{Step, Touched};

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
    /// Of rows.
    pitch: Option<u64>,
}

/// The definition, by brute force: two accesses to one byte, of which one writes, and no path from the
/// one to the other; or one to a byte that was freed.
#[derive(Default)]
pub(super) struct Definition {
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
    /// Races of rows with rows of another pitch, where the one before was written, and where it was
    /// read only.
    pub(super) of_pitches: [usize; 2],
}

fn join(into: &mut Vec<usize>, from: &[usize]) {
    into.extend_from_slice(from);
    into.sort_unstable();
    into.dedup();
}

fn bytes_of(touched: &Touched) -> impl Iterator<Item = u64> {
    let Touched { start, row, pitch, .. } = *touched;
    touched.range().filter(move |at| (at - start) % (pitch as u64) < row as u64)
}

impl Definition {
    /// Whether the step races with an earlier one.
    pub(super) fn races(&mut self, step: &Step) -> bool {
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
                    let pitch = (t.row < t.bytes).then_some(t.pitch as u64);
                    bytes_of(t).map(move |at| (at, t.writes, pitch))
                });
                return self.operation(*stream, bytes);
            }
            Step::Allocated { ptr, bytes, stream } => {
                let whole = ptr.0..ptr.0 + *bytes as u64;
                self.is_anothers(whole.clone());
                return self.operation(*stream, whole.map(|at| (at, true, None)));
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
                let races = self.operation(*stream, all.iter().map(|&at| (at, true, None)));
                self.bytes.values_mut().filter(|life| **life == of).for_each(|l| l.freed = true);
                return races;
            }
            Step::HostAllocated { .. } | Step::HostRegistered { .. } => self.is_anothers(PINNED),
            Step::HostFreed { .. } | Step::HostUnregistered { .. } => {
                let races = self.by_host(PINNED, true);
                self.bytes.retain(|at, _| !PINNED.contains(at));
                return races;
            }
            Step::Owned { ptr, bytes, .. } => return self.by_host(*ptr..ptr + *bytes as u64, true),
            &Step::HostAccess { ptr: start, bytes, writes, row, pitch } => {
                let touched = Touched { start, bytes, writes, row, pitch };
                return self.by_host(bytes_of(&touched), writes);
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
    fn operation(
        &mut self,
        stream: u64,
        bytes: impl Iterator<Item = (u64, bool, Option<u64>)>,
    ) -> bool {
        let at = self.count;
        self.count += 1;
        let before = self.streams.entry(stream).or_default();
        join(before, &self.host);
        let mut races = false;
        for (byte, writes, pitch) in bytes {
            let Some(&Life { number: life, freed }) = self.bytes.get(&byte) else { continue };
            races |= freed;
            for other in &self.accesses {
                let same = (other.byte, other.life) == (byte, life) && other.at != at;
                let conflict = same && (other.writes || writes);
                if conflict && before.binary_search(&other.at).is_err() {
                    races = true;
                    let of_pitches = other.pitch.zip(pitch).is_some_and(|(a, b)| a != b);
                    self.of_pitches[usize::from(writes && !other.writes)] +=
                        usize::from(of_pitches && other.writes != writes);
                }
            }
            self.accesses.push(Judged { at, byte, life, writes, pitch });
        }
        join(before, &[at]);
        races
    }

    fn by_host(&self, bytes: impl Iterator<Item = u64>, writes: bool) -> bool {
        let bytes: Vec<u64> = bytes.collect();
        self.accesses.iter().any(|other| {
            let life = self.bytes.get(&other.byte).map(|life| life.number);
            let same = bytes.contains(&other.byte) && life == Some(other.life);
            same && (other.writes || writes) && self.host.binary_search(&other.at).is_err()
        })
    }
}
