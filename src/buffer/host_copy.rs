//! Copies from pinned memory to pinned memory, which the host makes.
#![allow(unsafe_code)]

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytemuck::Pod;
use smallvec::SmallVec;

use super::each::{
    for_host_slices, for_host_slices_mut, for_host_tiles, for_host_tiles_mut, for_host_volumes,
    for_host_volumes_mut,
};
use super::hazard::Mode;
use super::host_buffer::HostBuffer;
use super::part::HostPart;
use super::pinned::Pinned;
use super::planes::Planes;
use super::shape::Extent;
use super::store::Place;
use super::tile::{HostTile, HostTileMut};
use super::view::{HostSlice, HostSliceMut};
use super::volume::{HostVolume, HostVolumeMut};
use crate::error::{Error, Result};
use crate::reactor::Completion;

/// Bytes that one poll copies: some tens of microseconds.
const PIECE: usize = 256 << 10;

/// A run of elements takes as long as so many bytes, if it has fewer.
const LEAST_RUN: usize = 64;

/// Pinned memory of any shape, for the host to copy from: a [`HostBuffer`], a view or a part of one, or
/// an `Arc` of any of these.
#[diagnostic::on_unimplemented(
    message = "a `{Self}` is not pinned memory of `{T}`s",
    note = "`copy_from_host` reads a reference to a `HostBuffer`, or to a view or part of one; from device memory \
            copies `copy_from`, and from a slice `write().await?.copy_from_slice(…)`"
)]
pub trait OnHost<T>: sealed::OnHost<T> {}

mod sealed {
    use super::Side;

    pub trait OnHost<T> {
        #[doc(hidden)]
        fn on_host(&self) -> Side<super::HostVolume<'_, T>>;
    }
}

/// One end of a copy.
#[derive(Debug)]
#[doc(hidden)]
pub struct Side<V> {
    elements: V,
    /// In rows or planes, which are copied to ones of the same shape only.
    is_shaped: bool,
}

macro_rules! on_host {
    ($is_shaped:literal; $([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> OnHost<T> for $type {}
        impl<$($generics)*> sealed::OnHost<T> for $type {
            fn on_host(&self) -> Side<HostVolume<'_, T>> {
                let place = self.place();
                let elements = HostVolume::new(place.with(place.shape().into()));
                Side { elements, is_shaped: $is_shaped }
            }
        }
    )+};
}

impl<T, S: OnHost<T>> OnHost<T> for Arc<S> {}
impl<T, S: OnHost<T>> sealed::OnHost<T> for Arc<S> {
    fn on_host(&self) -> Side<HostVolume<'_, T>> {
        S::on_host(self)
    }
}

macro_rules! copy_from_host {
    ($is_shaped:literal; $([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> $type {
            /// Copies all of `source` into it, which is pinned memory too, of this device or of another:
            /// on the host, once nothing in flight writes the one or touches the other.
            ///
            /// The future does it, 256 KiB at a poll, so that other tasks get their turns. (CUDA's copy from
            /// host to host blocks the thread that calls it.)
            pub fn copy_from_host<'a, S: OnHost<T>>(
                &'a mut self,
                source: &'a S,
            ) -> CopyOnHost<'a, T> {
                let place = self.place();
                let place = place.with(place.shape().into());
                // SAFETY: `self` has its elements alone, and is borrowed exclusively for as long.
                let elements = unsafe { HostVolumeMut::new(place) };
                CopyOnHost::new(source.on_host(), Side { elements, is_shaped: $is_shaped })
            }
        }
    )+};
}

for_host_slices!(on_host! { false; });
for_host_tiles!(on_host! { true; });
for_host_volumes!(on_host! { true; });
for_host_slices_mut!(copy_from_host! { false; });
for_host_tiles_mut!(copy_from_host! { true; });
for_host_volumes_mut!(copy_from_host! { true; });

