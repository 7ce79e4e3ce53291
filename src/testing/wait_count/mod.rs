//! How many waits a logged program made, and how many it needed.
//!
//! By the definition, and with nothing of what decides about waits when a program runs: what each
//! operation touches, and what comes before it by its stream, by waits and by what the host saw
//! finished. Pure.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use crate::driver::{LoggedStep, Step, Touched};

#[cfg(test)]
mod tests;

/// Waits of streams on the device (`cuStreamWaitEvent`): see [`wait_count`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitCount {
    /// Those that were made, or were to be: one that
    /// [`lose_wait`](crate::DeviceBuilder::lose_wait) loses is among them.
    pub issued: u64,
    /// The fewest with which everything is in order. One that is missing counts once, and all goes on
    /// as if it had been made, one that was lost too: the number is that of the right program.
    pub needed: u64,
}

impl fmt::Display for WaitCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waits on the device, {} needed", self.issued, self.needed)
    }
}

/// Counts the waits on the device in a log, from its beginning, and the fewest that this order of
/// operations and recordings can do with.
///
/// An operation needs a wait for an earlier one that touches a byte of what it touches, where one
/// of the two writes it, unless that one comes before it anyhow: by its stream, by what its stream
/// has waited for earlier, or since the host had seen its end. It is counted as a wait for the
/// first recording after the earlier operation, since a later one would hold it up for longer; one
/// recording that comes after another, or after what is before it, does for both.
///
/// ```
/// use headwater::{Device, testing};
///
/// let device = Device::builder().simulated().single_stream(false).log_calls(true).open()?;
/// let (a, b) = (device.stream(), device.stream());
/// let mut x = a.in_scope(|| device.zeros::<f32>(1000))?;
/// let (mut left, mut right) = x.split_at_mut(500)?;
/// b.in_scope(|| right.fill(1.0))?; // waits for the zeros
/// a.in_scope(|| left.fill(2.0))?; // another half: no wait
/// a.in_scope(|| right.fill(3.0))?; // waits for the other stream's fill
///
/// let waits = testing::wait_count(&device.call_log().unwrap());
/// assert_eq!((waits.issued, waits.needed), (2, 2));
/// # Ok::<_, headwater::Error>(())
/// ```
///
/// Waits that the program makes by itself ([`Stream::wait`](crate::Stream::wait)) are issued, and
/// needed where a conflict needs them.
///
/// # Where the two are equal
///
/// Inside [`Explore`](crate::testing::Explore), with `settings(|builder| builder.log_calls(true))`, where
/// one thread does everything; and of what one thread enqueues before it first waits for the device. Elsewhere a few more
/// may be issued than needed: another thread, the library's own that looks for ends as well, sees an end, and
/// the log has it, just before a wait for the same is made by who does not know it yet. Everywhere, more are
/// issued where a wait is refused, with the operation that it was for; and where a
/// [`SharedBuffer`](crate::SharedBuffer) is freed, or written after it was taken back: nobody notes its
/// readers, so that waits for all that their streams have had until then.
pub fn wait_count(log: &[LoggedStep]) -> WaitCount {
    let mut replay = Replay::default();
    log.iter().for_each(|logged| replay.step(&logged.step, logged.refused.is_some()));
    replay.count
}

/// For each stream, by index, how many of its operations come before something.
#[derive(Clone, Debug, Default)]
struct Clock(Vec<u64>);

impl Clock {
    fn has(&self, place: Place) -> bool {
        self.0.get(place.stream).is_some_and(|operations| *operations >= place.number)
    }

    fn raise(&mut self, stream: usize, operations: u64) {
        if self.0.len() <= stream {
            self.0.resize(stream + 1, 0);
        }
        self.0[stream] = self.0[stream].max(operations);
    }

    fn join(&mut self, other: &Clock) {
        other.0.iter().enumerate().for_each(|(stream, operations)| self.raise(stream, *operations));
    }
}

/// An operation: the so-manieth of its stream, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    stream: usize,
    number: u64,
}

/// A stream up to here.
#[derive(Debug)]
struct Line {
    index: usize,
    operations: u64,
    /// Its own operations too.
    clock: Clock,
    /// Waits were made for the operation to come: what came before it without them, by the stream
    /// and by the host.
    without_waits: Option<[Clock; 2]>,
}

