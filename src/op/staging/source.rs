//! What is uploaded: ordinary memory of any kind, or pinned memory.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::Pod;
use bytes::Bytes;

use super::bytes::OwnedBytes;
use crate::buffer::HostBuffer;
use crate::error::{Error, Result};

/// Elements to be copied to a device: what [`Device::upload`](crate::Device::upload) and
/// [`refill`](crate::DeviceBuffer::refill) take, made of many things by `into`.
///
/// | made of | what happens |
/// | --- | --- |
/// | `Vec<T>`, `Box<[T]>`, `Arc<[T]>`, `[T; N]`, [`Bytes`], [`from_owner`](Source::from_owner) | large ones go through pinned memory piece by piece, on threads of the device; what was given is dropped after the last piece |
/// | `&[T]`, `&Vec<T>`, `&[T; N]` | copied to pinned memory inside the call, which takes about 0.1 ms a MiB and as much pinned memory |
/// | [`HostBuffer<T>`] | one copy, as it is pinned already |
pub struct Source<'a, T> {
    pub(super) memory: SourceMemory<'a>,
    /// In elements.
    pub(super) len: usize,
    element: PhantomData<T>,
}

pub(super) enum SourceMemory<'a> {
    Borrowed(&'a [u8]),
    Owned(OwnedBytes),
    Pinned(HostBuffer<u8>),
}

impl SourceMemory<'_> {
    fn bytes(&self) -> usize {
        match self {
            SourceMemory::Borrowed(bytes) => bytes.len(),
            SourceMemory::Owned(owned) => owned.as_bytes().len(),
            SourceMemory::Pinned(buffer) => buffer.len(),
        }
    }
}

impl<'a, T: Pod> Source<'a, T> {
    /// Elements that something owns, such as a memory-mapped file. `as_ref` is called once, inside this
    /// call; the owner is dropped once everything is copied, on a thread of the device maybe.
    pub fn from_owner(owner: impl AsRef<[T]> + Send + Sync + 'static) -> Self {
        Self::owned(OwnedBytes::of_owner(owner))
    }

    /// Bytes as elements, whatever they are aligned to.
    ///
    /// ```
    /// # use headwater::{Device, Source};
    /// # headwater::block_on(async {
    /// # let device = Device::simulated()?;
    /// let file: Vec<u8> = vec![0, 0, 128, 63, 0, 0, 0, 64]; // read, or mapped
    /// let x = device.upload(Source::<f32>::of_bytes(file)?).await?;
    /// assert_eq!(x.to_vec().await?, [1.0, 2.0]);
    /// # Ok::<_, headwater::Error>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`UnfinishedElement`](Error::UnfinishedElement): they are no whole number of elements.
    pub fn of_bytes(bytes: impl Into<Source<'a, u8>>) -> Result<Self> {
        let Source { memory, len: bytes, .. } = bytes.into();
        let element_size = size_of::<T>();
        let (len, rest) = match element_size {
            0 => (0, bytes),
            size => (bytes / size, bytes % size),
        };
        match rest {
            0 => Ok(Source { memory, len, element: PhantomData }),
            _ => Err(Error::UnfinishedElement { bytes, element_size }),
        }
    }

    fn owned(owned: OwnedBytes) -> Self {
        let len = owned.len();
        Source { memory: SourceMemory::Owned(owned), len, element: PhantomData }
    }
}

impl<T> Source<'_, T> {
    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<'a, T: Pod> From<&'a [T]> for Source<'a, T> {
    fn from(elements: &'a [T]) -> Self {
        let memory = SourceMemory::Borrowed(bytemuck::cast_slice(elements));
        Source { memory, len: elements.len(), element: PhantomData }
    }
}

impl<'a, T: Pod> From<&'a Vec<T>> for Source<'a, T> {
    fn from(elements: &'a Vec<T>) -> Self {
        elements.as_slice().into()
    }
}

impl<'a, T: Pod, const N: usize> From<&'a [T; N]> for Source<'a, T> {
    fn from(elements: &'a [T; N]) -> Self {
        elements.as_slice().into()
    }
}

impl<T: Pod> From<Vec<T>> for Source<'_, T> {
    fn from(elements: Vec<T>) -> Self {
        Self::owned(OwnedBytes::of_vec(elements))
    }
}

impl<T: Pod> From<Box<[T]>> for Source<'_, T> {
    fn from(elements: Box<[T]>) -> Self {
        Self::owned(OwnedBytes::of_box(elements))
    }
}

impl<T: Pod> From<Arc<[T]>> for Source<'_, T> {
    fn from(elements: Arc<[T]>) -> Self {
        Self::owned(OwnedBytes::of_arc(elements))
    }
}

impl<T: Pod, const N: usize> From<[T; N]> for Source<'_, T> {
    fn from(elements: [T; N]) -> Self {
        Self::owned(OwnedBytes::of_array(elements))
    }
}

impl From<Bytes> for Source<'_, u8> {
    fn from(bytes: Bytes) -> Self {
        Self::from_owner(bytes)
    }
}

impl<T: Pod> From<HostBuffer<T>> for Source<'_, T> {
    fn from(buffer: HostBuffer<T>) -> Self {
        let len = buffer.len();
        let memory = SourceMemory::Pinned(buffer.into_bytes());
        Source { memory, len, element: PhantomData }
    }
}

impl<T> fmt::Debug for Source<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.memory {
            SourceMemory::Borrowed(_) => "borrowed",
            SourceMemory::Owned(_) => "owned",
            SourceMemory::Pinned(_) => "pinned",
        };
        f.debug_struct("Source")
            .field("kind", &kind)
            .field("len", &self.len)
            .field("bytes", &self.memory.bytes())
            .finish()
    }
}
