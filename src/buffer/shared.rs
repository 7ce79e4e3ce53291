//! Device memory that nothing writes any more.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::Pod;

use super::allocation::Allocation;
use super::device_buffer::DeviceBuffer;
use super::store::{Place, Store};
use crate::device::Device;

/// A handle to device memory that is only read from here on, such as the weights of a model: cheap
/// to clone, for as many tasks as like.
///
/// Made by [`DeviceBuffer::into_shared`]. A read waits on the device for what wrote the memory, until
/// that is known to be finished; from then on it costs neither a wait nor a lock nor a record of who
/// reads, however many tasks do. (Of an `Arc<DeviceBuffer<T>>` every read is noted, and readers of it
/// take turns at that.)
///
/// ```
/// # async fn f(device: headwater::Device, weights: Vec<f32>) -> headwater::Result<()> {
/// let weights = device.upload(weights).await?.into_shared();
/// let mine = weights.clone(); // for another task
/// let top = mine.slice(..16)?.to_vec().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Drop
///
/// Dropping the last handle frees the memory in stream order, after everything enqueued until then
/// on the streams that ever read it. [`try_into_buffer`](SharedBuffer::try_into_buffer) has it back
/// to write.
pub struct SharedBuffer<T> {
    /// Its memory is frozen. Of what elements it is said to be is one handle's own.
    pub(super) store: Arc<Store<Allocation>>,
    /// In elements of `T`: their bytes are what the memory has.
    len: usize,
    element: PhantomData<T>,
}

impl<T: Pod> DeviceBuffer<T> {
    /// The memory as something that is only read from here on, by any number of tasks. Costs no
    /// operation and no wait.
    pub fn into_shared(self) -> SharedBuffer<T> {
        let mut store = self.store;
        if let Some(memory) = &mut store.memory {
            memory.freeze();
        }
        let len = store.len;
        SharedBuffer::of_store(Arc::new(store), len)
    }
}

impl<T: Pod> SharedBuffer<T> {
    /// The memory as a buffer that can be written, if this is the last handle to it. What is enqueued
    /// on it later and writes is ordered after everything that read it.
    ///
    /// Who read what is not known, only on which streams: the first write of any bytes waits for all that
    /// is on those streams now and not known to be finished, whatever it does.
    ///
    /// # Errors
    ///
    /// The handle, if there are others.
    pub fn try_into_buffer(self) -> Result<DeviceBuffer<T>, Self> {
        match Arc::try_unwrap(self.store) {
            Ok(mut store) => {
                (store.len, store.size) = (self.len, size_of::<T>());
                if let Some(memory) = &mut store.memory {
                    memory.thaw();
                }
                Ok(DeviceBuffer::of_store(store))
            }
            Err(store) => Err(SharedBuffer::of_store(store, self.len)),
        }
    }

    /// `store` has the bytes of so many elements of `T`.
    pub(super) fn of_store(store: Arc<Store<Allocation>>, len: usize) -> Self {
        SharedBuffer { store, len, element: PhantomData }
    }

    pub(crate) fn place(&self) -> Place<'_, Allocation> {
        self.store.place_as(self.len, size_of::<T>())
    }
}

impl<T> SharedBuffer<T> {
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
        Device::from_core(self.store.core.clone())
    }
}

impl<T> Clone for SharedBuffer<T> {
    fn clone(&self) -> Self {
        SharedBuffer { store: self.store.clone(), len: self.len, element: PhantomData }
    }
}

impl<T> fmt::Debug for SharedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedBuffer")
            .field("number", &self.store.number())
            .field("type", &std::any::type_name::<T>())
            .field("len", &self.len)
            .field("device", &self.store.core.number())
            .finish_non_exhaustive()
    }
}
