//! Typed device memory.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::allocation::Allocation;
use super::pod::byte_len;
use super::view::{DeviceSlice, DeviceSliceMut};
use crate::device::{Device, DeviceCore};
use crate::error::Result;
use bytemuck::Pod;

/// `len` elements of `T` in device memory.
///
/// # What is ordered with what
///
/// Every operation that takes a buffer notes whether it reads or writes it. An operation on another
/// stream that conflicts (one of the two writes) waits for it on the device; the host never does.
/// Readers do not wait for readers. Nothing needs to be declared, and no program text names an
/// event.
///
/// # Drop
///
/// Dropping it never blocks: the memory is freed in stream order (`cuMemFreeAsync`) after the last
/// operation that uses it, whether or not anyone awaits that.
pub struct DeviceBuffer<T> {
    /// `None` only where there are no bytes.
    allocation: Option<Allocation>,
    core: Arc<DeviceCore>,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Pod> DeviceBuffer<T> {
    /// Memory with nothing in it: reading it is an error until an operation has written it.
    #[track_caller]
    pub(crate) fn unwritten(core: &Arc<DeviceCore>, len: usize) -> Result<Self> {
        let bytes = byte_len::<T>(len)?;
        core.reactor().check()?;
        let allocation = match bytes {
            0 => None,
            _ => Some(Allocation::new(core, bytes)?),
        };
        Ok(DeviceBuffer { allocation, core: core.clone(), len, element: PhantomData })
    }

    /// The whole buffer as something that an operation reads.
    pub(crate) fn as_slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice::new(self.allocation.as_ref(), &self.core, self.len)
    }

    /// The whole buffer as something that an operation writes.
    pub(crate) fn as_slice_mut(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut::new(self.allocation.as_ref(), &self.core, self.len)
    }
}

impl<T> DeviceBuffer<T> {
    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device that the memory is on.
    pub fn device(&self) -> Device {
        Device::from_core(self.core.clone())
    }
}

impl<T> fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceBuffer")
            .field("number", &self.allocation.as_ref().map(|allocation| allocation.tracked().id()))
            .field("type", &std::any::type_name::<T>())
            .field("len", &self.len)
            .field("device", &self.core.number())
            .finish_non_exhaustive()
    }
}
