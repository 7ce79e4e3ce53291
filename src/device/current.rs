//! What is current on this thread: scopes, and who is calling.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use super::DeviceCore;
use super::stream::Stream;
use crate::reactor::Lane;

/// One entry of a thread's scope stack: on `stream`'s device, work goes to `stream`.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) stream: Stream,
    /// Made by `spawn` for the task as a whole: `set_stream` replaces its stream.
    pub(crate) task: bool,
}

/// Set in the numbers of threads, which are beside the tasks': those stay far below.
pub(super) const A_THREAD: u64 = 1 << 47;

thread_local! {
    /// Innermost last. A future's frames are here only while it is being polled.
    static FRAMES: RefCell<Vec<Frame>> = const { RefCell::new(Vec::new()) };
    static THREAD: u64 = {
        static THREADS: AtomicU64 = AtomicU64::new(0);
        A_THREAD | THREADS.fetch_add(1, Relaxed)
    };
}

/// Tells the number of the task being polled on this thread.
static TASK_ID: OnceLock<fn() -> Option<u64>> = OnceLock::new();

/// Installs the hook that knows the runtime's tasks. The first one stays.
pub(crate) fn install_task_id(hook: fn() -> Option<u64>) {
    let _ = TASK_ID.set(hook);
}

/// The calling task's number, or the thread's outside of any: 48 bits, never 0.
pub(super) fn caller() -> u64 {
    let task = TASK_ID.get().and_then(|hook| hook());
    task.map_or_else(|| THREAD.with(|t| *t), |id| (id & (A_THREAD - 1)).max(1))
}

/// The innermost scope's lane on that device.
pub(super) fn scoped_lane(device: u32) -> Option<Arc<Lane>> {
    FRAMES.with_borrow(|frames| {
        let frame = frames.iter().rev().find(|f| f.stream.device_number() == device)?;
        Some(frame.stream.lane().clone())
    })
}

/// The innermost scope's stream on that device.
pub(super) fn scoped_stream(device: u32) -> Option<Stream> {
    FRAMES.with_borrow(|frames| {
        let frame = frames.iter().rev().find(|f| f.stream.device_number() == device)?;
        Some(frame.stream.clone())
    })
}

/// The innermost scope of any device.
pub(crate) fn current_frame() -> Option<Frame> {
    FRAMES.with_borrow(|frames| frames.last().cloned())
}

/// Has the calling task use `stream` wherever no scope says otherwise.
pub(super) fn set_stream(core: &DeviceCore, stream: &Stream) {
    let replaced = FRAMES.with_borrow_mut(|frames| {
        let task = frames.iter_mut().rev().find(|f| f.task);
        task.map(|frame| std::mem::replace(&mut frame.stream, stream.clone()))
    });
    if replaced.is_none() {
        core.set_caller_lane(stream.lane());
    }
}

/// A frame on the stack until this is dropped, also by a panic.
pub(crate) struct FrameGuard {
    /// Frames below this one.
    below: usize,
}

impl FrameGuard {
    pub(crate) fn enter(frame: Frame) -> Self {
        FRAMES.with_borrow_mut(|frames| {
            frames.push(frame);
            FrameGuard { below: frames.len() - 1 }
        })
    }

    /// The frame as it is now: `set_stream` may have changed it.
    pub(crate) fn frame(&self) -> Option<Frame> {
        FRAMES.with_borrow(|frames| frames.get(self.below).cloned())
    }
}

impl Drop for FrameGuard {
    fn drop(&mut self) {
        // Dropped after the borrow: a stream's last handle gives back its lease.
        let _above = FRAMES.with_borrow_mut(|frames| frames.split_off(self.below));
    }
}
