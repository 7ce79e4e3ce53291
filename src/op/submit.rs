//! The one way onto a stream.
//!
//! The order of steps, and why no interleaving of threads can lose a conflict, is argued in
//! DESIGN.md under "Life of one operation". In short: the stream's submit lock is taken first and
//! held to the end; the buffers' locks are taken in the order of their numbers and released before
//! any driver call; an access is noted before the call and taken back if the call is refused.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::buffer::{Access, Hazards, Memory, Mode, Note, Tracked};
use crate::device::DeviceCore;
use crate::driver::{Driver, DriverError, StreamHandle};
use crate::error::{Error, Result};
use crate::reactor::{Clock, Completion, Enqueue, Held, LaneId, OpKey, Recording, Ticket, Waits};
use crate::sync::MutexGuard;

/// Memory that an operation touches, and how.
#[derive(Clone, Debug)]
pub(crate) struct Operand<'a> {
    /// `None` where there are no bytes.
    pub(crate) tracked: Option<&'a Tracked>,
    pub(crate) access: Access,
    /// For messages.
    pub(crate) argument: &'static str,
}

impl<'a> AsRef<Operand<'a>> for Operand<'a> {
    fn as_ref(&self) -> &Operand<'a> {
        self
    }
}

impl<'a> Operand<'a> {
    pub(crate) fn new(argument: &'static str, touched: (Option<&'a Tracked>, Access)) -> Self {
        Operand { tracked: touched.0, access: touched.1, argument }
    }
}

/// How a driver refused an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    /// Nothing of it was enqueued.
    Whole(DriverError),
    /// The first `made` calls are on the stream.
    Rest { error: DriverError, made: u64 },
}

impl From<DriverError> for Refusal {
    fn from(error: DriverError) -> Self {
        Refusal::Whole(error)
    }
}

/// Enqueues one operation on the current stream of `core`: orders it after everything that
/// `operands` conflict with, then has `call` make the driver calls.
///
/// `calls` is how many calls of those that a stream's queue has room for `call` makes, at most.
///
/// On `Err` nothing is enqueued and the operands are as they were; after a [`Refusal::Rest`], what
/// it writes is undefined.
pub(crate) fn submit<'a, O: AsRef<Operand<'a>>>(
    core: &Arc<DeviceCore>,
    op: OpKey,
    operands: &'a [O],
    calls: u64,
    call: impl FnOnce(&dyn Driver, &StreamHandle) -> Result<(), Refusal>,
) -> Result<Completion> {
    let submitted = enqueue(core, op, operands, calls, call);
    core.raise_race();
    submitted
}

fn enqueue<'a, O: AsRef<Operand<'a>>>(
    core: &Arc<DeviceCore>,
    op: OpKey,
    operands: &'a [O],
    calls: u64,
    call: impl FnOnce(&dyn Driver, &StreamHandle) -> Result<(), Refusal>,
) -> Result<Completion> {
    check_device(core, op, operands)?;
    let lane = core.current_lane();
    loop {
        let mut enqueue = lane.enqueue(op, calls)?;
        let mut records = Records::lock(core, operands);
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
        let mut notes = SmallVec::<[(&Tracked, Note); 8]>::new();
        let recording = records.note(core, enqueue.take_ticket(), &mut notes);
        drop(records);
        let enqueued = enqueue
            .wait(&waits)
            .map_err(Refusal::Whole)
            .and_then(|()| call(enqueue.driver(), enqueue.stream()));
        let refusal = match enqueued {
            Ok(()) => {
                note_reader(operands, enqueue.lane());
                let seq = enqueue.finish(recording, Held::Yes);
                return Ok(Completion::of_submission(lane, seq));
            }
            Err(refusal) => refusal,
        };
        let (take_back, cause): (fn(&mut Hazards, Note), _) = match refusal {
            Refusal::Whole(error) => {
                enqueue.withdraw();
                (Hazards::undo, error)
            }
            Refusal::Rest { error, made } => {
                note_reader(operands, enqueue.lane());
                enqueue.withdraw_rest(made);
                (Hazards::undefine, error)
            }
        };
        for (tracked, note) in notes.into_iter().rev() {
            take_back(&mut tracked.lock(), note);
        }
        return Err(match core.reactor().refused(op.name(), cause) {
            Error::Refused { operation, cause } if matches!(refusal, Refusal::Rest { .. }) => {
                Error::PartlyRefused { operation, cause }
            }
            error => error,
        });
    }
}

fn check_device<'a, O: AsRef<Operand<'a>>>(
    core: &DeviceCore,
    op: OpKey,
    operands: &[O],
) -> Result<()> {
    for Operand { tracked, argument, .. } in operands.iter().map(AsRef::as_ref) {
        if let Some(stranger) = tracked.filter(|tracked| tracked.device() != core.number()) {
            return Err(Error::WrongDevice {
                operation: op.name(),
                argument,
                of: stranger.device(),
                on: core.number(),
            });
        }
    }
    Ok(())
}

