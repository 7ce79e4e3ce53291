//! All that the simulated machine knows, under its one lock; no lock or thread in here.
//!
//! Streams are queues. The head of a stream that nothing holds back is in [`Ready`]; a head that
//! waits for a recording is in `blocked`; a stream whose operation is being run is in neither.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, OnceLock};

use super::bytes::Block;
use super::control::{SimOp, SimOpKind, SimSpan, Violation};
use super::fault::{Faults, Injected, Strike};
use super::memory::{DeviceMemory, PinnedMemory};
use super::module::Modules;
use super::options::SimOptions;
use super::schedule::{Next, Ready, Schedule};
use super::timeline::{Engines, Share, SimEngine};
use super::work::{Failure, Work};
use crate::driver::DevicePtr;

/// Executed operations that [`Simulator::timeline`](super::Simulator::timeline) remembers.
pub(super) const SPANS_KEPT: usize = 65_536;
/// Violations that are remembered: the first ones say most.
const VIOLATIONS_KEPT: usize = 1_024;

/// One recording of an event: waits and queries hold on to the one they met.
#[derive(Debug)]
pub(super) struct Recording {
    id: u64,
    /// Virtual time at which its stream came to it.
    reached: OnceLock<u64>,
}

impl Recording {
    pub(super) fn reached(&self) -> Option<u64> {
        self.reached.get().copied()
    }
}

/// What a stream's queue is made of.
pub(super) enum Item {
    Work(Work),
    Record(Arc<Recording>),
    Wait(Arc<Recording>),
    Alloc { ptr: DevicePtr, allocation: u64 },
    Free(DevicePtr),
}

struct Queued {
    /// Place among all items of the machine; the id of an operation.
    seq: u64,
    /// Host's virtual time at the call.
    issued: u64,
    item: Item,
}

pub(super) struct Stream {
    device: usize,
    queue: VecDeque<Queued>,
    /// Launches, copies and fills not finished, the one being run included.
    pub(super) unfinished: usize,
    /// An operation of it is being run.
    running: bool,
    /// Goes when its queue is empty; its handle is gone.
    destroyed: bool,
    /// Virtual end of what it came past: the latest of its operations and the recordings it
    /// waited for.
    end: u64,
}

pub(super) struct Event {
    pub(super) timed: bool,
    pub(super) latest: Option<Arc<Recording>>,
}

/// What is known of an operation from the call until it has run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) kind: SimOpKind,
    pub(super) name: &'static str,
    pub(super) bytes: u64,
    pub(super) engine: SimEngine,
    pub(super) share: Share,
    pub(super) duration: u64,
    /// It does not begin before this is open.
    pub(super) gate: Option<u64>,
}

#[derive(Debug)]
struct Pending {
    stream: u64,
    issued: u64,
    facts: Facts,
}

