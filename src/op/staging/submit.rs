//! The copies of a transfer: between chunks of pinned memory and device memory in one piece.
//!
//! Unsafe, since the driver is told of addresses. What makes it sound: the access is *open* from before the
//! first copy until after the last one. The record of the memory knows of it (`buffer::OpenState`), so
//! whatever conflicts is refused; and the memory is not freed before the access was closed, nor before
//! what was enqueued until then. A chunk belongs to its copy until that was seen to finish ([`InFlight`]).
#![allow(unsafe_code)]

use std::panic::Location;
use std::sync::Arc;

use smallvec::smallvec;

use super::bytes::{Filling, fill};
use crate::buffer::{Allocation, Mode, OpenState, Place, Tracked};
use crate::device::{DeviceCore, PinnedBlock};
use crate::driver::{DevicePtr, Fact};
use crate::error::{Error, Result};
use crate::op::submit::{Obstacle, Operand, What};
use crate::reactor::{Held, Lane, LaneId, Latest, OpKey, Operation, Recording, Ticket};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// To the device.
    Up,
    /// To the host.
    Down,
}

impl Direction {
    fn copies(self) -> OpKey {
        const UP: Operation = Operation::transfer("copying to the device");
        const DOWN: Operation = Operation::transfer("copying to the host");
        OpKey::of(match self {
            Direction::Up => &UP,
            Direction::Down => &DOWN,
        })
    }

    fn opening(self) -> OpKey {
        const UP: Operation = Operation::control("copying to the device");
        const DOWN: Operation = Operation::control("copying to the host");
        OpKey::of(match self {
            Direction::Up => &UP,
            Direction::Down => &DOWN,
        })
    }

    fn mode(self) -> Mode {
        match self {
            Direction::Up => Mode::Overwrite,
            Direction::Down => Mode::Read,
        }
    }
}

/// An access to device memory in one piece by copies that are enqueued bit by bit, on one lane.
pub(super) struct Opened {
    core: Arc<DeviceCore>,
    lane: Arc<Lane>,
    direction: Direction,
    first: DevicePtr,
    bytes: usize,
    state: Arc<OpenState>,
    /// The ticket after which nothing is left that the access had to come after.
    start: u64,
    /// The last copy, or 0. Changes under the lane's submit lock.
    last: AtomicU64,
    /// No copy is enqueued any more. Changes under the lane's submit lock.
    ended: AtomicBool,
}

impl Opened {
    /// Opens the access to `place`, which is in one piece and has bytes: orders what is enqueued on
    /// `lane` from here on after everything that it conflicts with.
    pub(super) fn new(
        core: &Arc<DeviceCore>,
        lane: &Arc<Lane>,
        direction: Direction,
        place: Place<'_, Allocation>,
    ) -> Result<Self> {
        let operand = Operand::new("self", place.access(direction.mode()));
        let Some(tracked) = operand.tracked else {
            // Nothing is transferred of what has no bytes.
            let (source_len, destination_len) = (0, 0);
            let operation = direction.opening().name();
            return Err(Error::LengthMismatch { operation, source_len, destination_len });
        };
        let (state, start) = open(core, lane, direction.opening(), tracked, &operand)?;
        Ok(Opened {
            core: core.clone(),
            lane: lane.clone(),
            direction,
            first: place.ptr(),
            bytes: place.bytes(),
            state,
            start,
            last: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        })
    }

    pub(super) fn core(&self) -> &Arc<DeviceCore> {
        &self.core
    }

    pub(super) fn lane(&self) -> &Arc<Lane> {
        &self.lane
    }

    pub(super) fn direction(&self) -> Direction {
        self.direction
    }

    /// Bytes in all.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The ticket after which nothing is left that the access had to come after.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// The last copy there is, if any.
    pub(super) fn last(&self) -> Option<u64> {
        Some(self.last.load(Acquire)).filter(|last| *last != 0)
    }

