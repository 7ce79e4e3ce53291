//! All that the simulated machine knows, under its one lock; no lock or thread in here.
//!
//! Streams are queues. The head of a stream that nothing holds back is in [`Ready`]; a head that
//! waits for a recording is in `blocked`; a stream whose operation is being run is in neither.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use super::armed::Faults;
use super::bytes::Block;
use super::facts::Facts;
use super::host::HostSpan;
use super::memory::{DeviceMemory, PinnedMemory};
use super::module::Modules;
use super::op::{SimOp, SimSpan};
use super::options::SimOptions;
pub(super) use super::queue::{Event, Item, Recording, StreamOf};
use super::queue::{Queued, Stream};
use super::schedule::{Next, Ready, Schedule, Turn};
use super::stuck::{Stall, Stuck};
use super::timeline::Timeline;
use super::violation::Violation;
use super::work::Work;

/// Executed operations that [`Simulator::timeline`](super::Simulator::timeline) remembers.
pub(super) const SPANS_KEPT: usize = 65_536;
/// Violations that are remembered: the first ones say most.
const VIOLATIONS_KEPT: usize = 1_024;

#[derive(Debug)]
pub(super) struct Pending {
    pub(super) stream: u64,
    pub(super) issued: u64,
    pub(super) facts: Facts,
    /// It is being run, or never ends.
    pub(super) begun: bool,
}

pub(super) struct Device {
    pub(super) memory: DeviceMemory,
    pub(super) modules: Modules,
    /// The sticky error that ended it.
    pub(super) failed: Option<u32>,
}

/// A test's leave for one operation under [`Schedule::Stepped`].
pub(super) struct Permit {
    pub(super) seq: u64,
    /// Whether it ran; `None` until that is known.
    pub(super) ran: Option<bool>,
}

/// What came out of the queues for good. Holds user code's captures and large memory: dropped
/// without the lock. And what is to be logged, which calls user code as well.
#[derive(Default)]
pub(super) struct Garbage {
    /// How devices were stuck that ended by themselves.
    pub(super) reports: Vec<Stuck>,
    pub(super) works: Vec<Work>,
    pub(super) blocks: Vec<Arc<Block>>,
}

impl Garbage {
    pub(super) fn is_empty(&self) -> bool {
        self.works.is_empty() && self.blocks.is_empty() && self.reports.is_empty()
    }

    pub(super) fn add(&mut self, other: Garbage) {
        if other.is_empty() {
            return; // mostly
        }
        self.reports.extend(other.reports);
        self.works.extend(other.works);
        self.blocks.extend(other.blocks);
    }
}

pub(super) struct State {
    pub(super) devices: Vec<Device>,
    /// One device that fails takes all others along.
    pub(super) shared_fate: bool,
    pub(super) timeline: Timeline,
    pub(super) streams: FxHashMap<u64, Stream>,
    pub(super) default_streams: FxHashMap<(usize, StreamOf), u64>,
    pub(super) events: FxHashMap<u64, Event>,
    pub(super) pinned: PinnedMemory,
    pub(super) schedule: Schedule,
    pub(super) ready: Ready,
    /// Of the call under way, where the schedule is in lock-step.
    pub(super) turn: Turn,
    /// Tests that step right now.
    pub(super) stepping: usize,
    /// Streams whose head waits for a recording, by the recording.
    pub(super) blocked: FxHashMap<u64, Vec<u64>>,
    /// Closed gates, and the streams whose head waits at them.
    pub(super) gates: FxHashMap<u64, Vec<u64>>,
    /// Operations not finished, by sequence number.
    pub(super) pending: BTreeMap<u64, Pending>,
    /// The operation being run.
    pub(super) running: Option<u64>,
    /// The page-locked memory that it copies.
    pub(super) running_span: Option<HostSpan>,
    /// Grows whenever anything is enqueued, begun, run, opened or dropped.
    pub(super) moved: u64,
    /// The operation that was being run when somebody waited, and when that was first so.
    pub(super) running_since: Option<(u64, Instant)>,
    /// Set where the device was found stuck by somebody who waits.
    pub(super) stall: Option<Stall>,
    /// How long it may be so; `None` where the schedule says.
    pub(super) stall_limit: Option<Duration>,
    pub(super) permit: Option<Permit>,
    /// The host's virtual clock, in ns.
    pub(super) host_now: u64,
    pub(super) spans: VecDeque<SimSpan>,
    pub(super) violations: Vec<Violation>,
    pub(super) blocked_calls: u64,
    /// Calls of the driver that came in, refused ones too.
    pub(super) calls: u64,
    pub(super) faults: Faults,
    /// What calls took out of the queues, for the executor to drop.
    pub(super) garbage: Garbage,
    /// Last number given to a handle, a recording or an item.
    last_number: u64,
    /// Handles of drivers and of the machine alive. At 0 the executor finishes what can run, and
    /// ends.
    pub(super) users: usize,
    pub(super) executor_started: bool,
    /// Nothing will run any more.
    pub(super) executor_ended: bool,
    /// The executor waits to be told that there is something to run.
    pub(super) executor_parked: bool,
}

