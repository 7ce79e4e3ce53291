//! One allocation's record, under its lock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use smallvec::SmallVec;

use super::frozen::Frozen;
use super::hazard::Hazards;
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
    /// Ordinary memory goes through it, so it is gone when that is there.
    staged: bool,
    bytes: usize,
    /// Held for bookkeeping only, never over a driver call or a waker.
    hazards: Mutex<Hazards>,
    /// There while nothing can write it: no handle to it gives out more than shared views.
    frozen: Option<Box<Frozen>>,
}

impl Tracked {
    pub(crate) fn new(device: u32, memory: Memory, bytes: usize, hazards: Hazards) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let id = IDS.fetch_add(1, Relaxed);
        let hazards = Mutex::new(hazards);
        Tracked { id, device, memory, staged: false, bytes, hazards, frozen: None }
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

    pub(crate) fn is_staged(&self) -> bool {
        self.staged
    }

    pub(super) fn set_staged(&mut self) {
        self.staged = true;
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Hazards> {
        self.hazards.lock()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Has so many bytes from here on, with that record.
    pub(super) fn set_bytes(&mut self, bytes: usize, hazards: Hazards) {
        self.bytes = bytes;
        self.hazards = Mutex::new(hazards);
    }

    /// There where reads need not be noted in the record.
    pub(crate) fn frozen(&self) -> Option<&Frozen> {
        self.frozen.as_deref()
    }

    /// From here on nothing writes it, until it is thawed.
    pub(super) fn freeze(&mut self) {
        self.frozen = Some(Box::new(Frozen::new()));
    }

    /// The indices of the lanes that read it while it was frozen.
    pub(super) fn thaw(&mut self) -> SmallVec<[u16; 4]> {
        self.frozen.take().map(|frozen| frozen.readers().collect()).unwrap_or_default()
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
