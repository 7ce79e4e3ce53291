//! Spawned tasks.

use std::fmt;
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project::pin_project;
use tokio::task::JoinHandle;

use super::run;
use crate::device::{Frame, FrameGuard, StreamOptions, current_frame};

/// Spawns a task on the tokio runtime of the caller, as `tokio::spawn` does.
///
/// Where the caller is inside a scope, the task gets a stream of its own on the same device with
/// the same priority, for as long as it lives. Otherwise it gets one at its first operation, as
/// any task does. Tasks overlap on the device unless what they touch conflicts.
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
    let frame = current_frame().map(|frame| {
        let options = StreamOptions::new().priority(frame.stream.priority());
        Frame { stream: frame.stream.device().stream_with(options), task: true }
    });
    tokio::spawn(Task { future, frame, noticing: run::Noticing })
}

/// A spawned future with the stream that is its own.
#[pin_project]
struct Task<F> {
    #[pin]
    future: F,
    /// `None`: the device's cache of tasks knows.
    frame: Option<Frame>,
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
            let Some(frame) = this.frame else { return this.future.poll(cx) };
            let current = FrameGuard::enter(frame.clone());
            let polled = this.future.poll(cx);
            if let Some(changed) = current.frame() {
                *frame = changed;
            }
            polled
        })
    }
}

impl<F> fmt::Debug for Task<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("frame", &self.frame).finish_non_exhaustive()
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