impl State {
    pub(super) fn new(devices: usize, options: &SimOptions) -> Self {
        let device = |ordinal| Device {
            memory: DeviceMemory::new(ordinal, options.total_memory),
            modules: Modules::default(),
            failed: None,
        };
        State {
            devices: (0..devices).map(device).collect(),
            shared_fate: options.shared_fate,
            timeline: Timeline::new(devices, &options.cost, options.hardware.threads()),
            streams: FxHashMap::default(),
            default_streams: FxHashMap::default(),
            events: FxHashMap::default(),
            pinned: PinnedMemory::default(),
            schedule: options.schedule,
            ready: Ready::default(),
            turn: Turn::new(options.schedule),
            stepping: 0,
            blocked: FxHashMap::default(),
            gates: FxHashMap::default(),
            pending: BTreeMap::new(),
            running: None,
            running_span: None,
            moved: 0,
            running_since: None,
            stall: None,
            stall_limit: options.stall_limit,
            permit: None,
            host_now: 0,
            spans: VecDeque::new(),
            violations: Vec::new(),
            blocked_calls: 0,
            calls: 0,
            faults: Faults::new(&options.faults),
            garbage: Garbage::default(),
            last_number: 0,
            users: 0,
            executor_started: false,
            executor_ended: false,
            executor_parked: false,
        }
    }

    /// A number that nothing else has.
    pub(super) fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    pub(super) fn add_stream(&mut self, device: usize, level: usize) -> u64 {
        let id = self.number();
        self.streams.insert(id, Stream::new(device, StreamOf::Maker, level));
        id
    }

    /// Made when it is first asked for, of no urgency. It stays.
    pub(super) fn default_stream(&mut self, device: usize, of: StreamOf) -> u64 {
        if let Some(&id) = self.default_streams.get(&(device, of)) {
            return id;
        }
        let id = self.number();
        self.streams.insert(id, Stream::new(device, of, 0));
        self.default_streams.insert((device, of), id);
        id
    }

    /// A stream whose handle is alive.
    pub(super) fn stream(&self, id: u64, device: usize) -> Option<&Stream> {
        self.streams.get(&id).filter(|stream| !stream.destroyed && stream.device == device)
    }

    /// An event of this device.
    pub(super) fn event(&self, id: u64, device: usize) -> Option<&Event> {
        self.events.get(&id).filter(|event| event.device == device)
    }

    /// Of these devices, without default streams.
    pub(super) fn live_streams(&self, devices: &Range<usize>) -> usize {
        let live = |stream: &&Stream| {
            stream.of == StreamOf::Maker && !stream.destroyed && devices.contains(&stream.device)
        };
        self.streams.values().filter(live).count()
    }

