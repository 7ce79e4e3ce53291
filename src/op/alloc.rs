//! Making buffers.

use bytemuck::Pod;

use crate::buffer::{DeviceBuffer, HostBuffer};
use crate::device::Device;
use crate::error::Result;

impl Device {
    /// `len` elements of device memory with nothing in them, allocated on the current stream
    /// (`cuMemAllocFromPoolAsync`).
    ///
    /// Until an operation has written them, reading them is
    /// [`Error::Uninitialised`](crate::Error::Uninitialised).
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`](crate::Error::OutOfMemory), [`TooLarge`](crate::Error::TooLarge), or the
    /// device is lost.
    #[track_caller]
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<DeviceBuffer<T>> {
        DeviceBuffer::unwritten(self.core(), len)
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
    /// The system has no more memory to lock, [`TooLarge`](crate::Error::TooLarge), or the device
    /// is lost.
    #[track_caller]
    pub fn alloc_host<T: Pod>(&self, len: usize) -> Result<HostBuffer<T>> {
        HostBuffer::unwritten(self.core(), len)
    }
}