    /// A chunk of pinned memory of its own, with whatever is in it.
    pub(super) fn make_chunk(&self, bytes: usize) -> Result<PinnedBlock> {
        let chunk = self.core.pinned().take(&self.core, bytes)?;
        let (ptr, made_at) = (chunk.ptr(), Location::caller());
        self.core.driver().tell(Fact::HostMemory { ptr, bytes, made_at });
        Ok(chunk)
    }

    /// Has a chunk written with what is copied to the device from there.
    pub(super) fn fill(&self, chunk: &mut PinnedBlock, bytes: &[u8]) {
        self.tell_of_access(chunk, bytes.len(), true);
        fill(chunk, bytes);
    }

    fn tell_of_access(&self, chunk: &PinnedBlock, bytes: usize, writes: bool) {
        let (ptr, row, rows, pitch) = (chunk.ptr(), bytes, 1, bytes);
        self.core.driver().tell(Fact::HostAccess { ptr, row, rows, pitch, writes });
    }

    /// Enqueues the copy of a piece, which gives itself back where that is refused.
    #[expect(clippy::result_large_err, reason = "it is the piece, as given")]
    pub(super) fn submit(&self, piece: Piece) -> Result<InFlight, (Piece, Refused)> {
        let op = self.direction.copies();
        let within = piece.at.checked_add(piece.bytes).is_some_and(|end| end <= self.bytes);
        assert!(within && piece.bytes <= piece.chunk.bytes(), "within the chunk and the memory");
        let mut enqueue = match self.lane.enqueue(op, 1) {
            Ok(enqueue) => enqueue,
            Err(full @ Error::QueueFull { .. }) => return Err((piece, Refused::Full(full))),
            Err(error) => return Err((piece, Refused::For(error))),
        };
        if self.ended.load(Relaxed) {
            return Err((piece, Refused::Ended));
        }
        let seq = enqueue.take_ticket().seq;
        let (host, device) = (piece.chunk.ptr(), DevicePtr(self.first.0 + piece.at as u64));
        let (driver, stream) = (enqueue.driver(), enqueue.stream());
        // SAFETY: the access is open: it is closed under the lane's lock, which is held, and was not. So
        // the memory is there until after this copy, which what conflicts is ordered with, before by the
        // waits made when it was opened, and after by the ticket it is closed with. The chunk is not
        // given back before the copy is done. Both have the bytes, as was checked.
        let copied = unsafe {
            match self.direction {
                Direction::Up => driver.copy_h2d(device, host, piece.bytes, stream),
                Direction::Down => driver.copy_d2h(host, device, piece.bytes, stream),
            }
        };
        if let Err(cause) = copied {
            enqueue.withdraw();
            let error = self.core.reactor().refused(op.name(), cause);
            return Err((piece, Refused::For(error)));
        }
        self.last.store(seq, Release);
        // Each chunk is waited for by itself.
        enqueue.finish(Recording::BeforeNext, Held::No);
        Ok(InFlight { lane: self.lane.clone(), seq, piece })
    }

    /// Closes the access: what comes next is ordered after the copies that were enqueued, and none is
    /// any more. Where they are not all, and it was a write, the bytes are undefined.
    pub(super) fn end(&self, failed: bool) {
        // Under the lane's lock, so no copy is being enqueued.
        let left = self.lane.between_operations(|| {
            let ended = self.ended.swap(true, Relaxed);
            (!ended).then(|| self.state.close(self.last(), failed))
        });
        // Memory whose last handle is gone may be freed here.
        drop(left);
    }
}

impl Drop for Opened {
    /// By a panic: else it was closed before.
    fn drop(&mut self) {
        if !self.ended.load(Relaxed) {
            self.end(true);
        }
    }
}

