//! Giving page-locked memory back that is kept for reuse.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::PinnedPool;
use super::answer::{Answer, answer};
use super::thread::Job;
use crate::device::{Device, DeviceCore};
use crate::error::{Error, Result};
use std::sync::Arc;

impl Device {
    /// Gives page-locked memory back to the system (`cuMemFreeHost`) that is kept for buffers to come, until
    /// `keep` bytes of it are left or less. Yields how many bytes went.
    ///
    /// It is freed by a thread of the device's, since the call waits for running kernels: whether the future is awaited,
    /// dropped or never polled. What is in flight stays. What the driver refuses to take is told to
    /// [`DeviceBuilder::on_error`](crate::DeviceBuilder::on_error), is not used again, and is tried again by the next trim.
    pub fn trim_pinned(&self, keep: usize) -> TrimPinned {
        let core = self.core();
        TrimPinned { state: State::start(core, keep) }
    }
}

/// The future of [`Device::trim_pinned`]: how many bytes were freed.
///
/// # Errors
///
/// The device is lost; or [`Error::Thread`](crate::Error::Thread), where a thread is needed and there is none.
///
/// # Cancel safety
///
/// Dropping it stops the waiting and nothing else: the memory is freed all the same.
#[derive(Debug)]
pub struct TrimPinned {
    state: State,
}

#[derive(Debug)]
enum State {
    Freeing(Answer<Result<usize>>),
    /// Taken when ready.
    Refused(Option<Error>),
}

impl State {
    fn start(core: &Arc<DeviceCore>, keep: usize) -> Self {
        match core.reactor().check() {
            Err(error) => State::Refused(Some(error)),
            Ok(()) => State::Freeing(core.pinned().trim(core, keep)),
        }
    }
}

impl PinnedPool {
    fn trim(self: &Arc<Self>, core: &DeviceCore, keep: usize) -> Answer<Result<usize>> {
        self.sweep(core);
        let (told, answer) = answer();
        self.submit(core.reactor(), Job::Trim { keep, told: Some(told) });
        answer
    }
}

impl Future for TrimPinned {
    type Output = Result<usize>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<usize>> {
        match &mut self.state {
            State::Freeing(answer) => {
                let freed = std::task::ready!(answer.poll(cx)).and_then(|freed| freed);
                // Polled again after this, which a future's contract forbids, it is pending.
                self.state = State::Refused(None);
                Poll::Ready(freed)
            }
            State::Refused(error) => {
                error.take().map_or(Poll::Pending, |error| Poll::Ready(Err(error)))
            }
        }
    }
}
