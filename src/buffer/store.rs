//! What views, parts and buffers are of: the memory of one buffer, and a shape within it.

use std::ops::RangeBounds;
use std::ptr::NonNull;
use std::sync::Arc;

use super::allocation::Allocation;
use super::hazard::{Access, Mode};
use super::pinned::Pinned;
use super::shape::Shape;
use super::tracked::{Memory, Tracked};
use crate::device::DeviceCore;
use crate::driver::{CopyMemory, DevicePtr};
use crate::error::Result;

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
        self.place_of(Shape::of_elements(0, self.len))
    }

    /// `shape` lies within it.
    pub(super) fn place_of(&self, shape: Shape) -> Place<'_, M> {
        Place { store: self, shape }
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
pub(crate) struct Place<'a, M> {
    store: &'a Store<M>,
    /// Within the store.
    shape: Shape,
}

impl<M> Clone for Place<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Place<'_, M> {}

impl<'a, M: Backing> Place<'a, M> {
    pub(crate) fn core(&self) -> &'a Arc<DeviceCore> {
        &self.store.core
    }

    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// A shape within this one.
    pub(super) fn with(self, shape: Shape) -> Self {
        Place { shape, ..self }
    }

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

    pub(crate) fn bytes(&self) -> usize {
        self.shape.len() * self.store.size
    }

    /// The memory, if any of its bytes are in the shape, and how they are touched.
    pub(crate) fn access(&self, mode: Mode) -> (Option<&'a Tracked>, Access) {
        let memory = self.store.memory.as_ref().filter(|_| !self.shape.is_empty());
        (memory.map(Backing::tracked), Access { region: self.shape.region(self.store.size), mode })
    }

    /// Address of the first element; `None` where the buffer has no bytes.
    pub(crate) fn address(&self) -> Option<CopyMemory> {
        let offset = self.shape.start() * self.store.size;
        self.store.memory.as_ref().map(|memory| memory.address(offset))
    }

    pub(super) fn store(&self) -> &'a Store<M> {
        self.store
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

impl Place<'_, Pinned> {
    /// Address of the first element; dangling where the buffer has no bytes.
    pub(crate) fn first<T>(&self) -> NonNull<T> {
        match self.address() {
            Some(CopyMemory::Host(ptr)) => ptr.cast(),
            Some(CopyMemory::Device(_)) | None => NonNull::dangling(),
        }
    }
}
