//! The one way onto a stream.
//!
//! The order of steps, and why no interleaving of threads can lose a conflict, is argued in
//! DESIGN.md under "Life of one operation". In short: the stream's submit lock is taken first and
//! held to the end; the buffers' locks are taken in the order of their numbers and released before
//! any driver call; an access is noted before the call and taken back if the call is refused.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::buffer::{Access, Hazards, Memory, Mode, Tracked, Undo};
use crate::device::DeviceCore;
use crate::driver::{Driver, DriverResult, StreamHandle};
use crate::error::{Error, Result};
use crate::reactor::{Completion, Enqueue, EventRef, LaneId, Need, OpKey, Recording, Ticket};
use crate::sync::MutexGuard;

/// Memory that an operation touches, and how.
#[derive(Clone, Debug)]
pub(crate) struct Operand<'a> {
    pub(crate) tracked: &'a Tracked,
    pub(crate) access: Access,
    /// For messages.
    pub(crate) argument: &'static str,
}

impl<'a> Operand<'a> {
    /// `None` where there are no bytes.
    pub(crate) fn new(
        argument: &'static str,
        touched: Option<(&'a Tracked, Access)>,
    ) -> Option<Self> {
        touched.map(|(tracked, access)| Operand { tracked, access, argument })
    }
}

/// An event to wait for on the device, and up to where it covers its lane.
type Wait = (LaneId, u64, EventRef);

/// Enqueues one operation on the current stream of `core`: orders it after everything that
/// `operands` conflict with, then has `call` make the driver calls.
///
/// On `Err` nothing is enqueued and the operands are as they were.
pub(crate) fn submit(
    core: &Arc<DeviceCore>,
    op: OpKey,
    operands: &[Operand<'_>],
    call: impl FnOnce(&dyn Driver, &StreamHandle) -> DriverResult<()>,
) -> Result<Completion> {
    check_device(core, op, operands)?;
    let lane = core.current_lane();
    loop {
        let mut enqueue = lane.enqueue(op)?;
        let mut records = Records::lock(operands);
        records.check_defined(op)?;
        let waits = match records.waits(core, &enqueue) {
            Ok(waits) => waits,
            Err(unrecorded) => {
                // Another lane's event has to be recorded, which takes that lane's lock: never
                // while ours is held. Then look again.
                drop(records);
                drop(enqueue);
                if let Some(other) = core.lane(unrecorded.lane) {
                    other.record_through(unrecorded.seq)?;
                }
                continue;
            }
        };
        let (undo, recording) = records.note(enqueue.take_ticket());
        drop(records);
        let enqueued = issue(&mut enqueue, &waits).and_then(|()| {
            let stream = enqueue.stream()?;
            call(enqueue.driver(), stream)
        });
        return match enqueued {
            Ok(()) => Ok(enqueue.finish(recording)),
            Err(source) => {
                for (operand, undo) in operands.iter().zip(undo) {
                    operand.tracked.lock().undo(undo);
                }
                Err(core.reactor().refused(op.name, source))
            }
        };
    }
}

fn check_device(core: &DeviceCore, op: OpKey, operands: &[Operand<'_>]) -> Result<()> {
    match operands.iter().find(|o| o.tracked.device() != core.number()) {
        None => Ok(()),
        Some(stranger) => Err(Error::WrongDevice {
            operation: op.name,
            argument: stranger.argument,
            of: stranger.tracked.device(),
            on: core.number(),
        }),
    }
}

fn issue(enqueue: &mut Enqueue<'_>, waits: &[Wait]) -> DriverResult<()> {
    waits.iter().try_for_each(|(lane, seq, event)| enqueue.wait(*lane, *seq, event))
}

/// The operands' records, all locked.
struct Records<'a> {
    operands: &'a [Operand<'a>],
    /// One for each allocation, in the order of their numbers: every thread locks in that order.
    locked: SmallVec<[MutexGuard<'a, Hazards>; 4]>,
    /// Which of `locked` is each operand's.
    index: SmallVec<[usize; 4]>,
}

impl<'a> Records<'a> {
    fn lock(operands: &'a [Operand<'a>]) -> Self {
        let mut order: SmallVec<[usize; 4]> = (0..operands.len()).collect();
        order.sort_unstable_by_key(|i| operands[*i].tracked.id());
        let mut records = Records {
            operands,
            locked: SmallVec::new(),
            index: SmallVec::from_elem(0, operands.len()),
        };
        let mut last = None;
        for i in order {
            let tracked = operands[i].tracked;
            if last.replace(tracked.id()) != Some(tracked.id()) {
                records.locked.push(tracked.lock());
            }
            records.index[i] = records.locked.len() - 1;
        }
        records
    }

    fn each(&self) -> impl Iterator<Item = (&Operand<'a>, &Hazards)> {
        self.operands.iter().zip(&self.index).map(|(operand, i)| (operand, &*self.locked[*i]))
    }

    fn check_defined(&self, op: OpKey) -> Result<()> {
        for (operand, hazards) in self.each() {
            if operand.access.mode == Mode::Overwrite {
                continue;
            }
            if let Some(range) = hazards.undefined_in(&operand.access.range) {
                let buffer = operand.tracked.describe();
                let (operation, argument) = (op.name, operand.argument);
                return Err(Error::Uninitialised { operation, argument, buffer, range });
            }
        }
        Ok(())
    }

    /// The waits that it takes; `Err` names an operation that has no event yet.
    fn waits(
        &self,
        core: &DeviceCore,
        enqueue: &Enqueue<'_>,
    ) -> std::result::Result<SmallVec<[Wait; 4]>, Ticket> {
        let mut waits = SmallVec::<[Wait; 4]>::new();
        let mut unrecorded = None;
        for (operand, hazards) in self.each() {
            hazards.conflicts(&operand.access, |ticket| {
                let Some(other) = core.lane(ticket.lane) else { return };
                let known = waits.iter_mut().find(|wait| wait.0 == ticket.lane);
                if known.as_ref().is_some_and(|wait| wait.1 >= ticket.seq) {
                    return;
                }
                match enqueue.need(other, ticket.seq) {
                    Need::Nothing => {}
                    Need::Record => unrecorded = Some(ticket),
                    Need::Wait(seq, event) => match known {
                        // One wait a lane: the later event covers the earlier.
                        Some(wait) => *wait = (ticket.lane, seq, event),
                        None => waits.push((ticket.lane, seq, event)),
                    },
                }
            });
        }
        unrecorded.map_or(Ok(waits), Err)
    }

    /// Notes every access by `ticket`: from here on others order themselves after it.
    fn note(&mut self, ticket: Ticket) -> (SmallVec<[Undo; 4]>, Recording) {
        let mut recording = Recording::Lazy;
        let mut undo = SmallVec::new();
        for (operand, i) in self.operands.iter().zip(&self.index) {
            let hazards = &mut self.locked[*i];
            undo.push(hazards.note(&operand.access, ticket));
            if operand.tracked.memory() == Memory::Pinned {
                recording = recording.max(Recording::BeforeNext);
            }
            if hazards.is_shared() {
                recording = recording.max(Recording::Now);
            }
        }
        (undo, recording)
    }
}
