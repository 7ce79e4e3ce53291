//! The futures of transfers.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use bytemuck::Pod;

use super::bytes::Filling;
use super::progress::{Counts, Progress};
use super::transfer::{Outcome, Transfer};
use crate::buffer::{DeviceBuffer, HostBuffer};
use crate::error::{Error, Result};
use crate::reactor::Completion;

/// The copying that a future waits for.
pub(super) enum Copying {
    Refused(Error),
    /// All of it is on a stream.
    Enqueued(Completion),
    Staged {
        outcome: Arc<Outcome>,
        counts: Arc<Counts>,
        transfer: Weak<Transfer>,
    },
    /// It was ready.
    Over,
}

impl Copying {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Filling>>> {
        let ended = match self {
            Copying::Refused(_) => Poll::Ready(Ok(None)),
            Copying::Enqueued(copied) => Pin::new(copied).poll(cx).map_ok(|()| None),
            Copying::Staged { outcome, .. } => outcome.poll(cx),
            // Polled again after it was ready, which a future's contract forbids.
            Copying::Over => Poll::Pending,
        };
        let ended = ready!(ended);
        match std::mem::replace(self, Copying::Over) {
            Copying::Refused(error) => Poll::Ready(Err(error)),
            _ => Poll::Ready(ended),
        }
    }

    fn abandon(&self) {
        // It is there until it is over.
        if let Copying::Staged { transfer, .. } = self
            && let Some(transfer) = transfer.upgrade()
        {
            transfer.abandon();
        }
    }

    fn progress(&self, bytes: u64) -> Progress {
        match self {
            Copying::Enqueued(copied) => Progress::of_whole(copied, bytes),
            Copying::Staged { counts, .. } => Progress::of_pieces(counts, bytes),
            Copying::Refused(_) | Copying::Over => Progress::of_nothing(bytes),
        }
    }
}

impl From<Result<Copying>> for Copying {
    fn from(started: Result<Copying>) -> Self {
        started.unwrap_or_else(Copying::Refused)
    }
}

/// The future of [`Device::upload`](crate::Device::upload): the buffer, written.
///
/// # Errors
///
/// As [`Device::alloc`](crate::Device::alloc), [`Device::alloc_host`](crate::Device::alloc_host) and
/// [`DeviceBuffer::copy_from`]; [`TooMuchBorrowed`](Error::TooMuchBorrowed);
/// [`Thread`](Error::Thread).
///
/// # Cancel safety
///
/// Dropping it drops the buffer. Copies that are on a stream run to their end, and the memory goes back
/// after them; what is not enqueued yet is not copied any more.
#[must_use = "the buffer, and what went wrong, come from awaiting it"]
pub struct Upload<T> {
    copying: Copying,
    /// Taken when ready.
    buffer: Option<DeviceBuffer<T>>,
    progress: Progress,
}

impl<T> Upload<T> {
    pub(super) fn new(started: Result<(DeviceBuffer<T>, Copying)>, bytes: u64) -> Self {
        let (buffer, copying) = match started {
            Ok((buffer, copying)) => (Some(buffer), copying),
            Err(error) => (None, Copying::Refused(error)),
        };
        let progress = copying.progress(bytes);
        Upload { copying, buffer, progress }
    }

    /// How far it is, for whoever does not await it.
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }
}

impl<T: Pod> Future for Upload<T> {
    type Output = Result<DeviceBuffer<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let copied = ready!(self.copying.poll(cx));
        let buffer = self.buffer.take();
        match (copied, buffer) {
            (Ok(_), Some(buffer)) => Poll::Ready(Ok(buffer)),
            (Err(error), _) => Poll::Ready(Err(error)),
            // It is there until it was ready.
            (Ok(_), None) => Poll::Pending,
        }
    }
}

/// Before the buffer goes: nobody can see what would still be copied.
impl<T> Drop for Upload<T> {
    fn drop(&mut self) {
        self.copying.abandon();
    }
}

