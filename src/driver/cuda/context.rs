//! The device's primary context, and which calls need it to be the calling thread's current one.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr;

use cudarc::driver::sys::{CUcontext, CUdevice};

use super::api::Api;
use crate::driver::DriverResult;
use crate::foreign::contained;

/// What a driver call wants of the calling thread's current context.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wants {
    /// The handles it is given say enough; whatever is current is left alone and not looked at.
    Nothing,
    /// Ours is current during the call, and what was current before is so again after it.
    Ours,
}

// The policy, all of it, by what `benches/contexts/` found on an H200 with driver 580: with no
// context and with another one current, every call that names a stream, an event or memory works
// and stays in the context of what it names.

/// Whatever is enqueued or asked of what exists.
pub(super) const ENQUEUE: Wants = Wants::Nothing;
/// What makes something, or asks about the device. `cuEventCreate`, `cuMemHostAlloc`,
/// `cuModuleLoadData` and `cuStreamCreate` fail without a context, and make things in whichever is
/// current.
pub(super) const RARE: Wants = Wants::Ours;

/// What is enqueued on a default stream: its handle is the same in every context, and means that of the
/// current one.
pub(super) const DEFAULT_STREAM: Wants = Wants::Ours;

/// A retained primary context.
///
/// Never released: releasing the last retain destroys the context, which waits for whatever runs in
/// it, and the last handle of a device may go on an async worker. A process keeps its primary
/// context, as it does under the CUDA runtime.
pub(super) struct Context {
    api: &'static Api,
    device: CUdevice,
    /// Retained for good, so it is a live context.
    raw: CUcontext,
}

// SAFETY: the driver API may be called from any thread, and a context may be current in many.
unsafe impl Send for Context {}
// SAFETY: as above; nothing in here changes after `retain`.
unsafe impl Sync for Context {}

impl Context {
    /// `cuDevicePrimaryCtxRetain`, leaving the thread's current context as it is. (cudarc's
    /// `CudaContext` makes its context current when created and when dropped, and keeps an error
    /// slot that unrelated calls answer from.)
    pub(super) fn retain(api: &'static Api, device: CUdevice) -> DriverResult<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` outlives the call, which refuses what is no device.
        unsafe { api.cuDevicePrimaryCtxRetain(&mut raw, device) }?;
        Ok(Context { api, device, raw })
    }

    pub(super) fn api(&self) -> &'static Api {
        self.api
    }

    pub(super) fn device(&self) -> CUdevice {
        self.device
    }

    /// The context itself: alive for as long as the process.
    pub(super) fn raw(&self) -> CUcontext {
        self.raw
    }

    /// Sees to it that a call gets what it `wants` for as long as the guard lives.
    ///
    /// Asks the driver for the current context instead of remembering it per thread: other code
    /// in the process changes it without telling us.
    #[inline]
    pub(super) fn enter(&self, wants: Wants) -> DriverResult<Current> {
        let mut current = Current { pushed: None, this_thread: PhantomData };
        if wants == Wants::Nothing {
            return Ok(current);
        }
        let mut now = ptr::null_mut();
        // SAFETY: `now` outlives the call.
        unsafe { self.api.cuCtxGetCurrent(&mut now) }?;
        if now != self.raw {
            // SAFETY: the context is retained, so alive.
            unsafe { self.api.cuCtxPushCurrent(self.raw) }?;
            current.pushed = Some(self.api);
        }
        Ok(current)
    }
}

/// While it lives, the context asked for is current in this thread.
#[must_use = "the context is current only while this lives"]
pub(super) struct Current {
    /// Set if our context was pushed and is to be popped.
    pushed: Option<&'static Api>,
    /// A thread's context stack is its own: the guard may not move to another.
    this_thread: PhantomData<*mut ()>,
}

impl Drop for Current {
    #[inline]
    fn drop(&mut self) {
        if let Some(api) = self.pushed {
            let mut popped = ptr::null_mut();
            // SAFETY: `popped` outlives the call.
            if let Err(error) = unsafe { api.cuCtxPopCurrent(&mut popped) } {
                contained(|| tracing::debug!(%error, "could not restore the current context"));
            }
        }
    }
}
