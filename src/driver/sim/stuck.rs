//! Who waits for whom where nothing on the device moves any more.

use std::fmt;
use std::time::{Duration, Instant};

use super::op::{SimOp, SimOpKind};
use super::queue::{Item, Stream};
use super::schedule::Schedule;
use super::state::State;

/// How long a device may be stuck, unless a test steps it, and an operation be run.
pub(super) const STALL_LIMIT: Duration = Duration::from_secs(10);

/// Whoever waits looks again within a few milliseconds, on a busy machine later. What passes
/// between two looks beyond this, nobody waited.
const LONGEST_LOOK: Duration = Duration::from_millis(100);

/// For how long a device has been found stuck.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stall {
    /// What had moved by then: it is another stall if that changes.
    moved: u64,
    looked: Instant,
    waited: Duration,
}

/// A device that does not move: something is pending, nothing runs, and nothing could. Or an operation
/// runs and does not come to its end.
///
/// Displayed it says of each stream what it waits for, a line each.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stuck {
    /// The streams that hold something, by number.
    pub streams: Vec<StuckStream>,
}

/// A stream that does not move.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StuckStream {
    /// As [`Stream::as_raw`](crate::Stream::as_raw) has it.
    pub stream: u64,
    /// Its first operation that has not finished. `None` where it holds no operation, but waits and
    /// records.
    pub op: Option<SimOp>,
    /// How many operations it holds behind that.
    pub behind: usize,
    /// What holds it.
    pub waits_for: WaitsFor,
}

/// What holds a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitsFor {
    /// A gate that nobody opened.
    #[non_exhaustive]
    Gate {
        /// Its number.
        gate: u64,
    },
    /// A recording of an event, to which another stream has not come.
    #[non_exhaustive]
    Recording {
        /// The stream on which it was made.
        stream: u64,
        /// The last operation enqueued there before it: its id and name.
        after: Option<(u64, &'static str)>,
    },
    /// Its first operation was begun and never ends.
    End,
    /// Its first operation is being run, and does not return: its twin waits for something, or takes
    /// longer than [`SimOptions::stall_limit`](super::SimOptions::stall_limit).
    Return,
    /// The operation that is being run, on another stream. It could run, but one does at a time.
    Turn,
    /// A step, under [`Schedule::Stepped`].
    Step,
    /// Somebody to need it, under [`Schedule::Lazy`]. Nobody does.
    Need,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.streams.iter().any(|s| s.waits_for == WaitsFor::Return) {
            true => "the device is stuck: what runs does not return",
            false => "the device is stuck: nothing runs, and nothing could",
        })?;
        for stuck @ StuckStream { stream, op, behind, waits_for } in &self.streams {
            write!(f, "\n  stream {stream}: ")?;
            match op {
                Some(op) => write!(f, "{}", Named(op.id, op.name, Some(op.kind)))?,
                None => f.write_str("no operation")?,
            }
            match waits_for {
                WaitsFor::Gate { gate } => {
                    write!(f, " waits for gate {gate}, which was never opened")?;
                }
                WaitsFor::Recording { stream, after } => {
                    write!(f, " waits for the event recorded on stream {stream}")?;
                    if let Some((id, name)) = after {
                        write!(f, " after {}", Named(*id, name, None))?;
                    }
                    if !self.streams.iter().any(|other| other.stream == *stream) {
                        f.write_str(", which was dropped")?;
                    }
                }
                WaitsFor::End => f.write_str(" was begun and never ends")?,
                WaitsFor::Return => f.write_str(" is being run and does not return")?,
                WaitsFor::Turn => f.write_str(" could run, but for the one that is being run")?,
                WaitsFor::Step => f.write_str(" waits for a step, which nobody takes")?,
                WaitsFor::Need => f.write_str(" could run, but nobody needs it")?,
            }
            if stuck.behind > 0 {
                write!(f, " ({behind} more behind it)")?;
            }
        }
        Ok(())
    }
}

/// An operation, for a person to read.
struct Named(u64, &'static str, Option<SimOpKind>);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Named(id, name, kind) = self;
        let kernel = if *kind == Some(SimOpKind::Kernel) { "kernel " } else { "" };
        write!(f, "{kernel}`{name}` (operation {id})")
    }
}

