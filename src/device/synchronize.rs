//! Waiting for more than one operation: all of a device, or what goes where the caller's work goes.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::future::FusedFuture;
use smallvec::SmallVec;

use super::Device;
use crate::error::Result;
use crate::reactor::Completion;

impl Device {
    /// Ready once everything is finished that this process has enqueued on the device so far
    /// through this library, on whatever stream and by whatever task or thread: frees of dropped
    /// memory too. Does not wait for what is enqueued later.
    ///
    /// Nothing like `cuCtxSynchronize`, which blocks and waits for what comes in meanwhile. Each stream
    /// with work that is not known to be finished has an event recorded at its end unless there is one
    /// (`cuEventRecord`), and is asked about that (`cuEventQuery`). Streams known to be idle cost
    /// nothing.
    pub fn synchronize(&self) -> Synchronize {
        let busy = self.core.lanes.iter().filter(|lane| !lane.is_known_finished(lane.submitted()));
        Synchronize { streams: busy.map(|lane| lane.synchronize()).collect(), ended: false }
    }

    /// Ready once everything is finished that was enqueued so far on the stream that an operation
    /// enqueued here and now would go to: the innermost scope's, else the one set, else the task's
    /// own, else the thread's. Does not wait for what is enqueued later.
    ///
    /// Which stream that is is settled by the call, not by the `await`. What the task has enqueued
    /// elsewhere, in scopes that have ended for instance, is not waited for; what others have
    /// enqueued on the same stream is. The same as `device.current_stream().synchronize()`.
    #[must_use = "waits only if awaited"]
    pub fn synchronize_current(&self) -> Completion {
        self.core.current_lane().synchronize()
    }
}

/// The future of [`Device::synchronize`].
///
/// Ready with [`Error::DeviceLost`](crate::Error::DeviceLost) once the device failed, unless everything
/// it waits for was seen to finish before.
///
/// # Cancel safety
///
/// Dropping it stops the waiting and nothing else; it never blocks.
#[derive(Debug)]
#[must_use = "waits only if awaited"]
pub struct Synchronize {
    /// Of the streams that are not known to have come so far.
    streams: SmallVec<[Completion; 4]>,
    /// It was ready.
    ended: bool,
}

impl Future for Synchronize {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut failed = None;
        self.streams.retain(|stream| match Pin::new(stream).poll(cx) {
            Poll::Pending => true,
            Poll::Ready(ended) => {
                failed = failed.take().or(ended.err());
                false
            }
        });
        if failed.is_some() {
            self.streams.clear();
        }
        if !self.streams.is_empty() {
            return Poll::Pending;
        }
        self.ended = true;
        Poll::Ready(failed.map_or(Ok(()), Err))
    }
}

/// For `select!`: terminated once it was ready.
impl FusedFuture for Synchronize {
    fn is_terminated(&self) -> bool {
        self.ended
    }
}
