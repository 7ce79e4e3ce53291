//! Scopes: a stream for a stretch of code.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project::pin_project;

use crate::device::{Device, Frame, FrameGuard, Stream};

impl Device {
    /// Runs `future` with a stream of its own on this device: what it enqueues goes there.
    ///
    /// This is how work overlaps inside one task. Branches of a `join!` all belong to one task and
    /// so to one stream, in order, unless each is in a scope of its own:
    ///
    /// ```
    /// # use headwater::{Device, Result};
    /// # async fn branch(device: &Device) -> Result<()> { Ok(()) }
    /// # headwater::block_on(async {
    /// # let device = &Device::simulated()?;
    /// let (a, b) = futures::try_join!(
    ///     device.scope(branch(device)),
    ///     device.scope(branch(device)),
    /// )?;
    /// # Ok::<_, headwater::Error>(()) }).unwrap();
    /// ```
    ///
    /// The stream is taken now and given back when the scope is dropped. What the branches share is
    /// ordered by the library as ever.
    pub fn scope<F: Future>(&self, future: F) -> Scope<F> {
        self.stream().scope(future)
    }
}

impl Stream {
    /// Runs `future` with this as the current stream of its device.
    pub fn scope<F: Future>(&self, future: F) -> Scope<F> {
        Scope { future, stream: self.clone() }
    }

    /// Runs `f` with this as the current stream of its device.
    pub fn in_scope<R>(&self, f: impl FnOnce() -> R) -> R {
        let _current = FrameGuard::enter(Frame { stream: self.clone(), task: false });
        f()
    }
}

/// The future of [`Device::scope`] and [`Stream::scope`]: yields what the inner future yields. The
/// stream is current while the inner future is being polled, and is not after a panic.
///
/// # Cancel safety
///
/// That of the inner future; what it has enqueued runs.
#[pin_project]
#[must_use = "the future in it does nothing unless it is awaited"]
pub struct Scope<F> {
    #[pin]
    future: F,
    stream: Stream,
}

impl<F: Future> Future for Scope<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _current = FrameGuard::enter(Frame { stream: this.stream.clone(), task: false });
        this.future.poll(cx)
    }
}

impl<F> fmt::Debug for Scope<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("stream", &self.stream).finish_non_exhaustive()
    }
}
