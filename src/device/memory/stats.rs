//! How much device memory there is, and who has it.

use std::sync::Arc;

use super::MemoryPool;
use super::budget::Budget;
use crate::device::{Device, DeviceCore};

/// Bytes of device memory that this `Device` has of the driver, by what becomes of them. Blocks are up to an
/// eighth larger than what was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Of buffers.
    pub in_use: u64,
    /// Of buffers that were dropped, which operations may still touch. A stream gets such a block at once if
    /// all these operations are its own; another one where there is nothing else, and waits on the device.
    pub in_flight: u64,
    /// Of buffers that were dropped and are not touched any more: kept for the next, until
    /// [`Device::trim`].
    pub cached: u64,
    /// The most that buffers had at a time.
    pub in_use_high_water: u64,
    /// The most that `in_use`, `in_flight` and `cached` were together.
    pub reserved_high_water: u64,
    /// What these may be together: [`DeviceBuilder::memory_limit`](crate::DeviceBuilder::memory_limit), or what
    /// the device has.
    pub limit: u64,
    /// Requests that wait in [`Device::alloc_wait`], those of tenants among them.
    pub waiting: usize,
}

/// Bytes of device memory that one [`Tenant`](crate::Tenant) has: as many as were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TenantStats {
    /// Of its buffers.
    pub in_use: u64,
    /// The most that these were.
    pub high_water: u64,
    /// What they may be.
    pub limit: u64,
    /// Requests of its that wait in [`Device::alloc_wait`], for its budget or for the device's memory.
    pub waiting: usize,
}

impl Device {
    /// How much device memory there is, and who has it. Looks how far streams are of which memory is
    /// in flight: a query (`cuEventQuery`) or two for each.
    pub fn memory(&self) -> MemoryStats {
        let core = self.core();
        core.memory().stats(core)
    }
}

impl MemoryPool {
    pub(super) fn waiting_of(&self, budget: &Arc<Budget>) -> usize {
        self.state.lock().waiting.of_budget(budget)
    }

    fn stats(&self, core: &DeviceCore) -> MemoryStats {
        self.sweep(core);
        let (in_flight, cached) = self.idle_bytes(core);
        let state = self.state.lock();
        MemoryStats {
            in_use: state.in_use,
            in_flight,
            cached,
            in_use_high_water: state.in_use_high_water,
            reserved_high_water: state.reserved_high_water,
            limit: self.limit,
            waiting: state.waiting.len(),
        }
    }
}
