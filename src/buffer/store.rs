//! What views, parts and buffers are of: the memory of one buffer, and a shape within it.

use std::ops::RangeBounds;
use std::ptr::NonNull;
use std::sync::Arc;

use super::allocation::Allocation;
use super::hazard::{Access, Mode};
use super::pinned::Pinned;
use super::pod;
use super::region::Region;
use super::shape::{Extent, Shape};
use super::tracked::{Memory, Tracked};
use crate::device::DeviceCore;
use crate::driver::{CopyMemory, DevicePtr};
use crate::error::{Error, Result};

/// One allocation, of device memory or of pinned memory.
pub(crate) trait Backing {
    const KIND: Memory;

    fn tracked(&self) -> &Tracked;

    /// The address of the byte at `offset`.
    fn address(&self, offset: usize) -> CopyMemory;
}

/// The memory of one buffer.
pub(crate) struct Store<M> {
    /// `None` only where there are no bytes.
    pub(super) memory: Option<M>,
    pub(super) core: Arc<DeviceCore>,
    /// In elements: their bytes are what `memory` has.
    pub(super) len: usize,
    /// Bytes of an element.
    pub(super) size: usize,
}

impl<M: Backing> Store<M> {
    /// All of it.
    pub(super) fn place(&self) -> Place<'_, M> {
        self.place_as(self.len, self.size)
    }

    /// All of it, as so many elements of `size` bytes.
    pub(super) fn place_as(&self, len: usize, size: usize) -> Place<'_, M> {
        Place { store: self, origin: 0, size, shape: Shape::of_elements(0, len) }
    }

    /// `shape` lies within it.
    pub(super) fn place_of(&self, shape: Shape) -> Place<'_, M> {
        Place { store: self, origin: 0, size: self.size, shape }
    }

    /// Its number among allocations, for messages.
    pub(super) fn number(&self) -> Option<u64> {
        self.memory.as_ref().map(|memory| memory.tracked().id())
    }

    /// For messages.
    pub(super) fn describe(&self) -> String {
        match &self.memory {
            Some(memory) => memory.tracked().describe(),
            None => "a buffer without bytes".into(),
        }
    }
}

/// Some elements of one buffer. Says where they are, not that they may be touched: that the views do,
/// each of which is a place and a kind of borrow.
pub(crate) struct Place<'a, M, S = Shape> {
    store: &'a Store<M>,
    /// The byte of the store that the shape is counted from: memory that was cast need not begin at
    /// a multiple of the size of its elements.
    origin: usize,
    /// Bytes of an element.
    size: usize,
    /// Within the store.
    shape: S,
}

impl<M, S: Copy> Clone for Place<'_, M, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M, S: Copy> Copy for Place<'_, M, S> {}

impl<'a, M: Backing, S: Extent> Place<'a, M, S> {
    pub(crate) fn core(&self) -> &'a Arc<DeviceCore> {
        &self.store.core
    }

    pub(crate) fn shape(&self) -> S {
        self.shape
    }

    /// Bytes of an element.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// A shape within this one.
    pub(super) fn with<W>(self, shape: W) -> Place<'a, M, W> {
        Place { store: self.store, origin: self.origin, size: self.size, shape }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.shape.len() * self.size
    }

    /// Where the first element begins in the store, in bytes.
    pub(super) fn offset(&self) -> usize {
        self.offset_of(self.shape.start())
    }

    /// Where an element begins in the store, in bytes; of the shape's, counted as its start is.
    pub(super) fn offset_of(&self, element: usize) -> usize {
        self.origin + element * self.size
    }

    /// The memory, if any of its bytes are in the shape.
    pub(crate) fn tracked(&self) -> Option<&'a Tracked> {
        let memory = self.store.memory.as_ref().filter(|_| !self.shape.is_empty());
        memory.map(Backing::tracked)
    }

    /// The bytes, in as few regions as make them up.
    pub(crate) fn regions(&self) -> impl Iterator<Item = Region> + use<M, S> {
        let origin = self.origin;
        self.shape.regions(self.size).map(move |region| region.moved_by(origin))
    }

    /// Address of the first element; `None` where the buffer has no bytes.
    pub(crate) fn address(&self) -> Option<CopyMemory> {
        self.store.memory.as_ref().map(|memory| memory.address(self.offset()))
    }

    pub(super) fn store(&self) -> &'a Store<M> {
        self.store
    }
}

impl<'a, M: Backing> Place<'a, M> {
    pub(super) fn elements(self, range: impl RangeBounds<usize>) -> Result<Self> {
        Ok(self.with(self.shape.elements(range)?))
    }

    pub(super) fn tile(
        self,
        rows: impl RangeBounds<usize>,
        columns: impl RangeBounds<usize>,
    ) -> Result<Self> {
        Ok(self.with(self.shape.tile(rows, columns)?))
    }

    /// The same bytes, which are in one piece, as elements of `T`.
    pub(super) fn cast<T>(self) -> Result<Self> {
        let shape = Shape::of_elements(0, self.len_as::<T>()?);
        Ok(Place { store: self.store, origin: self.offset(), size: size_of::<T>(), shape })
    }

    /// How many elements of `T` the bytes are, which are in one piece.
    pub(super) fn len_as<T>(&self) -> Result<usize> {
        let (offset, align) = (self.offset(), pod::align_of_elements::<T>());
        let beyond = self.address().map_or(0, |first| first.beyond(align));
        if beyond > 0 {
            return Err(Error::Misaligned { offset, align, beyond });
        }
        let (bytes, element_size) = (self.bytes(), size_of::<T>());
        match bytes.checked_rem(element_size) {
            Some(0) => Ok(bytes / element_size),
            None if self.size == 0 => Ok(self.shape.len()),
            None if bytes == 0 => Ok(0),
            _ => Err(Error::NotElements { bytes, element_size }),
        }
    }

    /// The memory, if any of its bytes are in the shape, and how they are touched.
    pub(crate) fn access(&self, mode: Mode) -> (Option<&'a Tracked>, Access) {
        let region = self.shape.region(self.size).moved_by(self.origin);
        (self.tracked(), Access { region, mode })
    }
}

impl Place<'_, Allocation> {
    /// Address of the first element; null where the buffer has no bytes.
    pub(crate) fn ptr(&self) -> DevicePtr {
        match self.address() {
            Some(CopyMemory::Device(ptr)) => ptr,
            Some(CopyMemory::Host(_)) | None => DevicePtr(0),
        }
    }
}

impl<S: Extent> Place<'_, Pinned, S> {
    /// Address of the first element; dangling where the buffer has no bytes.
    pub(crate) fn first<T>(&self) -> NonNull<T> {
        match self.address() {
            Some(CopyMemory::Host(ptr)) => ptr.cast(),
            Some(CopyMemory::Device(_)) | None => NonNull::dangling(),
        }
    }
}
