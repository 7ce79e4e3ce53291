//! The pinned memory of one buffer.

use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Arc;

use super::hazard::Hazards;
use super::store::Backing;
use super::tracked::{Memory, Tracked};
use crate::device::{DeviceCore, PinnedBlock};
use crate::driver::{CopyMemory, Fact};
use crate::error::Result;
use crate::reactor::Clock;

/// A block of page-locked memory out of the device's pool. Goes back there when dropped, to be used
/// again once the device is done with it.
pub(crate) struct Pinned {
    core: Arc<DeviceCore>,
    /// `None` only while being dropped.
    block: Option<PinnedBlock>,
    tracked: Tracked,
}

impl Pinned {
    /// With whatever is in it, of which nothing counts. `bytes` is not 0.
    #[track_caller]
    pub(super) fn new(core: &Arc<DeviceCore>, bytes: usize) -> Result<Self> {
        let block = core.pinned().take(core, bytes)?;
        let made_at = Location::caller();
        core.driver().tell(Fact::HostMemory { ptr: block.ptr(), bytes, made_at });
        let tracked = Tracked::new(core.number(), Memory::Pinned, bytes, Hazards::new(bytes, None));
        let pinned = Pinned { core: core.clone(), block: Some(block), tracked };
        core.raise_race();
        Ok(pinned)
    }
}

impl Backing for Pinned {
    const KIND: Memory = Memory::Pinned;

    fn tracked(&self) -> &Tracked {
        &self.tracked
    }

    fn address(&self, offset: usize) -> CopyMemory {
        let first = self.block.as_ref().map_or(NonNull::dangling(), PinnedBlock::ptr);
        CopyMemory::Host(first.map_addr(|first| first.saturating_add(offset)))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else { return };
        let mut users = Clock::default();
        self.tracked.lock().users(|user| users.add(user));
        let users = users.iter(self.core.number()).collect();
        self.core.pinned().retire(&self.core, block, users);
    }
}
