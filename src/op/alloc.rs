//! Making buffers.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytemuck::Pod;

use crate::buffer::{Allocation, DeviceBuffer, HostBuffer, HostOptions, byte_len};
use crate::device::{Device, DeviceCore, MemoryRequest};
use crate::error::{Error, Result};

impl Device {
    /// `len` elements of device memory with nothing in them, for work on the current stream first of all: a
    /// block that a buffer of about this size had, else one of the driver's (`cuMemAllocFromPoolAsync`).
    ///
    /// Costs less than a microsecond where there is such a block that the stream may touch at once. Memory that the driver
    /// has to map takes it about 1.5 ms a GB. Where there is none to be had, memory is taken into account that is in flight on
    /// other streams, for which the first use waits on the device, and what is kept of other sizes is given back to
    /// the driver; nothing waits on the host.
    ///
    /// Until an operation has written them, reading them is
    /// [`Error::Uninitialised`](crate::Error::Uninitialised).
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`](crate::Error::OutOfMemory), [`OverBudget`](crate::Error::OverBudget), [`TooLarge`](crate::Error::TooLarge), or the
    /// device is lost.
    #[track_caller]
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<DeviceBuffer<T>> {
        DeviceBuffer::unwritten(self.core(), len)
    }

    /// `len` elements of device memory with nothing in them, as soon as there is room for them: waits its turn
    /// for memory that other buffers have, and for room in the budget of a [`Tenant`](crate::Tenant). The stream and the tenant are those
    /// that are current where this is called, and not where it is awaited.
    ///
    /// Ask once for all that a piece of work needs, and take it apart ([`split_at_mut`](DeviceBuffer::split_at_mut),
    /// [`into_parts`](DeviceBuffer::into_parts)): who holds some and waits for more can wait for others who do the same, for good.
    /// [`MemoryStats::waiting`](crate::MemoryStats::waiting) and [`TenantStats::waiting`](crate::TenantStats::waiting) tell how many wait.
    ///
    /// Requests are served in the order in which they first found no memory: no later one is served before one that waits for
    /// the device's memory, however small it is. [`Device::alloc`] does not wait, and takes what it finds.
    #[track_caller]
    pub fn alloc_wait<T: Pod>(&self, len: usize) -> AllocWait<T> {
        AllocWait { asked: Asked::start::<T>(self.core(), len), len, element: PhantomData }
    }

    /// `len` elements of device memory, every byte 0: [`Device::alloc`], then
    /// [`DeviceBuffer::fill`] on the same stream.
    ///
    /// # Errors
    ///
    /// As both.
    #[track_caller]
    pub fn zeros<T: Pod>(&self, len: usize) -> Result<DeviceBuffer<T>> {
        let mut buffer = self.alloc(len)?;
        buffer.fill(T::zeroed())?;
        Ok(buffer)
    }

    /// `len` elements of page-locked host memory with nothing in them: from the device's pool, or
    /// newly made (`cuMemHostAlloc`, about 0.7 ms a MiB).
    ///
    /// # Errors
    ///
    /// [`OutOfPinnedMemory`](crate::Error::OutOfPinnedMemory), [`TooLarge`](crate::Error::TooLarge), or the device
    /// is lost.
    #[track_caller]
    pub fn alloc_host<T: Pod>(&self, len: usize) -> Result<HostBuffer<T>> {
        HostBuffer::unwritten(self.core(), len)
    }

    /// As [`Device::alloc_host`], of memory of another kind.
    ///
    /// # Errors
    ///
    /// As of it.
    #[track_caller]
    pub fn alloc_host_with<T: Pod>(
        &self,
        len: usize,
        options: HostOptions,
    ) -> Result<HostBuffer<T>> {
        HostBuffer::unwritten_as(self.core(), len, options.kind())
    }
}

/// The future of [`Device::alloc_wait`]: the buffer.
///
/// Takes its place in the queue when it is polled first, and not before.
///
/// # Errors
///
/// As [`Device::alloc`], for what waiting does not help: [`OutOfMemory`](crate::Error::OutOfMemory) where it is more than
/// there ever can be, or where no buffer of this `Device` is left that could be dropped; [`OverBudget`](crate::Error::OverBudget) where
/// it is more than the whole budget; the device is lost, also while it waits.
///
/// # Cancel safety
///
/// Dropping it gives up its place, and who is next is served. Forgetting it in place of that holds up those
/// behind it.
#[must_use = "the buffer comes from awaiting it"]
pub struct AllocWait<T> {
    asked: Asked,
    len: usize,
    element: PhantomData<fn() -> T>,
}

enum Asked {
    /// For so many bytes, by that place of the program.
    Memory { request: MemoryRequest, bytes: usize, made_at: &'static Location<'static> },
    /// For no bytes.
    Nothing(Arc<DeviceCore>),
    /// For what cannot be; taken when ready.
    Refused(Option<Error>),
}

impl Asked {
    #[track_caller]
    fn start<T>(core: &Arc<DeviceCore>, len: usize) -> Self {
        let made_at = Location::caller();
        match byte_len::<T>(len).and_then(|bytes| core.reactor().check().map(|()| bytes)) {
            Err(error) => Asked::Refused(Some(error)),
            Ok(0) => Asked::Nothing(core.clone()),
            Ok(bytes) => Asked::Memory { request: MemoryRequest::new(core, bytes), bytes, made_at },
        }
    }
}

impl<T: Pod> Future for AllocWait<T> {
    type Output = Result<DeviceBuffer<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let len = self.len;
        let (core, memory) = match &mut self.asked {
            // Polled again after it was ready, which a future's contract forbids.
            Asked::Refused(error) => {
                return error.take().map_or(Poll::Pending, |e| Poll::Ready(Err(e)));
            }
            Asked::Nothing(core) => (core.clone(), None),
            Asked::Memory { request, bytes, made_at } => {
                let (bytes, made_at) = (*bytes, *made_at);
                let granted = ready!(request.poll(cx));
                let core = request.core().clone();
                let allocation = granted.map(|(block, before)| {
                    Allocation::of_block(&core, block, before, bytes, made_at)
                });
                match allocation {
                    Ok(allocation) => (core, Some(allocation)),
                    Err(error) => {
                        self.asked = Asked::Refused(None);
                        return Poll::Ready(Err(error));
                    }
                }
            }
        };
        self.asked = Asked::Refused(None);
        Poll::Ready(Ok(DeviceBuffer::of_allocation(&core, len, memory)))
    }
}

impl<T> fmt::Debug for AllocWait<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllocWait").field("len", &self.len).finish_non_exhaustive()
    }
}