/// The future of [`DeviceBuffer::refill`] and its like: ready once the elements are in place.
///
/// Until then the memory is borrowed, and what is enqueued on it regardless (after the future was
/// forgotten) is [`Busy`](Error::Busy) while not all copies are on their stream.
///
/// # Errors
///
/// [`LengthMismatch`](Error::LengthMismatch), with nothing changed. As
/// [`Device::alloc_host`](crate::Device::alloc_host) and [`DeviceBuffer::copy_from`];
/// [`TooMuchBorrowed`](Error::TooMuchBorrowed); [`Thread`](Error::Thread): what was to be written is
/// undefined then, if any of it was enqueued.
///
/// # Cancel safety
///
/// Dropping it, or forgetting it, only stops the waiting: the transfer runs to its end. What is enqueued on
/// the memory meanwhile is [`Busy`](Error::Busy) or ordered after it.
#[must_use = "what went wrong is told by awaiting it"]
pub struct Refill<'a, T> {
    copying: Copying,
    progress: Progress,
    borrowed: PhantomData<&'a mut [T]>,
}

impl<T> Refill<'_, T> {
    pub(super) fn new(started: Result<Copying>, bytes: u64) -> Self {
        let copying = Copying::from(started);
        let progress = copying.progress(bytes);
        Refill { copying, progress, borrowed: PhantomData }
    }

    /// How far it is, for whoever does not await it.
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }
}

impl<T: Pod> Future for Refill<'_, T> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.copying.poll(cx).map_ok(|_| ())
    }
}

/// The future of [`DeviceBuffer::to_vec`] and its like: the elements.
///
/// # Errors
///
/// As [`Device::alloc_host`](crate::Device::alloc_host) and [`DeviceBuffer::copy_to`];
/// [`TooLarge`](Error::TooLarge) where the system has no memory for the elements;
/// [`Thread`](Error::Thread).
///
/// # Cancel safety
///
/// Dropping it drops what was copied. Copies that are on a stream run to their end, no others are made, and
/// what is enqueued on the memory after the drop comes after them: it is never
/// [`Busy`](Error::Busy). A future that is forgotten runs to its end.
#[must_use = "the elements, and what went wrong, come from awaiting it"]
pub struct ToVec<'a, T> {
    copying: Copying,
    /// Where all is copied to at once, and where it goes from there. Taken when ready.
    copied: Option<(HostBuffer<T>, Vec<T>)>,
    progress: Progress,
    borrowed: PhantomData<&'a [T]>,
}

/// What a transfer to the host begins with.
pub(super) type Reading<T> = (Copying, Option<(HostBuffer<T>, Vec<T>)>);

impl<T> ToVec<'_, T> {
    pub(super) fn new(started: Result<Reading<T>>, bytes: u64) -> Self {
        let (copying, copied) = started.unwrap_or_else(|error| (Copying::Refused(error), None));
        let progress = copying.progress(bytes);
        ToVec { copying, copied, progress, borrowed: PhantomData }
    }

    /// How far it is, for whoever does not await it.
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }
}

impl<T: Pod> Future for ToVec<'_, T> {
    type Output = Result<Vec<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let filled = ready!(self.copying.poll(cx))?;
        if let Some(vec) = filled.and_then(Filling::into_vec) {
            return Poll::Ready(Ok(vec));
        }
        let Some((copied, mut vec)) = self.copied.take() else {
            return Poll::Pending; // it is there until it was ready
        };
        vec.clear();
        if !copied.is_empty() {
            vec.extend_from_slice(&copied.try_read()?);
        }
        Poll::Ready(Ok(vec))
    }
}

/// The access is closed when this returns.
impl<T> Drop for ToVec<'_, T> {
    fn drop(&mut self) {
        self.copying.abandon();
    }
}

// Nothing here is pinned to its place.
impl<T> Unpin for Upload<T> {}
impl<T> Unpin for Refill<'_, T> {}
impl<T> Unpin for ToVec<'_, T> {}

macro_rules! debug {
    ($($future:ident<$($borrow:lifetime,)? T>;)+) => {$(
        impl<T> fmt::Debug for $future<$($borrow,)? T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($future))
                    .field("progress", &self.progress)
                    .finish_non_exhaustive()
            }
        }
    )+};
}

debug! { Upload<T>; Refill<'_, T>; ToVec<'_, T>; }
