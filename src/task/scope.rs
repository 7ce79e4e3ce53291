//! Scopes: a stream for a stretch of code.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project::{pin_project, pinned_drop};

use crate::device::{Budget, Device, Frame, FrameGuard, Stream, Tenant, budget};

impl Device {
    /// Runs `future` with a stream of its own on this device: what it enqueues goes there, at every
    /// poll and whichever thread polls it.
    ///
    /// This is how work overlaps inside one task. Branches of a `join!`, a `select!` or a
    /// `FuturesUnordered` all belong to one task and so to one stream: what they enqueue runs in the
    /// order enqueued, one after the other, unless each is in a scope of its own:
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
    /// Operations of two scopes overlap on the device, except that
    ///
    /// - one that conflicts with another (they touch the same bytes, and one of them writes) runs
    ///   after it, in the order enqueued; readers do not wait for readers;
    /// - operations that need the same hardware take turns: copies of one direction share an engine,
    ///   kernels share the multiprocessors, and streams share CUDA's
    ///   [hardware queues](crate::DeviceInfo::hardware_queues);
    /// - more scopes at a time than the device has streams for (16 of a priority) share some, and
    ///   what is on one stream runs in order;
    /// - an operation that is not enqueued yet overlaps with nothing: a branch that awaits something
    ///   first lets others go ahead.
    ///
    /// In a scope inside of a scope the inner one counts, and after it the outer one again. Scopes of
    /// several devices do not hide each other: for each device its innermost counts.
    ///
    /// The stream is taken now and given back when the scope is dropped; what is on it still runs. On
    /// a lost device a scope does nothing: the operations in it end with
    /// [`DeviceLost`](crate::Error::DeviceLost).
    pub fn scope<F: Future>(&self, future: F) -> Scope<F> {
        self.stream().scope(future)
    }
}

impl Stream {
    /// Runs `future` with this as the current stream of its device, as [`Device::scope`] does with
    /// one of its own. Two scopes of one stream do not overlap: what they enqueue runs in order.
    pub fn scope<F: Future>(&self, future: F) -> Scope<F> {
        Scope { future: Some(future), stream: self.clone(), budget: None }
    }

    /// Runs `f` with this as the current stream of its device: what it enqueues goes there. Inside of
    /// an outer scope this one counts, until `f` returns or panics.
    ///
    /// What `f` returns is outside: a future that it makes and does not poll goes where it is polled.
    pub fn in_scope<R>(&self, f: impl FnOnce() -> R) -> R {
        let _current = enter(self, None);
        f()
    }
}

impl Tenant {
    /// Runs `future` as [`Device::scope`] does, on a stream of its own: what it allocates counts against this
    /// budget, also in scopes and in tasks of [`spawn`](crate::spawn) inside of it, unless they are another tenant's.
    pub fn scope<F: Future>(&self, future: F) -> Scope<F> {
        let (stream, budget) = (self.device().stream(), Some(self.budget().clone()));
        Scope { future: Some(future), stream, budget }
    }

    /// Runs `f` on the current stream: what it allocates counts against this budget.
    pub fn in_scope<R>(&self, f: impl FnOnce() -> R) -> R {
        let _current = enter(&self.device().current_stream(), Some(self.budget()));
        f()
    }
}

/// Makes the stream current until the guard is dropped, and a budget, or leaves the one that is.
fn enter(stream: &Stream, own: Option<&Arc<Budget>>) -> FrameGuard {
    let budget = own.cloned().or_else(|| budget(stream.device_number()));
    FrameGuard::enter([Frame { stream: stream.clone(), budget, task: false }])
}

/// The future of [`Device::scope`], [`Stream::scope`] and [`Tenant::scope`]: yields what the inner future yields. The
/// stream is current while the inner future is being polled or dropped, wherever that is; not between
/// two polls, and not after a panic.
///
/// # Cancel safety
///
/// That of the inner future; what it has enqueued runs.
#[pin_project(PinnedDrop)]
#[must_use = "the future in it does nothing unless it is awaited"]
pub struct Scope<F> {
    /// Taken when this is dropped.
    #[pin]
    future: Option<F>,
    stream: Stream,
    /// A tenant's.
    budget: Option<Arc<Budget>>,
}

impl<F: Future> Future for Scope<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _current = enter(this.stream, this.budget.as_ref());
        this.future.as_pin_mut().map_or(Poll::Pending, |future| future.poll(cx))
    }
}

#[pinned_drop]
impl<F> PinnedDrop for Scope<F> {
    /// What the inner future enqueues when it is dropped goes where its work went.
    fn drop(self: Pin<&mut Self>) {
        let mut this = self.project();
        let _current = enter(this.stream, this.budget.as_ref());
        this.future.set(None);
    }
}

impl<F> fmt::Debug for Scope<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("stream", &self.stream).finish_non_exhaustive()
    }
}
