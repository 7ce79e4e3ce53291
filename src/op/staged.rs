//! Ordinary memory to the device and back, through pinned memory.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytemuck::Pod;

use crate::buffer::{
    DeviceBuffer, DevicePart, DeviceSlice, DeviceSliceMut, DeviceTile, DeviceTileMut, HostBuffer,
    SharedBuffer, for_device_slices, for_device_tiles,
};
use crate::device::{Device, DeviceCore};
use crate::error::{Error, Result};
use crate::reactor::Completion;

impl Device {
    /// Copies ordinary memory into a new device buffer.
    ///
    /// The elements are copied to pinned memory inside this call, which keeps the thread busy for
    /// that long (about 0.1 ms a MiB), and the copy to the device is enqueued on the current
    /// stream when it returns (`cuMemcpyHtoDAsync`). The future is ready when that copy is done;
    /// what is refused is told by the future. Pass a reference to data that is to be tried again then.
    /// To enqueue work on the buffer without awaiting the
    /// copy, use a [`HostBuffer`] and [`DeviceBuffer::copy_from`].
    #[track_caller]
    pub fn upload<T: Pod>(&self, data: impl AsRef<[T]>) -> Upload<T> {
        Upload { state: Some(start_upload(self.core(), data.as_ref())) }
    }
}

macro_rules! to_vec {
    ($([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> $type {
            /// Copies it into ordinary memory; what is in rows, row after row.
            ///
            /// The copy to pinned memory is enqueued on the current stream when this returns
            /// (`cuMemcpyDtoHAsync`); the future awaits it and copies from there to the `Vec`. What is
            /// refused is told by the future.
            #[track_caller]
            pub fn to_vec(&self) -> ToVec<T> {
                let place = self.place();
                let staged = HostBuffer::unwritten(place.core(), place.shape().len());
                let state = staged.and_then(|mut staged| {
                    let copied = self.copy_to(&mut staged)?;
                    Ok((staged, copied))
                });
                ToVec { state: Some(state) }
            }
        }
    )+};
}

for_device_slices!(to_vec! {});
for_device_tiles!(to_vec! {});

/// The future of [`Device::upload`]: the buffer, written.
///
/// # Errors
///
/// As [`Device::alloc`], [`Device::alloc_host`] and [`DeviceBuffer::copy_from`].
///
/// # Cancel safety
///
/// Dropping it drops the buffer; the copy runs to its end.
#[must_use = "the buffer, and what went wrong, come from awaiting it"]
pub struct Upload<T> {
    /// Taken when ready.
    state: Option<Result<(DeviceBuffer<T>, Completion)>>,
}

/// The future of [`DeviceBuffer::to_vec`] and its like: the elements.
///
/// # Errors
///
/// As [`Device::alloc_host`] and [`DeviceBuffer::copy_to`].
///
/// # Cancel safety
///
/// Dropping it drops what was copied; the copy runs to its end.
#[must_use = "the elements, and what went wrong, come from awaiting it"]
pub struct ToVec<T> {
    /// Taken when ready.
    state: Option<Result<(HostBuffer<T>, Completion)>>,
}

#[track_caller]
fn start_upload<T: Pod>(
    core: &Arc<DeviceCore>,
    data: &[T],
) -> Result<(DeviceBuffer<T>, Completion)> {
    let staged = HostBuffer::from_slice(core, data)?;
    let mut buffer = DeviceBuffer::unwritten(core, data.len())?;
    let copied = buffer.copy_from(&staged)?;
    Ok((buffer, copied))
}

/// Waits for the completion in `state`, then takes what it was for.
fn poll_state<B>(
    state: &mut Option<Result<(B, Completion)>>,
    cx: &mut Context<'_>,
) -> Poll<Result<B>> {
    if let Some(Ok((_, copied))) = state {
        let ended = ready!(Pin::new(copied).poll(cx));
        if let Err(error) = ended {
            *state = None;
            return Poll::Ready(Err(error));
        }
    }
    match state.take() {
        Some(taken) => Poll::Ready(taken.map(|(buffer, _)| buffer)),
        // Polled again after it was ready, which a future's contract forbids.
        None => Poll::Pending,
    }
}

// Nothing here is pinned to its place.
impl<T> Unpin for Upload<T> {}
impl<T> Unpin for ToVec<T> {}

impl<T: Pod> Future for Upload<T> {
    type Output = Result<DeviceBuffer<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        poll_state(&mut self.state, cx)
    }
}

impl<T: Pod> Future for ToVec<T> {
    type Output = Result<Vec<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let staged = ready!(poll_state(&mut self.state, cx))?;
        if staged.is_empty() {
            return Poll::Ready(Ok(Vec::new()));
        }
        let copied: Result<_, Error> = staged.try_read().map(|elements| elements.to_vec());
        Poll::Ready(copied)
    }
}

impl<T> fmt::Debug for Upload<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload").field("state", &self.state).finish()
    }
}

impl<T> fmt::Debug for ToVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToVec").field("state", &self.state).finish()
    }
}