impl State {
    /// Who waits for whom, if the device is stuck.
    pub(super) fn stuck(&mut self) -> Option<Stuck> {
        let overdue = self.overdue();
        if overdue.is_none() && !self.is_stuck() {
            return None;
        }
        let streams = self.streams.iter();
        let mut streams: Vec<_> = streams
            .filter_map(|(&id, stream)| {
                let is_run = stream.running && stream.endless.is_none();
                let first = self.running.filter(|_| is_run).or_else(|| stream.first_work());
                let pending = first.and_then(|seq| Some((seq, self.pending.get(&seq)?)));
                Some(StuckStream {
                    stream: id,
                    op: pending.map(|(seq, pending)| self.op(seq, pending)),
                    behind: stream.unfinished.saturating_sub(1),
                    waits_for: self.obstacle(stream)?,
                })
            })
            .collect();
        streams.sort_unstable_by_key(|stream| stream.stream);
        Some(Stuck { streams })
    }

    /// What holds a stream; `None` where it holds nothing.
    fn obstacle(&self, stream: &Stream) -> Option<WaitsFor> {
        if stream.endless.is_some() {
            return Some(WaitsFor::End);
        }
        if stream.running {
            return Some(WaitsFor::Return);
        }
        let first = stream.queue.front()?;
        if let Item::Wait(on) = &first.item {
            return Some(WaitsFor::Recording { stream: on.stream, after: on.after });
        }
        let gate = self.pending.get(&first.seq).and_then(|pending| pending.facts.gate);
        Some(match gate.filter(|gate| self.gates.contains_key(gate)) {
            Some(gate) => WaitsFor::Gate { gate },
            None if self.schedule == Schedule::Stepped => WaitsFor::Step,
            None if self.schedule == Schedule::Lazy && first.seq >= stream.needed => WaitsFor::Need,
            None => WaitsFor::Turn,
        })
    }

    /// Whether nothing runs or could, though something is pending that somebody could wait for.
    fn is_stuck(&self) -> bool {
        let idle = self.running.is_none() && self.turn.next.is_none() && !self.executor_ended;
        if !idle || !self.ready.control.is_empty() {
            return false;
        }
        let is_needed = |seq: u64, stream: &Stream| seq < stream.needed;
        let needed = |(&seq, stream): (&u64, &u64)| {
            self.streams.get(stream).is_some_and(|stream| is_needed(seq, stream))
        };
        let could_run = match self.schedule {
            Schedule::Eager | Schedule::Random { .. } => !self.ready.work.is_empty(),
            Schedule::Stepped => self.permit.is_some(),
            Schedule::Lazy => self.permit.is_some() || self.ready.work.iter().any(needed),
        };
        let lazy = self.schedule == Schedule::Lazy;
        let waited_for = |s: &Stream| s.first().is_some_and(|seq| !lazy || is_needed(seq, s));
        !could_run && self.streams.values().any(waited_for)
    }

    /// How long somebody has been waiting for the device, stuck as it is.
    fn stuck_for(&mut self) -> Option<Duration> {
        if !self.is_stuck() {
            return None;
        }
        let (now, moved) = (Instant::now(), self.moved);
        let waited = match self.stall {
            Some(stall) if stall.moved == moved => {
                stall.waited + now.duration_since(stall.looked).min(LONGEST_LOOK)
            }
            _ => Duration::ZERO,
        };
        self.stall = Some(Stall { moved, looked: now, waited });
        Some(waited)
    }

    /// The operation that has been run for too long, unless its device has failed: nobody waits for it
    /// then.
    fn overdue(&mut self) -> Option<u64> {
        let (seq, left) = (self.running?, self.run_left()?);
        let stream = self.streams.get(&self.pending.get(&seq)?.stream)?;
        let works = self.devices[stream.device].failed.is_none();
        (left.is_zero() && works).then_some(seq)
    }

    /// How long an operation may be run while somebody waits.
    pub(super) fn run_limit(&self) -> Duration {
        self.stall_limit.unwrap_or(STALL_LIMIT)
    }

    /// How much longer the one that is being run may be. It counts from when this was first asked.
    pub(super) fn run_left(&mut self) -> Option<Duration> {
        let (seq, limit) = (self.running?, self.run_limit());
        match self.running_since {
            Some((of, since)) if of == seq => Some(limit.saturating_sub(since.elapsed())),
            _ => {
                self.running_since = Some((seq, Instant::now()));
                Some(limit)
            }
        }
    }

    /// How long the device may be stuck.
    pub(super) fn stall_limit(&self) -> Duration {
        match self.schedule {
            Schedule::Stepped => self.stall_limit.unwrap_or(Duration::MAX),
            _ => self.stall_limit.unwrap_or(STALL_LIMIT),
        }
    }

    /// How long it may stay stuck from now on; `None` where it is not, or may for ever.
    pub(super) fn stall_left(&mut self) -> Option<Duration> {
        let limit = self.stall_limit();
        if limit == Duration::MAX {
            return None;
        }
        self.stuck_for().map(|stuck| limit.saturating_sub(stuck))
    }
}