/// What an event stands for now.
#[derive(Debug)]
struct Recording {
    /// The last operation before it, or none as yet: number 0.
    after: Place,
    clock: Clock,
}

/// An allocation.
#[derive(Debug, Default)]
struct Block {
    bytes: usize,
    /// Those whose end the host has seen may be missing.
    accesses: Vec<(Touched, Place)>,
}

#[derive(Debug, Default)]
struct Replay {
    count: WaitCount,
    /// By handle.
    streams: HashMap<u64, Line>,
    /// All that there ever were.
    indices: usize,
    events: HashMap<u64, Recording>,
    /// By address.
    blocks: BTreeMap<u64, Block>,
    /// What the host has seen finished. It comes before everything that is enqueued later.
    host: Clock,
}

impl Replay {
    fn step(&mut self, step: &Step, refused: bool) {
        match step {
            // What was to run has had its waits.
            Step::Work { stream, touched, .. } => self.operation(*stream, touched, refused),
            Step::Freed { ptr, stream } => {
                let block = self.blocks.get(&ptr.get());
                let bytes = block.map_or(0, |block| block.bytes);
                self.operation(*stream, &[Touched::new(ptr.get(), bytes, true)], refused);
                if !refused {
                    self.blocks.remove(&ptr.get());
                }
            }
            _ if refused => {}
            &Step::Allocated { ptr, bytes, stream } => {
                // Whoever had these addresses before is the driver's to order.
                self.blocks.insert(ptr.get(), Block { bytes, accesses: Vec::new() });
                self.operation(stream, &[Touched::new(ptr.get(), bytes, true)], false);
            }
            &Step::HostAllocated { ptr, bytes, .. } | &Step::HostRegistered { ptr, bytes } => {
                self.blocks.insert(ptr, Block { bytes, accesses: Vec::new() });
            }
            Step::HostFreed { ptr } | Step::HostUnregistered { ptr } => {
                drop(self.blocks.remove(ptr))
            }
            &Step::Recorded { event, stream } => {
                let line = self.line(stream);
                let after = Place { stream: line.index, number: line.operations };
                let recording = Recording { after, clock: line.clock.clone() };
                self.events.insert(event, recording);
            }
            &Step::Waited { stream, event, .. } => self.wait(stream, event),
            Step::Queried { event, finished: true } => {
                if let Some(recording) = self.events.get(event) {
                    self.host.join(&recording.clock);
                }
            }
            // A handle can come back as another stream's or event's.
            Step::EventDestroyed { event } => drop(self.events.remove(event)),
            Step::StreamDestroyed { stream } => drop(self.streams.remove(stream)),
            _ => {}
        }
    }

    fn line(&mut self, stream: u64) -> &mut Line {
        self.streams.entry(stream).or_insert_with(|| {
            let index = self.indices;
            self.indices += 1;
            Line { index, operations: 0, clock: Clock::default(), without_waits: None }
        })
    }

    /// One that was lost, too: what comes later is counted as if it had been made.
    fn wait(&mut self, stream: u64, event: u64) {
        self.count.issued += 1;
        let recorded = self.events.get(&event).map(|recording| recording.clock.clone());
        let host = self.host.clone();
        let line = self.line(stream);
        line.without_waits.get_or_insert_with(|| [line.clock.clone(), host]);
        if let Some(recorded) = recorded {
            line.clock.join(&recorded);
        }
    }

