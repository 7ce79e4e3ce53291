//! The one way onto a stream.
//!
//! The order of steps, and why no interleaving of threads can lose a conflict, is argued in
//! DESIGN.md under "Life of one operation". In short: the stream's submit lock is taken first and
//! held to the end; the buffers' locks are taken in the order of their numbers and released before
//! any driver call; an access is noted before the call and taken back if the call is refused.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::buffer::{Access, Frozen, Hazards, Memory, Notes, Tracked};
use crate::device::{Admitted, DeviceCore};
use crate::driver::{Driver, DriverError, StreamHandle};
use crate::error::{Error, Result};
use crate::reactor::{Completion, Held, LaneId, Latest, OpKey, Recording, Ticket};
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
    let mut touched = Touched::default();
    touched.add(core, op, operands)?;
    let admitted = admit(core, op, operands, calls)?;
    let lane = core.current_lane();
    loop {
        let mut enqueue = lane.enqueue(op, calls)?;
        let mut accesses = Accesses::default();
        let looked = accesses.look(core, &touched, enqueue.ticket());
        looked.map_err(|obstacle| obstacle.error(op))?;
        let waits = match enqueue.waits(accesses.after.iter(), |id: LaneId| core.lane(id)) {
            Ok(waits) => waits,
            Err(unrecorded) => {
                // Other lanes' events have to be recorded, which takes those lanes' locks: never
                // while ours is held. Then look again.
                drop(accesses);
                drop(enqueue);
                for ticket in unrecorded {
                    if let Some(other) = core.lane(ticket.lane) {
                        other.record_through(ticket.seq)?;
                    }
                }
                continue;
            }
        };
        accesses.note_rest(core, &touched, enqueue.ticket());
        enqueue.take_ticket();
        accesses.publish();
        let enqueued = enqueue
            .wait(&waits)
            .map_err(Refusal::Whole)
            .and_then(|()| call(enqueue.driver(), enqueue.stream()));
        let refusal = match enqueued {
            Ok(()) => {
                note_reader(operands, enqueue.lane());
                let ticket = enqueue.ticket();
                let seq = enqueue.finish(accesses.recording, Held::Yes);
                if let Some(admitted) = admitted {
                    admitted.enqueued(ticket);
                }
                let unseen = waits.unseen().and_then(|id| core.lane(id));
                // An event that is referred to is not used again.
                drop(waits);
                if let Some(unseen) = unseen {
                    unseen.look_if_due();
                }
                return Ok(Completion::of_submission(lane, seq));
            }
            Err(refusal) => refusal,
        };
        let (take_back, cause): (fn(&mut Hazards, &mut Notes), _) = match refusal {
            Refusal::Whole(error) => {
                enqueue.withdraw();
                (Hazards::undo, error)
            }
            Refusal::Rest { error, made } => {
                note_reader(operands, enqueue.lane());
                enqueue.withdraw_rest(made);
                if let Some(admitted) = admitted {
                    admitted.enqueued(enqueue.ticket());
                }
                (Hazards::undefine, error)
            }
        };
        while let Some((tracked, _)) = accesses.noted.pop() {
            take_back(&mut tracked.lock(), &mut accesses.notes);
        }
        return Err(match core.reactor().refused(op.name(), cause) {
            Error::Refused { operation, cause } if matches!(refusal, Refusal::Rest { .. }) => {
                Error::PartlyRefused { operation, cause }
            }
            error => error,
        });
    }
}

/// Where there is a limit to what is in flight, waits for nobody and is refused above it.
fn admit<'c, 'a, O: AsRef<Operand<'a>>>(
    core: &'c DeviceCore,
    op: OpKey,
    operands: &'a [O],
    calls: u64,
) -> Result<Option<Admitted<'c>>> {
    let Some(flow) = core.flow() else { return Ok(None) };
    // What ordinary memory goes through is bounded by itself.
    let operands = operands.iter().map(AsRef::as_ref);
    if operands.clone().any(|operand| operand.tracked.is_some_and(Tracked::is_staged)) {
        return Ok(None);
    }
    let pinned = operands.filter(|o| o.tracked.is_some_and(|t| t.memory() == Memory::Pinned));
    let bytes = pinned.map(|operand| operand.access.region.bytes() as u64).sum();
    flow.admit(core, op.name(), bytes, calls).map(Some)
}

/// Remembers, of frozen memory, that there is a read on a lane: not before there is one, since who
/// writes or frees the memory later waits for the lane. Until then a handle to it is borrowed.
fn note_reader<'a, O: AsRef<Operand<'a>>>(operands: &[O], lane: LaneId) {
    let tracked = operands.iter().filter_map(|operand| operand.as_ref().tracked);
    tracked.filter_map(Tracked::frozen).for_each(|frozen| frozen.read_by(lane));
}