    /// The handle is gone; what is enqueued still runs. False where nobody made such a stream.
    pub(super) fn destroy_stream(&mut self, id: u64, device: usize) -> bool {
        if self.stream(id, device).is_none_or(|stream| stream.of != StreamOf::Maker) {
            return false;
        }
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.destroyed = true;
        }
        self.reap(id);
        true
    }

    pub(super) fn reap(&mut self, id: u64) {
        let idle = |s: &Stream| s.destroyed && !s.running && s.queue.is_empty();
        if self.streams.get(&id).is_some_and(idle) {
            self.streams.remove(&id);
        }
    }

    /// A recording that no stream has come to, of what was given to this one.
    pub(super) fn new_recording(&mut self, stream: u64) -> Arc<Recording> {
        let after = self.streams.get(&stream).and_then(|stream| stream.last);
        Arc::new(Recording::new(self.number(), stream, after))
    }

    /// Puts an item at the end of a stream. `facts` where it is work.
    pub(super) fn push(&mut self, id: u64, item: Item, facts: Option<Facts>) {
        let (seq, issued) = (self.number(), self.host_now);
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let idle = stream.queue.is_empty() && !stream.running;
        stream.queue.push_back(Queued { seq, issued, item });
        if let Some(facts) = facts {
            stream.unfinished += 1;
            stream.last = Some((seq, facts.name));
            self.pending.insert(seq, Pending { stream: id, issued, facts, begun: false });
        }
        self.moved += 1;
        if idle {
            self.look_at_head(id);
        }
    }

    /// Notes what the stream's new head waits for, if anything.
    pub(super) fn look_at_head(&mut self, id: u64) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        match stream.queue.front() {
            None => self.reap(id),
            Some(Queued { seq, item: Item::Work(_), .. }) => {
                let gate = self.pending.get(seq).and_then(|pending| pending.facts.gate);
                match gate.and_then(|gate| self.gates.get_mut(&gate)) {
                    Some(waiting) => waiting.push(id),
                    None => drop(self.ready.work.insert(*seq, id)),
                }
            }
            Some(Queued { item: Item::Wait(on), .. }) if on.reached().is_none() => {
                self.blocked.entry(on.id).or_default().push(id);
            }
            Some(Queued { seq, .. }) => {
                self.ready.control.insert(*seq, id);
            }
        }
    }

    /// A gate, closed.
    pub(super) fn new_gate(&mut self) -> u64 {
        let gate = self.number();
        self.gates.insert(gate, Vec::new());
        gate
    }

    /// What waits at the gate can run from here on.
    pub(super) fn open_gate(&mut self, gate: u64) {
        for waiting in self.gates.remove(&gate).unwrap_or_default() {
            self.look_at_head(waiting);
        }
        self.moved += 1;
    }

    pub(super) fn choose(&self) -> Option<Next> {
        let permitted = self.permit.as_ref().map(|permit| permit.seq);
        self.schedule.choose(&self.ready, self.stepping > 0, permitted, &self.turn)
    }

    /// Whether the executor, if it is parked, is to look.
    pub(super) fn has_something_for_executor(&self) -> bool {
        // Looking is cheap: only where most calls leave nothing to run it is not worth a wake-up.
        !self.schedule.is_lock_step()
            || self.users == 0
            || !self.garbage.is_empty()
            || self.choose().is_some()
    }

    /// Whether nothing is being run or would be, as the schedule stands.
    pub(super) fn settled(&self) -> bool {
        self.executor_ended || (self.running.is_none() && self.choose().is_none())
    }

    pub(super) fn report(&mut self, violation: Violation) {
        if self.violations.len() < VIOLATIONS_KEPT {
            self.violations.push(violation);
        }
    }

    /// Operations that have not begun, in the order enqueued.
    pub(super) fn ops(&self) -> impl Iterator<Item = SimOp> {
        let waiting = self.pending.iter().filter(|(_, pending)| !pending.begun);
        waiting.map(|(&seq, pending)| self.op(seq, pending))
    }

    pub(super) fn op(&self, seq: u64, &Pending { stream, facts, .. }: &Pending) -> SimOp {
        SimOp {
            id: seq,
            device: self.streams.get(&stream).map_or(0, |stream| stream.device),
            stream,
            kind: facts.kind,
            name: facts.name,
            bytes: facts.bytes,
            runnable: self.ready.work.contains_key(&seq),
        }
    }

    pub(super) fn spans(&self) -> Vec<SimSpan> {
        self.spans.iter().cloned().collect()
    }
}
