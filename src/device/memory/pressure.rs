//! What is done where there is no more memory to be had, one thing after the other.

use std::sync::Arc;

use super::cache::{Idle, Users};
use super::queue::Place;
use super::{Before, DeviceBlock, MemoryPool, Unavailable};
use crate::device::DeviceCore;
use crate::error::{Error, Result};
use crate::reactor::Lane;

impl MemoryPool {
    /// A block of `class` bytes, after everything that can be had was taken into account:
    ///
    /// 1. *Sweep*: what has finished since it was last looked at.
    /// 2. *Reclaim*: a block of that size whose users are not finished. Who gets it waits for them on
    ///    the device.
    /// 3. *Trim*: blocks of other sizes that nobody uses go to the driver, which is asked once more.
    /// 4. *Reclaim* again: blocks of other sizes that are in use; `lane` waits for their users.
    /// 5. *Trim* the driver's own pool, whose memory may be in pieces, and ask for the last time.
    pub(super) fn allocate_under_pressure(
        &self,
        core: &DeviceCore,
        lane: &Arc<Lane>,
        class: u64,
        asker: Option<Place>,
    ) -> Result<(DeviceBlock, Before), Unavailable> {
        self.sweep(core);
        if let Some(found) = self.reuse(core, lane, class) {
            return Ok(found);
        }
        let in_flight = {
            let mut state = self.state.lock();
            let first = state.idle.take_first(class);
            self.hand_out(core, state, first)
        };
        if let Some(found) = in_flight {
            return Ok(found);
        }
        for in_use_too in [false, true] {
            let fits = |block: &Idle| in_use_too || block.users.is_empty();
            let blocks = self.state.lock().idle.take_bytes(class, fits);
            if blocks.is_empty() {
                continue;
            }
            // On this lane: what it frees it can be given again at once.
            self.release(core, lane, blocks, asker)?;
            match self.ask(core, lane, class, asker) {
                Err(Unavailable::Exhausted) => {}
                asked => return asked,
            }
        }
        if let Err(cause) = core.driver().pool_trim(0, None) {
            return Err(core.reactor().refused("trimming device memory", cause).into());
        }
        self.ask(core, lane, class, asker)
    }

    /// Looks what has finished of what may still use blocks.
    pub(super) fn sweep(&self, core: &DeviceCore) {
        let users: Vec<_> = {
            let state = self.state.lock();
            state.idle.iter().flat_map(|block| block.users.iter().copied()).collect()
        };
        core.look(users);
        self.state.lock().idle.sweep(|user| core.is_known_finished(user));
    }

    /// Bytes of blocks that nobody has and that are in flight, and of those that are not, as far as is known.
    pub(super) fn idle_bytes(&self, core: &DeviceCore) -> (u64, u64) {
        let state = self.state.lock();
        let is_used = |users: &Users| users.iter().any(|user| !core.is_known_finished(*user));
        let in_flight = state.idle.iter().filter(|block| is_used(&block.users));
        let in_flight = in_flight.map(|block| block.bytes).sum();
        (in_flight, state.idle.bytes() - in_flight)
    }

    /// The error of a request for `bytes` bytes.
    pub(super) fn exhausted(&self, core: &DeviceCore, bytes: u64) -> Error {
        let (in_flight, cached) = self.idle_bytes(core);
        let limit = self.limit;
        let free = match core.driver().memory_free() {
            Err(cause) if cause.is_sticky() => {
                return core.reactor().refused(super::ALLOCATE.name(), cause);
            }
            free => free.ok(),
        };
        Error::OutOfMemory { requested: bytes, free, in_flight, cached, limit }
    }
}
