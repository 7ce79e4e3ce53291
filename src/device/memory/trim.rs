//! Giving memory back that is kept for reuse.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::MemoryPool;
use super::cache::Idle;
use crate::device::{Device, DeviceCore};
use crate::error::Result;
use crate::reactor::{Completion, EventRef};

impl Device {
    /// Gives device memory back that is kept for buffers to come, so that other programs and libraries can have
    /// it, until `keep` bytes of it are left.
    ///
    /// What no operation touches any more goes at once to the driver's pool (`cuMemFreeAsync`), and when the future is awaited
    /// from there to the system (`cuMemPoolTrimTo`, which takes about 1 ms a GB and waits for no kernel). What is in flight
    /// stays. Yields how many bytes went.
    pub fn trim(&self, keep: u64) -> Trim {
        Trim {
            core: self.core().clone(),
            state: Some(self.core().memory().start_trim(self.core(), keep)),
        }
    }
}

/// The future of [`Device::trim`]: how many bytes were given back.
///
/// # Errors
///
/// The driver refused; what it was not given is kept. The device is lost.
///
/// # Cancel safety
///
/// Dropping it leaves what was not given to the system yet in the driver's pool, where allocations get it.
#[must_use = "memory goes back to the system when it is awaited"]
pub struct Trim {
    core: Arc<DeviceCore>,
    /// Taken when ready.
    state: Option<Result<Started>>,
}

struct Started {
    bytes: u64,
    /// Of the last free.
    freed: Completion,
    /// After it.
    event: Option<EventRef>,
    /// What the driver's pool may keep.
    keep: u64,
}

impl MemoryPool {
    fn start_trim(&self, core: &DeviceCore, keep: u64) -> Result<Started> {
        core.reactor().check()?;
        self.sweep(core);
        let (_, cached) = self.idle_bytes(core);
        let bytes = self.release_idle(core, cached.saturating_sub(keep))?;
        let keep = self.state.lock().reserved;
        let lane = core.streams().reclaim();
        // Timed, so that it is one of its own also where there is another.
        let (seq, event) = lane.record_event(true)?;
        Ok(Started { bytes, freed: lane.completion(seq), event, keep })
    }

    /// Gives blocks to the driver that nobody uses any more, of at most `bytes` bytes. How many went.
    pub(crate) fn release_idle(&self, core: &DeviceCore, bytes: u64) -> Result<u64> {
        self.sweep(core);
        let unused = |block: &Idle| block.users.is_empty();
        let blocks = self.state.lock().idle.take_up_to(bytes, unused);
        let bytes = blocks.iter().map(|block| block.bytes).sum();
        if !blocks.is_empty() {
            self.release(core, core.streams().reclaim(), blocks, None)?;
        }
        Ok(bytes)
    }
}

impl Future for Trim {
    type Output = Result<u64>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<u64>> {
        if let Some(Ok(started)) = &mut self.state {
            let ended = ready!(Pin::new(&mut started.freed).poll(cx));
            if let Err(error) = ended {
                self.state = Some(Err(error));
            }
        }
        let Some(started) = self.state.take() else {
            // Polled again after it was ready, which a future's contract forbids.
            return Poll::Pending;
        };
        Poll::Ready(started.and_then(|Started { bytes, keep, event, .. }| {
            let freed = event.as_ref().map(|event| event.handle());
            let trimmed = self.core.driver().pool_trim(keep, freed);
            let refused = |cause| self.core.reactor().refused("trimming device memory", cause);
            let trimmed = trimmed.map_err(refused);
            self.core.reactor().announce();
            trimmed.map(|()| bytes)
        }))
    }
}

impl fmt::Debug for Trim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trim").field("device", &self.core.number()).finish_non_exhaustive()
    }
}