/// What an operation has to look at before it is enqueued.
#[derive(Default)]
struct Touched<'a> {
    /// Whose accesses are noted, in the order in which records are locked.
    noted: SmallVec<[(&'a Tracked, &'a Operand<'a>); 8]>,
    /// Frozen memory that is not known to be settled.
    frozen: SmallVec<[(&'a Frozen, &'a Tracked, &'a Operand<'a>); 2]>,
}

impl<'a> Touched<'a> {
    /// In place, as what is as large as this is not handed about.
    fn add<O: AsRef<Operand<'a>>>(
        &mut self,
        core: &DeviceCore,
        op: OpKey,
        operands: &'a [O],
    ) -> Result<()> {
        for operand in operands.iter().map(AsRef::as_ref) {
            let Some(tracked) = operand.tracked else { continue };
            if tracked.device() != core.number() {
                return Err(Error::WrongDevice {
                    operation: op.name(),
                    argument: operand.argument,
                    of: tracked.device(),
                    on: core.number(),
                });
            }
            match tracked.frozen() {
                None => {
                    // They are few, and often in order.
                    let before =
                        self.noted.iter().rposition(|(other, _)| other.id() <= tracked.id());
                    self.noted.insert(before.map_or(0, |before| before + 1), (tracked, operand));
                }
                Some(memory) if memory.is_settled() => {}
                Some(memory) => self.frozen.push((memory, tracked, operand)),
            }
        }
        Ok(())
    }
}

/// The accesses of an operation, noted in records that are locked: nobody has seen the notes. They are
/// taken back when this is dropped, unless they were published.
#[derive(Default)]
struct Accesses<'a> {
    /// One for each allocation, in the order of their numbers: every thread locks in that order.
    locked: SmallVec<[MutexGuard<'a, Hazards>; 8]>,
    notes: Notes,
    /// What each of the notes is of, in turn, and which of `locked` is its record.
    noted: SmallVec<[(&'a Tracked, usize); 8]>,
    /// What is still to be noted: which of the touched, and which of `locked` is its record.
    rest: SmallVec<[(usize, usize); 8]>,
    /// What the operation must come after.
    after: Latest,
    recording: Recording,
}

impl<'a> Accesses<'a> {
    /// Locks the records, and finds what the operation must come after. Notes accesses by `ticket` where
    /// that takes no more than this look.
    fn look<'t>(
        &mut self,
        core: &DeviceCore,
        touched: &'t Touched<'a>,
        ticket: Ticket,
    ) -> std::result::Result<(), Obstacle<'t, 'a>> {
        let is_finished = |other| core.is_known_finished(other);
        for (frozen, tracked, operand) in &touched.frozen {
            let mut record = tracked.lock();
            if record.is_open_for(&operand.access, is_finished) {
                return Err(Obstacle { tracked, operand, what: What::Open });
            }
            frozen.settle(&record, tracked.bytes(), is_finished);
            let after = |user| self.after.add(user);
            record.check(&operand.access, ticket.lane, after).map_err(|range| Obstacle {
                tracked,
                operand,
                what: What::Undefined(range),
            })?;
        }
        let mut last = None;
        for (index, (tracked, operand)) in touched.noted.iter().enumerate() {
            if last != Some(tracked.id()) {
                self.locked.push(tracked.lock());
                last = Some(tracked.id());
            }
            let record = self.locked.len() - 1;
            let hazards = &mut *self.locked[record];
            if hazards.is_open_for(&operand.access, is_finished) {
                return Err(Obstacle { tracked, operand, what: What::Open });
            }
            let after = |user| self.after.add(user);
            let noted = hazards
                .access(&operand.access, ticket, is_finished, after, &mut self.notes)
                .map_err(|range| Obstacle { tracked, operand, what: What::Undefined(range) })?;
            if noted {
                self.noted(tracked, record);
            } else {
                self.rest.push((index, record));
            }
        }
        Ok(())
    }

    /// Notes what is not noted yet.
    fn note_rest(&mut self, core: &DeviceCore, touched: &Touched<'a>, ticket: Ticket) {
        let is_finished = |other| core.is_known_finished(other);
        for at in 0..self.rest.len() {
            let (index, record) = self.rest[at];
            let (tracked, operand) = touched.noted[index];
            self.locked[record].note(&operand.access, ticket, is_finished, &mut self.notes);
            self.noted(tracked, record);
        }
    }

    fn noted(&mut self, tracked: &'a Tracked, record: usize) {
        self.noted.push((tracked, record));
        if tracked.memory() == Memory::Pinned {
            self.recording = self.recording.max(Recording::BeforeNext);
        }
        if self.locked[record].is_shared() {
            self.recording = self.recording.max(Recording::Now);
        }
    }

    /// Releases the records: from here on others order themselves after the operation.
    fn publish(&mut self) {
        self.locked.clear();
    }
}

impl Drop for Accesses<'_> {
    fn drop(&mut self) {
        if !self.locked.is_empty() {
            while let Some((_, record)) = self.noted.pop() {
                self.locked[record].undo(&mut self.notes);
            }
        }
    }
}

/// Why an operation cannot be enqueued now.
pub(super) struct Obstacle<'t, 'a> {
    pub(super) tracked: &'a Tracked,
    pub(super) operand: &'t Operand<'a>,
    pub(super) what: What,
}

pub(super) enum What {
    /// It would read bytes that nothing has written.
    Undefined(Range<usize>),
    /// It meets a transfer of which not all is enqueued.
    Open,
}

impl Obstacle<'_, '_> {
    pub(super) fn error(self, op: OpKey) -> Error {
        let (operation, argument) = (op.name(), self.operand.argument);
        let buffer = self.tracked.describe();
        match self.what {
            What::Undefined(range) => Error::Uninitialised { operation, argument, buffer, range },
            What::Open => Error::Busy { operation, argument, buffer },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::buffer::Mode;
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