/// Remembers, of frozen memory, that there is a read on a lane: not before there is one, since who
/// writes or frees the memory later waits for the lane. Until then a handle to it is borrowed.
fn note_reader<'a, O: AsRef<Operand<'a>>>(operands: &[O], lane: LaneId) {
    let tracked = operands.iter().filter_map(|operand| operand.as_ref().tracked);
    tracked.filter_map(Tracked::frozen).for_each(|frozen| frozen.read_by(lane));
}

/// The operands' records, all locked.
struct Records<'a> {
    operands: SmallVec<[OperandRecord<'a>; 8]>,
    /// One for each allocation, in the order of their numbers: every thread locks in that order.
    locked: SmallVec<[MutexGuard<'a, Hazards>; 8]>,
}

struct OperandRecord<'a> {
    operand: &'a Operand<'a>,
    tracked: &'a Tracked,
    /// Which of `locked` is its record.
    record: usize,
}

impl<'a> Records<'a> {
    /// Those that an operation has to look at.
    fn lock<O: AsRef<Operand<'a>>>(core: &DeviceCore, operands: &'a [O]) -> Self {
        let mut records = SmallVec::<[OperandRecord<'a>; 8]>::new();
        for operand in operands.iter().map(AsRef::as_ref) {
            let Some(tracked) = operand.tracked else { continue };
            if tracked.frozen().is_some_and(|frozen| frozen.is_settled()) {
                continue;
            }
            records.push(OperandRecord { operand, tracked, record: 0 });
        }
        if !records.is_sorted_by_key(|o| o.tracked.id()) {
            records.sort_unstable_by_key(|o| o.tracked.id());
        }
        let mut locked = SmallVec::new();
        let mut last = None;
        for OperandRecord { tracked, record, .. } in &mut records {
            if last != Some(tracked.id()) {
                let hazards = tracked.lock();
                if let Some(frozen) = tracked.frozen() {
                    frozen
                        .settle(&hazards, tracked.bytes(), |ticket| core.is_known_finished(ticket));
                }
                locked.push(hazards);
                last = Some(tracked.id());
            }
            *record = locked.len() - 1;
        }
        Records { operands: records, locked }
    }

    fn each(&self) -> impl Iterator<Item = (&OperandRecord<'a>, &Hazards)> {
        self.operands.iter().map(|o| (o, &*self.locked[o.record]))
    }

    fn check_defined(&self, op: OpKey) -> Result<()> {
        for (OperandRecord { operand, tracked, .. }, hazards) in self.each() {
            if operand.access.mode == Mode::Overwrite {
                continue;
            }
            if let Some(range) = hazards.undefined_in(&operand.access.region) {
                let buffer = tracked.describe();
                let (operation, argument) = (op.name(), operand.argument);
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
    ) -> std::result::Result<Waits, Ticket> {
        let own = enqueue.lane();
        if self.locked.iter().all(|hazards| hazards.is_private_to(own)) {
            return Ok(Waits::default());
        }
        let mut after = Clock::default();
        for (OperandRecord { operand, .. }, hazards) in self.each() {
            hazards.conflicts(&operand.access, |ticket| {
                if ticket.lane != own {
                    after.add(ticket);
                }
            });
        }
        enqueue.waits(&after, |id: LaneId| core.lane(id))
    }

    /// Notes every access by `ticket`: from here on others order themselves after it.
    fn note(
        &mut self,
        core: &DeviceCore,
        ticket: Ticket,
        notes: &mut SmallVec<[(&'a Tracked, Note); 8]>,
    ) -> Recording {
        let mut recording = Recording::Lazy;
        let noted = self.operands.iter().filter(|operand| operand.tracked.frozen().is_none());
        for OperandRecord { operand, tracked, record } in noted {
            let hazards = &mut self.locked[*record];
            notes.push((
                *tracked,
                hazards.note(&operand.access, ticket, |other| core.is_known_finished(other)),
            ));
            if tracked.memory() == Memory::Pinned {
                recording = recording.max(Recording::BeforeNext);
            }
            if hazards.is_shared() {
                recording = recording.max(Recording::Now);
            }
        }
        recording
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::device::Device;
    use crate::reactor::block_on_thread;

    #[test]
    fn a_read_of_settled_memory_takes_no_lock_of_its_record() -> Result<()> {
        let device = Device::simulated()?;
        let mut x = device.alloc::<u32>(8)?;
        block_on_thread(x.fill(7)?)?;
        let (shared, mut y) = (x.into_shared(), device.alloc::<u32>(8)?);
        shared.copy_to(&mut y)?; // sees that its writer is finished
        let held = shared.place().access(Mode::Read).0.map(Tracked::lock);
        assert!(held.is_some());
        let (sender, ended) = mpsc::channel();
        std::thread::scope(|scope| {
            let reader = shared.clone();
            scope.spawn(move || sender.send(reader.copy_to(&mut y).map(drop)));
            let ended = ended.recv_timeout(Duration::from_secs(10));
            drop(held); // or the thread would not end
            assert!(matches!(ended, Ok(Ok(()))), "{ended:?}");
        });
        Ok(())
    }
}
