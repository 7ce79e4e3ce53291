//! Page-locked host memory, kept for reuse: allocating takes a millisecond, freeing waits for
//! running kernels.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ptr::NonNull;

use smallvec::SmallVec;

use super::DeviceCore;
use crate::driver::{Driver, DriverError, DriverResult, HostKind};
use crate::error::{Error, Result};
use crate::reactor::Ticket;
use crate::sync::Mutex;

/// Smallest block.
const SMALLEST: usize = 4096;

/// A block of page-locked memory. Not freed on drop: it goes back to the pool it came from.
#[derive(Debug)]
pub(crate) struct PinnedBlock {
    ptr: NonNull<u8>,
    /// A size class.
    bytes: usize,
}

// SAFETY: a block is an address range that one holder owns; it is not tied to a thread.
unsafe impl Send for PinnedBlock {}
// SAFETY: a shared block gives out its address only; who reads or writes there answers for it.
unsafe impl Sync for PinnedBlock {}

impl PinnedBlock {
    pub(crate) fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The blocks of one device that no buffer holds.
#[derive(Default)]
pub(crate) struct PinnedPool {
    /// By size class; nothing touches these.
    idle: Mutex<BTreeMap<usize, Vec<PinnedBlock>>>,
    /// Dropped while the device may still have worked on them.
    retiring: Mutex<Vec<Retiring>>,
}

#[derive(Debug)]
struct Retiring {
    block: PinnedBlock,
    /// The block is idle when all these are finished.
    users: SmallVec<[Ticket; 2]>,
}

/// The block size for `bytes`: four classes to each doubling.
fn class_of(bytes: usize) -> Option<usize> {
    let bytes = bytes.max(SMALLEST);
    let step = (1usize << bytes.ilog2()) / 4;
    bytes.checked_next_multiple_of(step)
}

impl PinnedPool {
    /// A block of at least `bytes` bytes, with whatever is in it. One that the pool has, else a new
    /// one (`cuMemHostAlloc`).
    pub(crate) fn take(&self, core: &DeviceCore, bytes: usize) -> Result<PinnedBlock> {
        let Some(class) = class_of(bytes) else {
            return Err(Error::TooLarge { len: bytes, element_size: 1 });
        };
        if let Some(block) = self.idle_block(class) {
            return Ok(block);
        }
        self.sweep(core);
        if let Some(block) = self.idle_block(class) {
            return Ok(block);
        }
        match core.driver().host_alloc(class, HostKind::Cacheable) {
            Ok(ptr) => Ok(PinnedBlock { ptr, bytes: class }),
            Err(cause) if cause.code() == DriverError::OUT_OF_MEMORY => {
                Err(Error::OutOfPinnedMemory { requested: bytes, cause })
            }
            Err(cause) => {
                let error = core.reactor().refused("allocating pinned memory", cause);
                core.reactor().announce();
                Err(error)
            }
        }
    }

    /// Takes back a block that `users` may still touch.
    pub(crate) fn retire(
        &self,
        core: &DeviceCore,
        block: PinnedBlock,
        users: SmallVec<[Ticket; 2]>,
    ) {
        // Their events are recorded now, while that is exact.
        for user in &users {
            if let Some(lane) = core.lane(user.lane) {
                lane.request_record(user.seq);
            }
        }
        self.retiring.lock().push(Retiring { block, users });
    }

    fn idle_block(&self, class: usize) -> Option<PinnedBlock> {
        self.idle.lock().get_mut(&class).and_then(Vec::pop)
    }

    /// Moves what the device is done with to the idle blocks. Looks at each lane once at most.
    fn sweep(&self, core: &DeviceCore) {
        // Taken out: a look wakes tasks, and they may come here.
        let candidates = std::mem::take(&mut *self.retiring.lock());
        let mut oldest = SmallVec::<[Ticket; 4]>::new();
        for user in candidates.iter().flat_map(|r| &r.users) {
            match oldest.iter_mut().find(|known| known.lane == user.lane) {
                Some(known) => known.seq = known.seq.min(user.seq),
                None => oldest.push(*user),
            }
        }
        oldest.retain(|user| !core.is_known_finished(*user));
        for user in &oldest {
            if let Some(lane) = core.lane(user.lane) {
                lane.request_record(user.seq);
                lane.probe(user.seq);
            }
        }
        let is_done = |r: &Retiring| r.users.iter().all(|user| core.is_known_finished(*user));
        let (done, busy): (Vec<_>, Vec<_>) = candidates.into_iter().partition(is_done);
        if !busy.is_empty() {
            self.retiring.lock().extend(busy);
        }
        let mut idle = self.idle.lock();
        for Retiring { block, .. } in done {
            idle.entry(block.bytes).or_default().push(block);
        }
    }

    /// Everything the pool has, for closing the device; users are finished by then.
    pub(super) fn drain(&self) -> Vec<PinnedBlock> {
        let retiring = std::mem::take(&mut *self.retiring.lock());
        let idle = std::mem::take(&mut *self.idle.lock());
        idle.into_values().flatten().chain(retiring.into_iter().map(|r| r.block)).collect()
    }
}

impl PinnedBlock {
    /// `cuMemFreeHost`: waits for running kernels.
    pub(super) fn free(self, driver: &dyn Driver) -> DriverResult<()> {
        // SAFETY: the block came from this device's driver, `self` was its only holder, and the
        // caller has seen all work on the device finish.
        unsafe { driver.host_free(self.ptr) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_class_is_at_most_a_quarter_larger_than_asked() {
        for bytes in [1, 4096, 4097, 5000, 1 << 20, (1 << 20) + 1, 16 << 20] {
            let class = class_of(bytes).unwrap_or(0);
            assert!(class >= bytes);
            assert!(bytes < SMALLEST || class <= bytes + bytes / 4 + 1, "{bytes}: {class}");
        }
        assert_eq!(class_of(usize::MAX), None);
    }
}