/// The future of [`HostBuffer::copy_from_host`] and its like.
///
/// # Errors
///
/// [`LengthMismatch`](Error::LengthMismatch), or [`ShapeMismatch`](Error::ShapeMismatch) between two
/// matrices or volumes; [`Uninitialised`](Error::Uninitialised); the device is lost. Nothing is copied
/// then.
///
/// # Cancel safety
///
/// Dropped before it is ready, it has copied the elements up to some one, or none, and leaves the others
/// as they were.
#[must_use = "nothing is copied until it is awaited"]
pub struct CopyOnHost<'a, T> {
    /// Taken when ready.
    state: Option<Result<(HostVolume<'a, T>, HostVolumeMut<'a, T>)>>,
    /// What is still to be waited for. Nothing that conflicts can be added while both are borrowed.
    waits: SmallVec<[Completion; 2]>,
    /// Elements copied; `None` before the first.
    copied: Option<usize>,
}

impl<'a, T: Pod> CopyOnHost<'a, T> {
    fn new(source: Side<HostVolume<'a, T>>, target: Side<HostVolumeMut<'a, T>>) -> Self {
        let refused = check_shapes(&source, &target);
        let (source, target) = (source.elements, target.elements);
        let mut waits = source.place().waits(Mode::Read);
        waits.extend(target.place().waits(Mode::Overwrite));
        CopyOnHost { state: Some(refused.map(|()| (source, target))), waits, copied: None }
    }
}

fn check_shapes<T: Pod>(
    source: &Side<HostVolume<'_, T>>,
    target: &Side<HostVolumeMut<'_, T>>,
) -> Result<()> {
    let operation = "copying on the host";
    let (from, to) = (source.elements.place().shape(), target.elements.place().shape());
    let (source_shape, destination_shape) = (from.sides(), to.sides());
    if source.is_shaped && target.is_shaped && source_shape != destination_shape {
        return Err(Error::ShapeMismatch { operation, source_shape, destination_shape });
    }
    let (source_len, destination_len) = (from.len(), to.len());
    if source_len != destination_len {
        return Err(Error::LengthMismatch { operation, source_len, destination_len });
    }
    Ok(())
}

/// Copies elements from the one numbered `copied` on, some [`PIECE`] of bytes, and returns the number of
/// the next one.
///
/// # Safety
///
/// The places have equally many elements, of equal sizes. For the length of the call nobody writes those
/// of the one, or touches those of the other.
unsafe fn copy_piece(
    source: Place<'_, Pinned, Planes>,
    target: Place<'_, Pinned, Planes>,
    mut copied: usize,
) -> usize {
    let (size, len, mut left) = (source.size(), source.shape().len(), PIECE);
    while copied < len && left > 0 {
        let (from, run) = source.shape().run_at(copied);
        let (to, room) = target.shape().run_at(copied);
        let count = run.min(room).min((left / size).max(1));
        let bytes = count * size;
        let from = source.byte(source.offset_of(from));
        let to = target.byte(target.offset_of(to));
        // SAFETY: both runs are elements of the places, whose buffers have bytes for them; the caller
        // answers for who else touches them, and so for the two having none in common.
        unsafe { from.copy_to_nonoverlapping(to, bytes) };
        copied += count;
        left = left.saturating_sub(bytes.max(LEAST_RUN));
    }
    copied
}

// Nothing here is pinned to its place.
impl<T> Unpin for CopyOnHost<'_, T> {}

impl<T: Pod> Future for CopyOnHost<'_, T> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        let Some(Ok((source, target))) = &this.state else {
            return match this.state.take() {
                Some(Err(error)) => Poll::Ready(Err(error)),
                // Polled again after it was ready, which a future's contract forbids.
                _ => Poll::Pending,
            };
        };
        let (source, target) = (source.place(), target.place());
        while let Some(wait) = this.waits.last_mut() {
            ready!(Pin::new(wait).poll(cx))?;
            this.waits.pop();
        }
        if this.copied.is_none() {
            source.check_defined()?;
            source.tell_of_access(false);
            target.tell_of_access(true);
        }
        if source.bytes() > 0 {
            let copied = this.copied.unwrap_or(0);
            // SAFETY: as many, which was checked, and both of `T`. All that conflicts was seen to finish,
            // and the borrows of both views keep anything else from being enqueued, and guards away.
            let copied = unsafe { copy_piece(source, target, copied) };
            this.copied = Some(copied);
            if copied < source.shape().len() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        target.written_by_host();
        this.state = None;
        Poll::Ready(Ok(()))
    }
}

impl<T> fmt::Debug for CopyOnHost<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyOnHost").field("copied", &self.copied).finish_non_exhaustive()
    }
}
