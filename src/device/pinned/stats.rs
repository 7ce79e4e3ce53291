//! How much page-locked memory there is, and in what state.

use super::PinnedPool;
use crate::device::{Device, DeviceCore};

/// Bytes of page-locked memory that a `Device` has, by what becomes of them. Blocks are up to a quarter larger
/// than what was asked for, and 4 KiB at least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PinnedStats {
    /// Of buffers, and of transfers of ordinary memory.
    pub in_use: usize,
    /// Of buffers that were dropped, which operations may still touch.
    pub in_flight: usize,
    /// Of buffers that were dropped and are not touched any more: kept for the next, until
    /// [`Device::trim_pinned`]. Those that are being freed are among them.
    pub idle: usize,
    /// The driver refused to take them back ([`NotReleased`](crate::Error::NotReleased)). Nobody gets them; freeing them is tried
    /// again when memory is next trimmed.
    pub unreleased: usize,
    /// The most that the four were together.
    pub high_water: usize,
    /// What the four may be together, if anything is said:
    /// [`DeviceBuilder::pinned_limit`](crate::DeviceBuilder::pinned_limit).
    pub limit: Option<usize>,
    /// Memory of the program's that [`HostBuffer::from_vec`](crate::HostBuffer::from_vec) has page-locked in place, and that
    /// was not unregistered yet. In none of the others, and not limited.
    pub registered: usize,
}

impl PinnedStats {
    /// Bytes of blocks in all.
    pub(super) fn locked(&self) -> usize {
        self.in_use + self.in_flight + self.idle + self.unreleased
    }
}

impl Device {
    /// How much page-locked memory there is, and in what state. Looks how far streams are of which memory is
    /// in flight: a query (`cuEventQuery`) or two for each.
    pub fn pinned_memory(&self) -> PinnedStats {
        let core = self.core();
        core.pinned().stats(core)
    }
}

impl PinnedPool {
    fn stats(&self, core: &DeviceCore) -> PinnedStats {
        self.sweep(core);
        self.state.lock().ledger.stats()
    }
}