pub(super) struct Device {
    pub(super) memory: DeviceMemory,
    engines: Engines,
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
/// without the lock.
#[derive(Default)]
pub(super) struct Garbage {
    pub(super) works: Vec<Work>,
    pub(super) blocks: Vec<Arc<Block>>,
}

impl Garbage {
    pub(super) fn is_empty(&self) -> bool {
        self.works.is_empty() && self.blocks.is_empty()
    }
}

/// Work taken out of its queue to be run.
pub(super) struct Started {
    pub(super) seq: u64,
    pub(super) device: usize,
    pub(super) name: &'static str,
    pub(super) work: Work,
    /// It is made to fail.
    pub(super) strike: Option<Strike>,
}

pub(super) struct State {
    pub(super) devices: Vec<Device>,
    pub(super) streams: HashMap<u64, Stream>,
    pub(super) events: HashMap<u64, Event>,
    pub(super) modules: Modules,
    pub(super) pinned: PinnedMemory,
    pub(super) schedule: Schedule,
    ready: Ready,
    /// Streams whose head waits for a recording, by the recording.
    blocked: HashMap<u64, Vec<u64>>,
    /// Closed gates, and the streams whose head waits at them.
    gates: HashMap<u64, Vec<u64>>,
    /// Operations not finished, by sequence number.
    pending: BTreeMap<u64, Pending>,
    /// The operation being run.
    running: Option<u64>,
    pub(super) permit: Option<Permit>,
    /// The host's virtual clock, in ns.
    pub(super) host_now: u64,
    spans: VecDeque<SimSpan>,
    pub(super) violations: Vec<Violation>,
    pub(super) blocked_calls: u64,
    /// Calls of the driver that came in, refused ones too.
    pub(super) calls: u64,
    pub(super) faults: Faults,
    /// What calls took out of the queues, for the executor to drop.
    pub(super) garbage: Garbage,
    /// Last number given to a handle, a recording or an item.
    last_number: u64,
    /// Driver handles alive. At 0 the executor finishes what can run, and ends.
    pub(super) drivers: usize,
    pub(super) executor_started: bool,
    /// Nothing will run any more.
    pub(super) executor_ended: bool,
    /// The executor waits to be told that there is something to run.
    pub(super) executor_parked: bool,
}

impl State {
    pub(super) fn new(options: &SimOptions) -> Self {
        let device = Device {
            memory: DeviceMemory::new(0, options.total_memory),
            engines: Engines::new(options.cost.concurrent_kernels),
            failed: None,
        };
        State {
            devices: vec![device],
            streams: HashMap::new(),
            events: HashMap::new(),
            modules: Modules::default(),
            pinned: PinnedMemory::default(),
            schedule: options.schedule,
            ready: Ready::default(),
            blocked: HashMap::new(),
            gates: HashMap::new(),
            pending: BTreeMap::new(),
            running: None,
            permit: None,
            host_now: 0,
            spans: VecDeque::new(),
            violations: Vec::new(),
            blocked_calls: 0,
            calls: 0,
            faults: Faults::new(&options.faults),
            garbage: Garbage::default(),
            last_number: 0,
            drivers: 1,
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

    pub(super) fn add_stream(&mut self, device: usize) -> u64 {
        let id = self.number();
        let stream = Stream {
            device,
            queue: VecDeque::new(),
            unfinished: 0,
            running: false,
            destroyed: false,
            end: 0,
        };
        self.streams.insert(id, stream);
        id
    }

    /// A stream whose handle is alive.
    pub(super) fn stream(&self, id: u64, device: usize) -> Option<&Stream> {
        self.streams.get(&id).filter(|stream| !stream.destroyed && stream.device == device)
    }

    pub(super) fn live_streams(&self) -> usize {
        self.streams.values().filter(|stream| !stream.destroyed).count()
    }

    /// The handle is gone; what is enqueued still runs. False where there was no such stream.
    pub(super) fn destroy_stream(&mut self, id: u64, device: usize) -> bool {
        if self.stream(id, device).is_none() {
            return false;
        }
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.destroyed = true;
        }
        self.reap(id);
        true
    }

    fn reap(&mut self, id: u64) {
        let idle = |s: &Stream| s.destroyed && !s.running && s.queue.is_empty();
        if self.streams.get(&id).is_some_and(idle) {
            self.streams.remove(&id);
        }
    }

    /// A recording that no stream has come to.
    pub(super) fn new_recording(&mut self) -> Arc<Recording> {
        Arc::new(Recording { id: self.number(), reached: OnceLock::new() })
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
            self.pending.insert(seq, Pending { stream: id, issued, facts });
        }
        if idle {
            self.look_at_head(id);
        }
    }

    /// Notes what the stream's new head waits for, if anything.
    fn look_at_head(&mut self, id: u64) {
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
    }

    pub(super) fn choose(&self) -> Option<Next> {
        let permitted = self.permit.as_ref().map(|permit| permit.seq);
        self.schedule.choose(&self.ready, permitted)
    }

    /// Whether nothing is being run or would be, as the schedule stands.
    pub(super) fn settled(&self) -> bool {
        self.executor_ended || (self.running.is_none() && self.choose().is_none())
    }

    /// Runs the head of a stream, which is no work and held back by nothing.
    pub(super) fn run_control(&mut self, id: u64, garbage: &mut Garbage) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let Some(Queued { seq, issued, item }) = stream.queue.pop_front() else {
            return;
        };
        let device = &mut self.devices[stream.device];
        self.ready.remove(seq);
        match item {
            Item::Work(work) => garbage.works.push(work),
            Item::Record(recording) => {
                // Idle streams come to it at the call.
                let _ = recording.reached.set(stream.end.max(issued));
                for waiting in self.blocked.remove(&recording.id).unwrap_or_default() {
                    self.look_at_head(waiting);
                }
            }
            Item::Wait(on) => stream.end = stream.end.max(on.reached().unwrap_or(0)),
            Item::Alloc { ptr, allocation } => device.memory.reach(ptr, allocation),
            Item::Free(ptr) => garbage.blocks.extend(device.memory.free(ptr)),
        }
        self.look_at_head(id);
    }