/// Opens an access: notes it as open, and has the lane wait for what it conflicts with.
fn open(
    core: &Arc<DeviceCore>,
    lane: &Arc<Lane>,
    op: OpKey,
    tracked: &Tracked,
    operand: &Operand<'_>,
) -> Result<(Arc<OpenState>, u64)> {
    if tracked.device() != core.number() {
        let (of, on) = (tracked.device(), core.number());
        return Err(Error::WrongDevice {
            operation: op.name(),
            argument: operand.argument,
            of,
            on,
        });
    }
    let is_finished = |other| core.is_known_finished(other);
    loop {
        let mut enqueue = lane.enqueue_uncounted(op)?;
        let mut after = Latest::default();
        let mut record = tracked.lock();
        let what = match record.is_open_for(&operand.access, is_finished) {
            true => Some(What::Open),
            false => {
                let checked = record.check(&operand.access, enqueue.lane(), |user| after.add(user));
                checked.err().map(What::Undefined)
            }
        };
        if let Some(what) = what {
            return Err(Obstacle { tracked, operand, what }.error(op));
        }
        let waits = match enqueue.waits(after.iter(), |id: LaneId| core.lane(id)) {
            Ok(waits) => waits,
            Err(unrecorded) => {
                // As for any operation: never under this lane's lock.
                drop(record);
                drop(enqueue);
                for ticket in unrecorded {
                    if let Some(other) = core.lane(ticket.lane) {
                        other.record_through(ticket.seq)?;
                    }
                }
                continue;
            }
        };
        let state = Arc::new(OpenState::new(lane.id()));
        record.open(operand.access, state.clone());
        let start = enqueue.take_uncounted_ticket().seq;
        drop(record);
        if let Err(cause) = enqueue.wait(&waits) {
            // Without operations: the record is as it was.
            let left = state.close(None, true);
            let error = core.reactor().refused(op.name(), cause);
            drop(enqueue);
            drop(left);
            return Err(error);
        }
        enqueue.finish(Recording::BeforeNext, Held::No);
        let unseen = waits.unseen().and_then(|id| core.lane(id));
        drop(waits);
        if let Some(unseen) = unseen {
            unseen.look_if_due();
        }
        return Ok((state, start));
    }
}

/// Why a copy was not enqueued.
pub(super) enum Refused {
    /// The lane has no room now.
    Full(Error),
    /// The access was closed.
    Ended,
    For(Error),
}

/// A piece of a transfer and the chunk that it goes through.
pub(super) struct Piece {
    pub(super) chunk: PinnedBlock,
    /// Offset of its first byte.
    pub(super) at: usize,
    pub(super) bytes: usize,
}

/// A copy that is on its stream, with its chunk.
pub(super) struct InFlight {
    lane: Arc<Lane>,
    seq: u64,
    piece: Piece,
}

impl InFlight {
    pub(super) fn seq(&self) -> u64 {
        self.seq
    }

    pub(super) fn bytes(&self) -> usize {
        self.piece.bytes
    }

    /// Whether it is known to be finished. Asks nobody.
    pub(super) fn is_finished(&self) -> bool {
        self.lane.is_known_finished(self.seq)
    }

    /// The chunk, if the copy is known to be finished.
    pub(super) fn finished(self) -> Result<PinnedBlock, Self> {
        if self.is_finished() { Ok(self.piece.chunk) } else { Err(self) }
    }

    /// The chunk, once what it got from the device is where it belongs; if the copy is known to be finished.
    pub(super) fn drained(self, opened: &Opened, into: &Filling) -> Result<PinnedBlock, Self> {
        if !self.is_finished() {
            return Err(self);
        }
        let Piece { chunk, at, bytes } = self.piece;
        opened.tell_of_access(&chunk, bytes, false);
        // SAFETY: the pieces of a transfer are disjoint, as each byte is claimed once (`Transfer::step`),
        // and lie within the `bytes` of its memory (`Opened::submit`), which `into` was made for. The
        // copy to the chunk is finished, and wrote all of it.
        unsafe { into.write(at, &chunk, bytes) };
        Ok(chunk)
    }

    /// Leaves the chunk to the pool of pinned memory, for when the copy is done.
    pub(super) fn retire(self, core: &DeviceCore) {
        let user: Ticket = self.lane.ticket(self.seq);
        core.pinned().retire(core, self.piece.chunk, smallvec![user]);
    }
}
