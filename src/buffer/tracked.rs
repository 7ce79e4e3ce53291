//! One allocation's record, under its lock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::hazard::Hazards;
use crate::reactor::Ticket;
use crate::sync::{Mutex, MutexGuard};

/// What kind of memory an allocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Device,
    /// Page-locked host memory: operations on it are likely to be waited for by the host.
    Pinned,
}

/// The record of who touches an allocation.
#[derive(Debug)]
pub(crate) struct Tracked {
    /// Unique in the process; locks of several are taken in ascending order.
    id: u64,
    device: u32,
    memory: Memory,
    bytes: usize,
    /// Held for bookkeeping only, never over a driver call or a waker.
    hazards: Mutex<Hazards>,
}

impl Tracked {
    pub(crate) fn new(
        device: u32,
        memory: Memory,
        bytes: usize,
        allocated: Option<Ticket>,
    ) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let id = IDS.fetch_add(1, Relaxed);
        let hazards = Mutex::new(Hazards::new(bytes, allocated));
        Tracked { id, device, memory, bytes, hazards }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn device(&self) -> u32 {
        self.device
    }

    pub(crate) fn memory(&self) -> Memory {
        self.memory
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Hazards> {
        self.hazards.lock()
    }

    /// For messages.
    pub(crate) fn describe(&self) -> String {
        let Tracked { id, bytes, .. } = self;
        match self.memory {
            Memory::Device => format!("device buffer #{id} of {bytes} bytes"),
            Memory::Pinned => format!("pinned buffer #{id} of {bytes} bytes"),
        }
    }
}
