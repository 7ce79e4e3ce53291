//! The device memory of one buffer.

use std::panic::Location;
use std::sync::Arc;

use super::frozen::Frozen;
use super::hazard::{Access, Hazards, Mode, Notes};
use super::region::Region;
use super::store::Backing;
use super::tracked::{Memory, Tracked};
use crate::device::{Before, DeviceBlock, DeviceCore, Users, budget};
use crate::driver::{CopyMemory, DevicePtr, Fact};
use crate::error::Result;
use crate::reactor::{LaneId, Ticket};

/// A block of device memory. Goes back to the device's pool when dropped, with the operations that may still
/// touch it: so that neither the host waits nor the device loses memory under its work.
pub(crate) struct Allocation {
    core: Arc<DeviceCore>,
    /// `None` only while being dropped.
    block: Option<DeviceBlock>,
    tracked: Tracked,
}

impl Allocation {
    /// For work on the current stream first of all. `bytes` is not 0.
    #[track_caller]
    pub(crate) fn new(core: &Arc<DeviceCore>, bytes: usize) -> Result<Self> {
        let (lane, budget) = (core.current_lane(), budget(core.number()));
        let (block, before) = core.memory().allocate(core, &lane, budget.as_ref(), bytes)?;
        Ok(Allocation::of_block(core, block, before, bytes, Location::caller()))
    }

    /// Of a block of at least `bytes` bytes, made for a user at that place of the program.
    pub(crate) fn of_block(
        core: &Arc<DeviceCore>,
        block: DeviceBlock,
        before: Before,
        bytes: usize,
        made_at: &'static Location<'static>,
    ) -> Self {
        core.driver().tell(Fact::DeviceMemory { ptr: block.ptr(), made_at });
        let hazards = match before {
            Before::Allocation(ticket) => Hazards::new(bytes, Some(ticket)),
            Before::Users(users) => Hazards::after(bytes, &users),
        };
        let tracked = Tracked::new(core.number(), Memory::Device, bytes, hazards);
        Allocation { core: core.clone(), block: Some(block), tracked }
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
    fn unfinished_users(&self) -> Users {
        let mut users = Users::new();
        let add = |users: &mut Users, user: Ticket| {
            if self.core.is_known_finished(user) {
                return;
            }
            match users.iter_mut().find(|known| known.lane == user.lane) {
                Some(known) => known.seq = known.seq.max(user.seq),
                None => users.push(user),
            }
        };
        self.tracked.lock().users(|user| add(&mut users, user));
        let readers = self.tracked.frozen().into_iter().flat_map(Frozen::readers);
        self.last_of(readers).for_each(|reader| add(&mut users, reader));
        users
    }
}

impl Backing for Allocation {
    const KIND: Memory = Memory::Device;

    fn tracked(&self) -> &Tracked {
        &self.tracked
    }

    fn address(&self, offset: usize) -> CopyMemory {
        let first = self.block.as_ref().map_or(DevicePtr(0), DeviceBlock::ptr);
        CopyMemory::Device(DevicePtr(first.0 + offset as u64))
    }
}

impl Allocation {
    /// Leaves the memory to the transfers that are under way on it: the last of them to end lets go of it.
    /// False where there is none.
    fn leave_to_transfers(&mut self) -> bool {
        let open = self.tracked.lock().opened(|user| self.core.is_known_finished(user));
        if open.is_empty() {
            return false;
        }
        let nobody = Hazards::new(self.tracked.bytes(), None);
        let nobody = Tracked::new(self.core.number(), Memory::Device, self.tracked.bytes(), nobody);
        let tracked = std::mem::replace(&mut self.tracked, nobody);
        let (core, block) = (self.core.clone(), self.block.take());
        let left = Arc::new(Allocation { core, block, tracked });
        open.iter().for_each(|state| state.keep(left.clone()));
        true
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.leave_to_transfers() {
            return;
        }
        let Some(block) = self.block.take() else { return };
        let users = self.unfinished_users();
        if let Err(error) = self.core.memory().retire(&self.core, block, users) {
            self.core.reactor().hook().not_released(|| self.tracked.describe(), error);
        }
    }
}
