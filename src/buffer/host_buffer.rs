//! Typed page-locked host memory.

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

use bytemuck::Pod;

use super::pinned::Pinned;
use super::pod::byte_len;
use super::store::{Place, Store};
use crate::device::{Device, DeviceCore};
use crate::driver::HostKind;
use crate::error::Result;

/// What to ask of page-locked memory: see [`Device::alloc_host_with`].
#[derive(Clone, Debug, Default)]
pub struct HostOptions {
    kind: HostKind,
}

impl HostOptions {
    /// Memory that is cached for the host as any other.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the memory is write-combined (`CU_MEMHOSTALLOC_WRITECOMBINED`): not cached for the host. For what the
    /// host writes once, from the first byte to the last, and the device copies: writing it leaves the host's caches to
    /// others, and copies need not look there.
    ///
    /// **Reading it is slow**, some 100 MB/s: a hundredth of what is usual, for whatever reads it on the host, and so
    /// does changing a part of an element. No program computes anything else by it. Blocks of the two kinds are
    /// kept apart. A buffer that comes to have no elements forgets its kind.
    pub fn write_combined(mut self, on: bool) -> Self {
        self.kind = if on { HostKind::WriteCombined } else { HostKind::Cacheable };
        self
    }

    pub(crate) fn kind(&self) -> HostKind {
        self.kind
    }
}

/// `len` elements of `T` in page-locked host memory, which the device copies to and from while
/// other work goes on.
///
/// The bytes are reached only through guards, which exist only while no operation touches them in
/// a way that conflicts: [`read`](HostBuffer::read) and [`write`](HostBuffer::write) await that,
/// [`try_read`](HostBuffer::try_read) and [`try_write`](HostBuffer::try_write) ask, and the
/// `blocking_` ones wait in the thread. Copies are ordered with each other as those of
/// [`DeviceBuffer`](crate::DeviceBuffer)s are.
///
/// While a guard is there, the compiler keeps operations away that conflict with it:
///
/// ```compile_fail,E0502
/// # async fn f(y: headwater::DeviceBuffer<f32>, mut out: headwater::HostBuffer<f32>) {
/// let bytes = out.read().await.unwrap();
/// y.copy_to(&mut out).unwrap(); // would write what `bytes` reads
/// println!("{}", bytes[0]);
/// # }
/// ```
///
/// ```compile_fail,E0502
/// # async fn f(mut y: headwater::DeviceBuffer<f32>, mut out: headwater::HostBuffer<f32>) {
/// let mut bytes = out.write().await.unwrap();
/// y.copy_from(&out).unwrap(); // would read what `bytes` writes
/// bytes[0] = 1.0;
/// # }
/// ```
///
/// # Drop
///
/// Never blocks and frees nothing: the memory goes back to the device's pool, for reuse once the
/// device is done with it ([`Device::trim_pinned`] frees it). Memory of a `Vec` that was registered
/// ([`HostBuffer::from_vec`]) is unregistered then, and dropped, by a thread of the device's.
pub struct HostBuffer<T> {
    pub(super) store: Store<Pinned>,
    element: PhantomData<T>,
}

impl<T: Pod> HostBuffer<T> {
    /// Cacheable memory with nothing in it that counts.
    #[track_caller]
    pub(crate) fn unwritten(core: &Arc<DeviceCore>, len: usize) -> Result<Self> {
        Self::unwritten_as(core, len, HostKind::Cacheable)
    }

    /// Memory with nothing in it that counts.
    #[track_caller]
    pub(crate) fn unwritten_as(core: &Arc<DeviceCore>, len: usize, kind: HostKind) -> Result<Self> {
        Self::unwritten_at(core, len, kind, Location::caller())
    }

    pub(super) fn unwritten_at(
        core: &Arc<DeviceCore>,
        len: usize,
        kind: HostKind,
        made_at: &'static Location<'static>,
    ) -> Result<Self> {
        let bytes = byte_len::<T>(len)?;
        core.reactor().check()?;
        let memory = match bytes {
            0 => None,
            _ => Some(Pinned::new(core, bytes, kind, made_at)?),
        };
        Ok(HostBuffer::of_store(Store { memory, core: core.clone(), len, size: size_of::<T>() }))
    }

    pub(super) fn without_elements(core: &Arc<DeviceCore>) -> Self {
        let (memory, core) = (None, core.clone());
        HostBuffer::of_store(Store { memory, core, len: 0, size: size_of::<T>() })
    }

    /// As memory that ordinary memory goes through.
    pub(crate) fn staged(mut self) -> Self {
        if let Some(memory) = &mut self.store.memory {
            memory.set_staged();
        }
        self
    }

    /// Memory with a copy of `elements` in it.
    #[track_caller]
    pub(crate) fn from_slice(core: &Arc<DeviceCore>, elements: &[T]) -> Result<Self> {
        let mut buffer = Self::unwritten(core, elements.len())?;
        buffer.set(elements);
        Ok(buffer)
    }

    /// `store` was made for elements of `T`.
    pub(super) fn of_store(store: Store<Pinned>) -> Self {
        HostBuffer { store, element: PhantomData }
    }

    /// The same memory, as bytes.
    pub(crate) fn into_bytes(self) -> HostBuffer<u8> {
        let Store { memory, core, len, size } = self.store;
        HostBuffer::of_store(Store { memory, core, len: len * size, size: 1 })
    }

    /// Bytes as `len` elements, which take as many.
    pub(crate) fn of_bytes(bytes: HostBuffer<u8>, len: usize) -> Self {
        let Store { memory, core, len: bytes, .. } = bytes.store;
        debug_assert_eq!(bytes, len * size_of::<T>());
        HostBuffer::of_store(Store { memory, core, len, size: size_of::<T>() })
    }

    pub(crate) fn place(&self) -> Place<'_, Pinned> {
        self.store.place()
    }
}

impl<T> HostBuffer<T> {
    /// Elements.
    pub fn len(&self) -> usize {
        self.store.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.store.len == 0
    }

    /// The device whose copies the memory is made for.
    pub fn device(&self) -> Device {
        Device::from_core(self.store.core.clone())
    }
}

impl<T> fmt::Debug for HostBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostBuffer")
            .field("number", &self.store.number())
            .field("type", &std::any::type_name::<T>())
            .field("len", &self.store.len)
            .field("device", &self.store.core.number())
            .finish_non_exhaustive()
    }
}