    fn operation(&mut self, stream: u64, touched: &[Touched], refused: bool) {
        let host = self.host.clone();
        let line = self.line(stream);
        let known = line.without_waits.take().unwrap_or_else(|| [line.clock.clone(), host]);
        let own = Place { stream: line.index, number: line.operations + 1 };
        let touched = || touched.iter().filter(|touched| touched.bytes > 0);
        let needs: Vec<_> = touched().flat_map(|t| self.conflicts(t, &known)).collect();
        let fewest = self.fewest(&needs);
        self.count.needed += fewest.len() as u64;
        // A need that no wait has met is not counted again: as if one had.
        let line = self.line(stream);
        let unmet = fewest.iter().filter(|(place, _)| !line.clock.has(*place));
        let recorded: Vec<_> = unmet.filter_map(|(_, recording)| recording.clone()).collect();
        recorded.iter().for_each(|clock| line.clock.join(clock));
        needs.iter().for_each(|need| line.clock.raise(need.stream, need.number));
        if refused {
            return;
        }
        line.operations = own.number;
        line.clock.raise(own.stream, own.number);
        for touched in touched() {
            let block = self.blocks.range_mut(..=touched.start).next_back();
            let block = match block {
                Some((_, block)) => block,
                None => self.blocks.entry(touched.start).or_default(),
            };
            block.accesses.retain(|(_, place)| !self.host.has(*place));
            block.accesses.push((*touched, own));
        }
    }

    /// Operations that have to come before one that touches this, and do not yet.
    fn conflicts<'a>(
        &'a self,
        touched: &'a Touched,
        known: &'a [Clock; 2],
    ) -> impl Iterator<Item = Place> + 'a {
        let block = self.blocks.range(..=touched.start).next_back();
        let accesses = block.into_iter().flat_map(|(_, block)| &block.accesses);
        let conflicting = accesses.filter(move |(earlier, place)| {
            (earlier.writes || touched.writes)
                && !known.iter().any(|clock| clock.has(*place))
                && meet(earlier, touched)
        });
        conflicting.map(|(_, place)| *place)
    }

    /// The fewest of these operations whose recordings cover all of them, where each is to be covered by
    /// the first one after it, or by one that comes after that: with what comes before those.
    fn fewest(&self, operations: &[Place]) -> Vec<(Place, Option<Clock>)> {
        // On one stream, what covers the last covers all.
        let mut last = HashMap::<usize, u64>::new();
        for Place { stream, number } in operations {
            let last = last.entry(*stream).or_default();
            *last = *number.max(last);
        }
        let last = last.into_iter().map(|(stream, number)| Place { stream, number });
        let mut left: Vec<_> = last.map(|place| (place, self.first_after(place))).collect();
        let mut at = 0;
        while let Some((place, _)) = left.get(at) {
            let is_covered = |(other, recording): &(Place, Option<&Recording>)| {
                other != place && recording.is_some_and(|recording| recording.clock.has(*place))
            };
            if left.iter().any(is_covered) {
                left.swap_remove(at);
            } else {
                at += 1;
            }
        }
        let clock = |recording: &Recording| recording.clock.clone();
        left.into_iter().map(|(place, recording)| (place, recording.map(clock))).collect()
    }

    /// `None` where nobody has made one: a wait is missing.
    fn first_after(&self, place: Place) -> Option<&Recording> {
        let is_after = |recording: &&Recording| {
            recording.after.stream == place.stream && recording.after.number >= place.number
        };
        let recordings = self.events.values().filter(is_after);
        recordings.min_by_key(|recording| recording.after.number)
    }
}

/// Whether they have a byte in common. Neither is empty.
fn meet(one: &Touched, other: &Touched) -> bool {
    let (extent, others) = (one.range(), other.range());
    if extent.start >= others.end || others.start >= extent.end {
        return false;
    }
    if one.pitch == other.pitch {
        let ahead = (i128::from(other.start) - i128::from(one.start)).rem_euclid(one.pitch as i128);
        if ahead >= one.row as i128 && ahead + other.row as i128 <= one.pitch as i128 {
            return false; // each row lies between two of the other
        }
    }
    let (few, many) = if rows(one) <= rows(other) { (one, other) } else { (other, one) };
    (0..rows(few)).any(|row| {
        let start = few.start + row * few.pitch as u64;
        touches(many, start, start + few.row as u64)
    })
}

fn rows(touched: &Touched) -> u64 {
    (touched.bytes - touched.row) as u64 / touched.pitch as u64 + 1
}

/// Whether a row of it has a byte from `start` to `end`.
fn touches(touched: &Touched, start: u64, end: u64) -> bool {
    // The last row that begins before the end is the only one that can.
    let Some(into) = (end - 1).checked_sub(touched.start) else { return false };
    let row = (into / touched.pitch as u64).min(rows(touched) - 1);
    start < touched.start + row * touched.pitch as u64 + touched.row as u64
}