    /// Takes the work at the head of a stream, to be run.
    pub(super) fn start(&mut self, id: u64) -> Option<Started> {
        let stream = self.streams.get_mut(&id)?;
        let Queued { seq, item, .. } = stream.queue.pop_front()?;
        self.ready.remove(seq);
        stream.running = true;
        self.running = Some(seq);
        let (Item::Work(work), Some(pending)) = (item, self.pending.get(&seq)) else {
            return None;
        };
        let Facts { name, kind, .. } = pending.facts;
        let strike = self.faults.meet_run(kind);
        if let Some(Strike { code, .. }) = strike {
            self.faults.note(Injected::Run { id: seq, kind, code });
        }
        Some(Started { seq, device: stream.device, name, work, strike })
    }

    /// The work that was started has run: gives it its times, or ends its device.
    pub(super) fn finish(&mut self, seq: u64, outcome: Result<(), Failure>, garbage: &mut Garbage) {
        self.running = None;
        // Nothing is placed before the call of the first operation not yet placed.
        let floor = self.pending.values().next().map_or(self.host_now, |first| first.issued);
        let Some(Pending { stream: id, issued, facts }) = self.pending.remove(&seq) else {
            return;
        };
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.running = false;
        stream.unfinished -= 1;
        let on = stream.device;
        match outcome {
            Ok(()) => {
                let Facts { kind, name, bytes, engine, share, duration, .. } = facts;
                let engines = &mut self.devices[on].engines;
                engines.forget_before(floor);
                let (start, end) = engines.place(engine, share, stream.end.max(issued), duration);
                stream.end = end;
                if self.spans.len() == SPANS_KEPT {
                    self.spans.pop_front();
                }
                let span = SimSpan { id: seq, stream: id, kind, name, bytes, engine, start, end };
                self.spans.push_back(span);
                self.look_at_head(id);
            }
            Err(Failure { code, violation }) => {
                self.fail(on, code, garbage);
                violation.into_iter().for_each(|violation| self.report(violation));
            }
        }
        if let Some(permit) = &mut self.permit
            && permit.seq == seq
        {
            permit.ran = Some(true);
        }
    }

    /// Ends a device with a sticky error: what is pending on it never runs.
    pub(super) fn fail(&mut self, device: usize, code: u32, garbage: &mut Garbage) {
        self.devices[device].failed.get_or_insert(code);
        let on_it: Vec<u64> = self
            .streams
            .iter()
            .filter(|(_, stream)| stream.device == device)
            .map(|(&id, _)| id)
            .collect();
        for id in &on_it {
            let Some(stream) = self.streams.get_mut(id) else {
                continue;
            };
            for Queued { seq, item, .. } in std::mem::take(&mut stream.queue) {
                self.ready.remove(seq);
                if let Item::Work(work) = item {
                    stream.unfinished -= 1;
                    self.pending.remove(&seq);
                    garbage.works.push(work);
                }
                if let Some(permit) = &mut self.permit
                    && permit.seq == seq
                {
                    permit.ran = Some(false);
                }
            }
            self.reap(*id);
        }
        for waiting in self.blocked.values_mut().chain(self.gates.values_mut()) {
            waiting.retain(|id| !on_it.contains(id));
        }
        self.blocked.retain(|_, waiting| !waiting.is_empty());
    }

    /// The executor has ended, by itself or by a panic: nothing runs any more.
    pub(super) fn end(&mut self, code: u32, garbage: &mut Garbage) {
        for device in 0..self.devices.len() {
            self.fail(device, code, garbage);
        }
        self.executor_ended = true;
        self.running = None;
        self.pending.clear();
        if let Some(permit) = &mut self.permit {
            permit.ran.get_or_insert(false);
        }
    }

    pub(super) fn report(&mut self, violation: Violation) {
        if self.violations.len() < VIOLATIONS_KEPT {
            self.violations.push(violation);
        }
    }

    /// Operations that have not begun, in the order enqueued.
    pub(super) fn ops(&self) -> impl Iterator<Item = SimOp> {
        let waiting = self.pending.iter().filter(|&(&seq, _)| self.running != Some(seq));
        waiting.map(|(&seq, &Pending { stream, facts, .. })| SimOp {
            id: seq,
            stream,
            kind: facts.kind,
            name: facts.name,
            bytes: facts.bytes,
            runnable: self.ready.work.contains_key(&seq),
        })
    }

    pub(super) fn spans(&self) -> Vec<SimSpan> {
        self.spans.iter().cloned().collect()
    }
}
