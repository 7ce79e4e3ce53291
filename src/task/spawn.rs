//! Spawned tasks.

use std::fmt;
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project::{pin_project, pinned_drop};
use tokio::task::JoinHandle;

use super::run;
use crate::device::{Frame, FrameGuard, Frames, StreamOptions, current_frames};

/// Spawns a task on the tokio runtime of the caller, as `tokio::spawn` does.
///
/// For each device of which the caller is inside a scope, the task gets a stream of its own with the
/// same priority, for as long as it lives. On other devices it gets one at its first operation, as any
/// task of tokio's does: `tokio::spawn` differs in passing nothing on. (Tasks of other executors are
/// not told apart: what they enqueue outside of scopes goes to the stream of the thread that polls
/// them.)
///
/// Two tasks overlap on the device as two [scopes](crate::Device::scope) do, and with the same
/// exceptions: not where they conflict, not where they need the same hardware, and not where they share
/// a stream. A device has 32 streams for tasks and threads outside of scopes, dealt out in turn: of 33
/// tasks at least two share one. That costs overlap, and never changes what a program computes. A task
/// does not overlap with itself, whatever it joins.
///
/// # Panics
///
/// Outside of a tokio runtime, [`block_on`](crate::block_on) included: join futures there, each in a
/// [`Device::scope`](crate::Device::scope).
#[track_caller]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let own = |Frame { stream, budget, .. }: Frame| {
        let options = StreamOptions::new().priority(stream.priority());
        Frame { stream: stream.device().stream_with(options), budget, task: true }
    };
    let frames = current_frames().into_iter().map(own).collect();
    tokio::spawn(Task { future: Some(future), frames, noticing: run::Noticing })
}

/// A spawned future with the streams that are its own.
#[pin_project(PinnedDrop)]
struct Task<F> {
    /// Taken when this is dropped.
    #[pin]
    future: Option<F>,
    /// One at most of each device; of others the device's cache of tasks knows.
    frames: Frames,
    /// Dropped last.
    noticing: run::Noticing,
}

impl<F: Future> Future for Task<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if run::defers() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let this = self.project();
        run::noticing(|| {
            let Some(future) = this.future.as_pin_mut() else { return Poll::Pending };
            if this.frames.is_empty() {
                return future.poll(cx);
            }
            let current = FrameGuard::enter(this.frames.iter().cloned());
            let polled = future.poll(cx);
            if let Some(changed) = current.frames() {
                *this.frames = changed;
            }
            polled
        })
    }
}

#[pinned_drop]
impl<F> PinnedDrop for Task<F> {
    /// What the future enqueues when it is dropped goes where its work went.
    fn drop(self: Pin<&mut Self>) {
        let mut this = self.project();
        let _current = FrameGuard::enter(this.frames.iter().cloned());
        this.future.set(None);
    }
}

impl<F> fmt::Debug for Task<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("frames", &self.frames).finish_non_exhaustive()
    }
}

/// The number of the tokio task being polled on this thread. `block_on`'s future is none.
pub(super) fn current_task() -> Option<u64> {
    /// tokio shows a task's number to a hasher only.
    struct Number(u64);
    impl Hasher for Number {
        fn finish(&self) -> u64 {
            self.0
        }
        fn write(&mut self, bytes: &[u8]) {
            for byte in bytes {
                self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
            }
        }
        fn write_u64(&mut self, number: u64) {
            self.0 = number;
        }
    }
    let id = tokio::task::try_id()?;
    let mut number = Number(0);
    id.hash(&mut number);
    Some(run::number(number.finish()).unwrap_or(number.finish()))
}
