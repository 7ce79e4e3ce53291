//! Device memory: made and freed in stream order.
#![allow(unsafe_code)]

use std::panic::Location;
use std::sync::Arc;

use super::frozen::Frozen;
use super::hazard::{Access, Mode, Notes};
use super::region::Region;
use super::store::Backing;
use super::tracked::{Memory, Tracked};
use crate::device::DeviceCore;
use crate::driver::{CopyMemory, DevicePtr, DriverError, Fact};
use crate::error::{Error, Result};
use crate::reactor::{Clock, Held, Lane, LaneId, OpKey, Operation, Recording, Ticket};

const ALLOCATE: OpKey = OpKey::of(&Operation::control("allocating device memory"));
const FREE: OpKey = OpKey::of(&Operation::control("freeing device memory"));

/// One allocation of device memory, freed when dropped: in stream order, so that neither the host
/// waits nor the device loses memory under its work.
pub(crate) struct Allocation {
    core: Arc<DeviceCore>,
    /// Where it was made, and where it is freed if nothing is known to use it.
    home: Arc<Lane>,
    ptr: DevicePtr,
    tracked: Tracked,
}

impl Allocation {
    /// Allocates on the current stream (`cuMemAllocFromPoolAsync`). `bytes` is not 0.
    #[track_caller]
    pub(crate) fn new(core: &Arc<DeviceCore>, bytes: usize) -> Result<Self> {
        if bytes as u64 > core.driver().info().total_memory {
            // Not asked of the driver: before it refuses, it takes all that is free for a moment
            // (seen on an H200), and others are refused meanwhile.
            return Err(announced(core, out_of_memory(core, bytes)));
        }
        let lane = core.current_lane();
        let mut enqueue = lane.enqueue_uncounted(ALLOCATE)?;
        let ticket = enqueue.take_uncounted_ticket();
        let allocated = enqueue.driver().alloc(bytes, enqueue.stream());
        let ptr = match allocated {
            Ok(ptr) => ptr,
            Err(cause) => {
                drop(enqueue);
                return Err(announced(
                    core,
                    match cause.code() {
                        DriverError::OUT_OF_MEMORY => out_of_memory(core, bytes),
                        _ => core.reactor().refused(ALLOCATE.name(), cause),
                    },
                ));
            }
        };
        enqueue.driver().tell(Fact::DeviceMemory { ptr, made_at: Location::caller() });
        enqueue.finish(Recording::Lazy, Held::No);
        let tracked = Tracked::new(core.number(), Memory::Device, bytes, Some(ticket));
        let home = core.for_frees(&lane).clone();
        Ok(Allocation { core: core.clone(), home, ptr, tracked })
    }

    /// From here on nothing writes it: who reads it is no longer noted.
    pub(super) fn freeze(&mut self) {
        self.tracked.freeze();
    }

    /// It can be written again, after everything on the lanes that have read it since it was frozen.
    pub(super) fn thaw(&mut self) {
        let all = Region::of_bytes(0..self.tracked.bytes());
        let access = Access { region: all, mode: Mode::Read };
        let readers = self.tracked.thaw();
        let mut record = self.tracked.lock();
        for reader in self.last_of(readers) {
            let is_finished = |other| self.core.is_known_finished(other);
            record.note(&access, reader, is_finished, &mut Notes::default());
        }
    }

    /// The last operations enqueued on some lanes, where they are not known to be finished.
    fn last_of(&self, lanes: impl IntoIterator<Item = u16>) -> impl Iterator<Item = Ticket> {
        let lanes = lanes.into_iter().map(|index| LaneId::new(self.core.number(), index));
        let last = lanes.filter_map(|lane| self.core.lane(lane).map(|l| l.ticket(l.submitted())));
        last.filter(|ticket| !self.core.is_known_finished(*ticket))
    }

