//! Uploading what comes next while what came last is in use.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytemuck::Pod;
use futures::stream::{Fuse, FusedStream, Stream as Items, StreamExt};
use pin_project::pin_project;

use super::staging::{Source, Upload, on_stream, own_stream};
use crate::buffer::DeviceBuffer;
use crate::device::{Device, Stream};
use crate::error::Result;

/// Uploads what a stream of [`Source`]s yields, ahead of whoever uses it: a [`futures::Stream`] of device
/// buffers, in the same order.
///
/// ```
/// use futures::{StreamExt, TryStreamExt, stream};
/// use headwater::Prefetch;
///
/// # headwater::block_on(async {
/// # let device = headwater::Device::simulated()?;
/// let batches = stream::iter((0..8u8).map(|i| vec![i; 1 << 20]));
/// let mut batches = Prefetch::new(&device, batches);
/// while let Some(mut batch) = batches.try_next().await? {
///     batch.fill(0)?.await?; // the next batch is on its way meanwhile
/// }
/// # Ok::<_, headwater::Error>(()) }).unwrap();
/// ```
///
/// Before an item is given out, the inner stream was asked for the items after it, [`depth`](Prefetch::depth) of
/// them, and what it yielded is being uploaded, as by [`Device::upload`]. The uploads go on whether anybody polls or not, on
/// streams of their own, at the priority that was current when this was made; so no work on the current stream holds
/// them up. A `HostBuffer` is one copy. What is borrowed for `'static` is copied to pinned memory
/// inside of the poll.
///
/// An inner stream that has nothing yet delays no item that is uploaded. It wakes whoever polls this, and is asked
/// again when this is polled.
///
/// Memory is needed for `depth + 1` buffers, and for those that are in use. A buffer that is dropped goes
/// back when the work enqueued on it is done: who takes the next item without awaiting that work is ahead of the
/// device, by as many buffers as there is memory for.
///
/// # Errors
///
/// As [`Upload`], in the place of the item: what comes after it is not touched by that.
///
/// # Cancel safety
///
/// A `next()` that is dropped loses no item: the next one yields it. Dropping this drops the buffers that were not
/// given out. Copies that are on a stream run to their end and their memory goes back after them; what is not
/// enqueued yet is not copied any more. Buffers that were given out are not touched.
#[pin_project]
#[must_use = "streams do nothing unless they are polled"]
pub struct Prefetch<S, T> {
    device: Device,
    /// For what is enqueued inside a poll: what is small, borrowed or pinned.
    stream: Stream,
    depth: usize,
    #[pin]
    sources: Fuse<S>,
    /// In the order of the sources; `depth + 1` at most.
    uploads: VecDeque<Upload<T>>,
}

impl<T: Pod, S: Items<Item: Into<Source<'static, T>>>> Prefetch<S, T> {
    /// Nothing is asked for before this is polled.
    pub fn new(device: &Device, sources: S) -> Self {
        Prefetch {
            device: device.clone(),
            stream: own_stream(device.core()),
            depth: 1,
            sources: sources.fuse(),
            uploads: VecDeque::new(),
        }
    }

    /// How many items are being uploaded, or are waiting to be taken, while one is in use: 1 unless
    /// set. With 0 an item is uploaded when it is asked for.
    ///
    /// One is enough where an upload takes no longer than the work on an item. More make up for items that come at
    /// irregular times.
    pub fn depth(mut self, items: usize) -> Self {
        self.depth = items;
        self
    }
}

impl<T: Pod, S: Items<Item: Into<Source<'static, T>>>> Items for Prefetch<S, T> {
    type Item = Result<DeviceBuffer<T>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        while this.uploads.len() <= *this.depth
            && let Poll::Ready(Some(source)) = this.sources.as_mut().poll_next(cx)
        {
            // The source is foreign: it is made one outside of the scope.
            let source = source.into();
            let _on = on_stream(this.stream);
            this.uploads.push_back(this.device.upload(source));
        }
        let Some(oldest) = this.uploads.front_mut() else {
            return if this.sources.is_done() { Poll::Ready(None) } else { Poll::Pending };
        };
        let uploaded = ready!(Pin::new(oldest).poll(cx));
        this.uploads.pop_front();
        Poll::Ready(Some(uploaded))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let uploads = self.uploads.len();
        let (least, most) = self.sources.size_hint();
        (least.saturating_add(uploads), most.and_then(|most| most.checked_add(uploads)))
    }
}

impl<T: Pod, S: Items<Item: Into<Source<'static, T>>>> FusedStream for Prefetch<S, T> {
    fn is_terminated(&self) -> bool {
        self.uploads.is_empty() && self.sources.is_done()
    }
}

impl<S, T> fmt::Debug for Prefetch<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prefetch")
            .field("depth", &self.depth)
            .field("uploads", &self.uploads)
            .finish_non_exhaustive()
    }
}
