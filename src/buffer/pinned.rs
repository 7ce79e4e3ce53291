//! The pinned memory of one buffer.

use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Arc;

use super::hazard::Hazards;
use super::store::Backing;
use super::tracked::{Memory, Tracked};
use crate::device::{DeviceCore, PinnedBlock};
use crate::driver::{CopyMemory, Fact, HostKind};
use crate::error::Result;
use crate::reactor::Clock;

/// A block of page-locked memory out of the device's pool, or registered. Goes back there when dropped, to be used
/// again, or to be its owner's again, once the device is done with it.
pub(crate) struct Pinned {
    core: Arc<DeviceCore>,
    /// `None` only while being dropped or taken apart.
    block: Option<PinnedBlock>,
    tracked: Tracked,
}

impl Pinned {
    /// With whatever is in it, of which nothing counts. `bytes` is not 0.
    pub(super) fn new(
        core: &Arc<DeviceCore>,
        bytes: usize,
        kind: HostKind,
        made_at: &'static Location<'static>,
    ) -> Result<Self> {
        let block = core.pinned().take_as(core, bytes, kind)?;
        Ok(Self::of_block(core, block, bytes, made_at))
    }

    /// The first `bytes` bytes of a block that nothing touches, of which nothing counts.
    pub(super) fn of_block(
        core: &Arc<DeviceCore>,
        block: PinnedBlock,
        bytes: usize,
        made_at: &'static Location<'static>,
    ) -> Self {
        core.driver().tell(Fact::HostMemory { ptr: block.ptr(), bytes, made_at });
        let tracked = Tracked::new(core.number(), Memory::Pinned, bytes, Hazards::new(bytes, None));
        let pinned = Pinned { core: core.clone(), block: Some(block), tracked };
        core.raise_race();
        pinned
    }

    pub(super) fn set_staged(&mut self) {
        self.tracked.set_staged();
    }

    pub(super) fn kind(&self) -> HostKind {
        self.block.as_ref().map(PinnedBlock::kind).unwrap_or_default()
    }

    /// How many bytes it can have where it is.
    pub(super) fn room(&self) -> usize {
        self.block.as_ref().map_or(0, PinnedBlock::bytes)
    }

    /// Whether it is the registered memory of a `Vec<T>`.
    pub(super) fn is_vec_of<T: 'static>(&self) -> bool {
        self.block.as_ref().is_some_and(PinnedBlock::is_vec_of::<T>)
    }

    /// The block, where no operation touches it.
    pub(super) fn into_block(mut self) -> Option<PinnedBlock> {
        self.block.take()
    }

    /// Has `bytes` bytes from here on, for which there is room, with nothing noted of any. No operation
    /// touches it.
    pub(super) fn set_bytes(&mut self, bytes: usize, made_at: &'static Location<'static>) {
        let Some(block) = &self.block else { return };
        self.core.driver().tell(Fact::HostMemory { ptr: block.ptr(), bytes, made_at });
        self.tracked.set_bytes(bytes, Hazards::new(bytes, None));
        self.core.raise_race();
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