    /// The operations, the last of each lane, that may still be using it.
    fn unfinished_users(&self) -> Clock {
        let mut users = Clock::default();
        self.tracked.lock().users(|user| users.add(user));
        users.retain(self.core.number(), |user| !self.core.is_known_finished(user));
        let readers = self.tracked.frozen().into_iter().flat_map(Frozen::readers);
        self.last_of(readers).for_each(|reader| users.add(reader));
        users
    }

    /// Frees in the order of the one stream that used it, or of the reclaim stream, which waits
    /// for all that did and carries nothing that this could hold up.
    fn free(&self) -> Result<()> {
        let users = self.unfinished_users();
        let lanes = |id: LaneId| self.core.lane(id);
        let lane = {
            let mut each = users.iter(self.core.number());
            match (each.next(), each.next()) {
                (None, _) => &self.home,
                (Some(only), None) => lanes(only.lane).unwrap_or(&self.home),
                _ => self.core.streams().reclaim(),
            }
        };
        let lane = self.core.for_frees(lane);
        let (mut enqueue, waits) = loop {
            let enqueue = lane.enqueue_uncounted(FREE)?;
            match enqueue.waits(users.iter(self.core.number()), lanes) {
                Ok(waits) => break (enqueue, waits),
                Err(unrecorded) => {
                    // Not under this lane's lock: one lane's is held at a time.
                    drop(enqueue);
                    for ticket in unrecorded {
                        if let Some(other) = lanes(ticket.lane) {
                            other.record_through(ticket.seq)?;
                        }
                    }
                }
            }
        };
        enqueue.take_uncounted_ticket();
        let refused = |cause: DriverError| self.core.reactor().refused(FREE.name(), cause);
        enqueue.wait(&waits).map_err(refused)?;
        // SAFETY: `ptr` came from this driver's `alloc` and is freed here only. Nobody can name the
        // memory any more; every operation that did is finished, or before this point of `lane`,
        // or waited for above.
        unsafe { enqueue.driver().free(self.ptr, enqueue.stream()) }.map_err(refused)?;
        enqueue.finish(Recording::Lazy, Held::No);
        Ok(())
    }
}

impl Backing for Allocation {
    const KIND: Memory = Memory::Device;

    fn tracked(&self) -> &Tracked {
        &self.tracked
    }

    fn address(&self, offset: usize) -> CopyMemory {
        CopyMemory::Device(DevicePtr(self.ptr.0 + offset as u64))
    }
}

fn out_of_memory(core: &DeviceCore, requested: usize) -> Error {
    let (free, total) = (core.driver().memory_free(), core.driver().info().total_memory);
    match free {
        Err(cause) if cause.is_sticky() => core.reactor().refused(ALLOCATE.name(), cause),
        free => Error::OutOfMemory { requested, free: free.ok(), total },
    }
}

/// The error, once whoever waits for the device was told if it is lost.
fn announced(core: &DeviceCore, error: Error) -> Error {
    core.reactor().announce();
    error
}

impl Allocation {
    /// Leaves the memory to the transfers that are under way on it: the last of them to end frees it.
    /// False where there is none.
    fn leave_to_transfers(&mut self) -> bool {
        let open = self.tracked.lock().opened(|user| self.core.is_known_finished(user));
        if open.is_empty() {
            return false;
        }
        let (bytes, number) = (self.tracked.bytes(), self.core.number());
        let nobody = Tracked::new(number, Memory::Device, bytes, None);
        let tracked = std::mem::replace(&mut self.tracked, nobody);
        let (core, home, ptr) = (self.core.clone(), self.home.clone(), self.ptr);
        let left = Arc::new(Allocation { core, home, ptr, tracked });
        open.iter().for_each(|state| state.keep(left.clone()));
        true
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.leave_to_transfers() {
            return;
        }
        // Where that fails, the memory is never used again: that is the safe end of it.
        if let Err(error) = self.free() {
            self.core.reactor().hook().not_released(|| self.tracked.describe(), error);
        }
    }
}
