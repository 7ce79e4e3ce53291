//! Typed device memory.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::Pod;

use super::allocation::Allocation;
use super::pod::byte_len;
use super::store::{Place, Store};
use crate::device::{Device, DeviceCore};
use crate::error::Result;

/// `len` elements of `T` in device memory.
///
/// # What is ordered with what
///
/// Every operation notes which elements it reads and which it writes: all of a buffer that it is
/// given, or those of a slice, a column, a tile or a part of one. An operation on another stream that
/// touches one of the same elements, where one of the two writes it, waits for the first on the
/// device; the host never does. Readers do not wait for readers, nor do those of the one half wait
/// for those of the other, nor those of one column for those of another. Nothing needs to be
/// declared, and no program text names an event.
///
/// An allocation is an operation too (`cuMemAllocAsync`), on the current stream of the caller: the
/// first use of the memory on another stream waits on the device until the allocating stream has come
/// to it. Allocate before other work is enqueued there, or on the stream that is to use the memory.
///
/// ```
/// # fn f(device: &headwater::Device) -> headwater::Result<()> {
/// let mut x = device.zeros::<f32>(1 << 20)?;
/// let (mut low, mut high) = x.split_at_mut(1 << 19)?;
/// device.stream().in_scope(|| low.fill(1.0))?;
/// device.stream().in_scope(|| high.fill(2.0))?; // does not wait for the first
/// # Ok(())
/// # }
/// ```
///
/// # Drop
///
/// Dropping it never blocks: the memory is freed in stream order (`cuMemFreeAsync`) after the last
/// operation that uses it, whether or not anyone awaits that.
pub struct DeviceBuffer<T> {
    pub(super) store: Store<Allocation>,
    element: PhantomData<T>,
}

impl<T: Pod> DeviceBuffer<T> {
    /// Memory with nothing in it: reading it is an error until an operation has written it.
    #[track_caller]
    pub(crate) fn unwritten(core: &Arc<DeviceCore>, len: usize) -> Result<Self> {
        let bytes = byte_len::<T>(len)?;
        core.reactor().check()?;
        let memory = match bytes {
            0 => None,
            _ => Some(Allocation::new(core, bytes)?),
        };
        Ok(DeviceBuffer::of_store(Store { memory, core: core.clone(), len, size: size_of::<T>() }))
    }

    /// As [`DeviceBuffer::unwritten`], of memory that was waited for; `None` of a buffer without bytes.
    pub(crate) fn of_allocation(
        core: &Arc<DeviceCore>,
        len: usize,
        memory: Option<Allocation>,
    ) -> Self {
        DeviceBuffer::of_store(Store { memory, core: core.clone(), len, size: size_of::<T>() })
    }

    /// `store` was made for elements of `T`.
    pub(super) fn of_store(store: Store<Allocation>) -> Self {
        DeviceBuffer { store, element: PhantomData }
    }

    pub(crate) fn place(&self) -> Place<'_, Allocation> {
        self.store.place()
    }
}

impl<T> DeviceBuffer<T> {
    /// Elements.
    pub fn len(&self) -> usize {
        self.store.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.store.len == 0
    }

    /// The device that the memory is on.
    pub fn device(&self) -> Device {
        Device::from_core(self.store.core.clone())
    }
}

impl<T> fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceBuffer")
            .field("number", &self.store.number())
            .field("type", &std::any::type_name::<T>())
            .field("len", &self.store.len)
            .field("device", &self.store.core.number())
            .finish_non_exhaustive()
    }
}
