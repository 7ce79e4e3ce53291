//! What is current on this thread: scopes, and who is calling.

use std::cell::RefCell;
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use super::DeviceCore;
use super::memory::Budget;
use super::stream::Stream;
use crate::driver::thread_number;
use crate::reactor::Lane;

/// One entry of a thread's scope stack: on `stream`'s device, work goes to `stream`.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) stream: Stream,
    /// What allocations of device memory count against.
    pub(crate) budget: Option<Arc<Budget>>,
    /// Made by `spawn` for the task as a whole: `set_stream` replaces its stream.
    pub(crate) task: bool,
}

/// Mostly one.
pub(crate) type Frames = SmallVec<[Frame; 1]>;

/// Set in the numbers of threads, which are beside the tasks': those stay far below.
pub(super) const A_THREAD: u64 = 1 << 47;

thread_local! {
    /// Innermost last. A future's frames are here only while it is being polled.
    static FRAMES: RefCell<Vec<Frame>> = const { RefCell::new(Vec::new()) };
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
    task.map_or_else(|| A_THREAD | thread_number(), |id| (id & (A_THREAD - 1)).max(1))
}

/// `None` while the thread is ending: then nothing is scoped.
fn with_frames<R>(f: impl FnOnce(&mut Vec<Frame>) -> R) -> Option<R> {
    FRAMES.try_with(|frames| f(&mut frames.borrow_mut())).ok()
}

/// The innermost scope's stream on that device.
pub(super) fn scoped_stream(device: u32) -> Option<Stream> {
    with_frames(|frames| innermost(frames, device).map(|frame| frame.stream.clone()))?
}

/// The innermost scope's lane on that device.
pub(super) fn scoped_lane(device: u32) -> Option<Arc<Lane>> {
    with_frames(|frames| innermost(frames, device).map(|frame| frame.stream.lane().clone()))?
}

/// The budget of the innermost scope on that device.
pub(crate) fn budget(device: u32) -> Option<Arc<Budget>> {
    with_frames(|frames| innermost(frames, device)?.budget.clone())?
}

fn innermost(frames: &[Frame], device: u32) -> Option<&Frame> {
    frames.iter().rev().find(|frame| frame.stream.device_number() == device)
}

/// The innermost scope of any device.
pub(crate) fn current_frame() -> Option<Frame> {
    with_frames(|frames| frames.last().cloned())?
}

/// The innermost scope of each device that has one, the innermost of all last.
pub(crate) fn current_frames() -> Frames {
    let innermost_of_each = |frames: &mut Vec<Frame>| {
        let mut of_each = Frames::new();
        for frame in frames.iter().rev() {
            let device = frame.stream.device_number();
            if of_each.iter().all(|inner| inner.stream.device_number() != device) {
                of_each.push(frame.clone());
            }
        }
        of_each.reverse();
        of_each
    };
    with_frames(innermost_of_each).unwrap_or_default()
}

/// Has the calling task use `stream` wherever no scope says otherwise.
pub(super) fn set_stream(core: &DeviceCore, stream: &Stream) {
    // What it replaces is dropped after the borrow.
    let replaced = with_frames(|frames| {
        let of_device = |f: &&mut Frame| f.stream.device_number() == core.number();
        let task = frames.iter_mut().rev().filter(of_device).find(|f| f.task)?;
        Some(std::mem::replace(&mut task.stream, stream.clone()))
    });
    if replaced.flatten().is_none() {
        core.set_caller_lane(stream.lane());
    }
}

/// Frames on the stack until this is dropped, also by a panic.
pub(crate) struct FrameGuard {
    /// Frames below this one.
    below: usize,
}

impl FrameGuard {
    pub(crate) fn enter(entered: impl IntoIterator<Item = Frame>) -> Self {
        let below = with_frames(|frames| {
            let below = frames.len();
            frames.extend(entered);
            below
        });
        FrameGuard { below: below.unwrap_or(usize::MAX) }
    }

    /// The frames as they are now: `set_stream` may have changed them.
    pub(crate) fn frames(&self) -> Option<Frames> {
        with_frames(|frames| Some(Frames::from(frames.get(self.below..)?)))?
    }
}

impl Drop for FrameGuard {
    fn drop(&mut self) {
        let pop = || with_frames(|frames| (frames.len() > self.below).then(|| frames.pop()))??;
        // Each dropped after the borrow: a stream's last handle gives back its lease.
        while pop().is_some() {}
    }
}
