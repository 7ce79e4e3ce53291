//! What becomes of streams when something of theirs runs.

use super::facts::Facts;
use super::fault::{Effect, Injected};
use super::host::HostSpan;
use super::op::SimSpan;
use super::queue::{Item, Queued};
use super::state::{Garbage, Pending, SPANS_KEPT, State};
use super::work::{Failure, Work};

/// Work taken out of its queue to be run.
pub(super) struct Started {
    pub(super) seq: u64,
    pub(super) device: usize,
    pub(super) name: &'static str,
    pub(super) work: Work,
    /// It is made to fail with this error; whether it is done all the same.
    pub(super) strike: Option<(u32, bool)>,
}

impl State {
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
        self.moved += 1;
        self.go_on();
    }

    /// Takes the work at the head of a stream, to be run. `None` where it never ends: it keeps its
    /// stream.
    pub(super) fn start(&mut self, id: u64) -> Option<Started> {
        self.turn.next = None;
        let stream = self.streams.get_mut(&id)?;
        let Queued { seq, item, .. } = stream.queue.pop_front()?;
        self.ready.remove(seq);
        self.moved += 1;
        let (Item::Work(work), Some(pending)) = (item, self.pending.get_mut(&seq)) else {
            return None;
        };
        stream.running = true;
        pending.begun = true;
        let (device, Facts { name, kind, .. }) = (stream.device, pending.facts);
        let mut strike = None;
        match self.faults.meet_run(kind) {
            None | Some(Effect::Late(_)) => {}
            Some(Effect::Error { code, takes_effect }) => {
                self.faults.note(Injected::Run { id: seq, kind, code });
                strike = Some((code, takes_effect));
            }
            Some(Effect::Slow(ns)) => {
                self.faults.note(Injected::Slow { id: seq, kind, ns });
                pending.facts.takes = pending.facts.takes.longer(ns);
            }
            Some(Effect::Endless) => {
                self.faults.note(Injected::NeverFinishes { id: seq, kind });
                stream.endless = Some((seq, work));
                self.permit_ran(seq, true);
                self.go_on();
                return None;
            }
        }
        self.running = Some(seq);
        self.running_span = HostSpan::of(&work);
        Some(Started { seq, device, name, work, strike })
    }

    /// The work that was started has run: gives it its times, or ends its device.
    pub(super) fn finish(&mut self, seq: u64, outcome: Result<(), Failure>, garbage: &mut Garbage) {
        self.running = None;
        self.running_span = None;
        self.moved += 1;
        // Nothing is placed before the call of the first operation not yet placed.
        let floor = self.pending.values().next().map_or(self.host_now, |first| first.issued);
        let Some(Pending { stream: id, issued, facts, .. }) = self.pending.remove(&seq) else {
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
                let Facts { kind, name, bytes, takes, .. } = facts;
                let (level, earliest) = (stream.level, stream.end.max(issued));
                let (start, end) = self.timeline.place(on, takes, level, earliest, floor);
                stream.end = end;
                if self.spans.len() == SPANS_KEPT {
                    self.spans.pop_front();
                }
                let engine = takes.engine();
                self.spans.push_back(SimSpan {
                    id: seq,
                    device: on,
                    stream: id,
                    kind,
                    name,
                    bytes,
                    engine,
                    start,
                    end,
                });
                self.look_at_head(id);
            }
            Err(Failure { code, violation }) => {
                self.fail(on, code, garbage);
                violation.into_iter().for_each(|violation| self.report(violation));
            }
        }
        self.permit_ran(seq, true);
        self.go_on();
    }

    pub(super) fn permit_ran(&mut self, seq: u64, ran: bool) {
        if let Some(permit) = &mut self.permit
            && permit.seq == seq
        {
            permit.ran = Some(ran);
        }
    }
}
