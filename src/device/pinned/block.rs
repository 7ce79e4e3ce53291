//! Page-locked memory by the block, and how each came to be so.
#![allow(unsafe_code)]

use std::any::TypeId;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use crate::driver::{Driver, DriverError, DriverResult, HostKind};

/// A block of page-locked memory. Not freed on drop: it goes back to the pool it came from.
#[derive(Debug)]
pub(crate) struct PinnedBlock {
    ptr: NonNull<u8>,
    /// A size class, or what is registered.
    bytes: usize,
    origin: Origin,
}

#[derive(Debug)]
enum Origin {
    /// Of `host_alloc`.
    Allocated(HostKind),
    /// Of `host_register`. Where the block is dropped, the memory stays: it is registered still.
    /// Boxed, since few are.
    Registered(ManuallyDrop<Box<VecMemory>>),
}

// SAFETY: a block is an address range that one holder owns; it is not tied to a thread.
unsafe impl Send for PinnedBlock {}
// SAFETY: a shared block gives out its address only; who reads or writes there answers for it.
unsafe impl Sync for PinnedBlock {}

impl PinnedBlock {
    /// `cuMemHostAlloc`.
    pub(super) fn allocate(
        driver: &dyn Driver,
        bytes: usize,
        kind: HostKind,
    ) -> DriverResult<Self> {
        let ptr = driver.host_alloc(bytes, kind)?;
        Ok(PinnedBlock { ptr, bytes, origin: Origin::Allocated(kind) })
    }

    /// `cuMemHostRegister`. `memory` has bytes.
    pub(super) fn register(
        driver: &dyn Driver,
        memory: VecMemory,
    ) -> Result<Self, (VecMemory, DriverError)> {
        let (ptr, bytes) = (memory.ptr, memory.bytes);
        // SAFETY: the elements are initialised, and what is registered is not given out or freed before
        // `give_back` has seen it unregistered.
        match unsafe { driver.host_register(ptr, bytes) } {
            Ok(()) => {
                let origin = Origin::Registered(ManuallyDrop::new(Box::new(memory)));
                Ok(PinnedBlock { ptr, bytes, origin })
            }
            Err(cause) => Err((memory, cause)),
        }
    }

    pub(crate) fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Registered memory is cacheable.
    pub(crate) fn kind(&self) -> HostKind {
        match self.origin {
            Origin::Allocated(kind) => kind,
            Origin::Registered(_) => HostKind::Cacheable,
        }
    }

    pub(super) fn is_registered(&self) -> bool {
        matches!(self.origin, Origin::Registered(_))
    }

    /// Whether it is the memory of a `Vec<T>`.
    pub(crate) fn is_vec_of<T: 'static>(&self) -> bool {
        match &self.origin {
            Origin::Allocated(_) => false,
            Origin::Registered(memory) => memory.element == TypeId::of::<T>(),
        }
    }

    /// `cuMemFreeHost` or `cuMemHostUnregister`: waits for running kernels. Nothing touches the block any
    /// more: its users, if any, were seen to finish. Yields the memory that was registered.
    pub(in crate::device) fn give_back(
        self,
        driver: &dyn Driver,
    ) -> Result<Option<VecMemory>, (Self, DriverError)> {
        let given = match &self.origin {
            // SAFETY: the block came from this device's driver, `self` is its only holder, and the
            // caller has seen what used it finish.
            Origin::Allocated(_) => unsafe { driver.host_free(self.ptr) },
            // SAFETY: as above.
            Origin::Registered(_) => unsafe { driver.host_unregister(self.ptr) },
        };
        match given {
            Ok(()) => Ok(match self.origin {
                Origin::Allocated(_) => None,
                Origin::Registered(memory) => Some(*ManuallyDrop::into_inner(memory)),
            }),
            Err(cause) => Err((self, cause)),
        }
    }

    /// For messages.
    pub(in crate::device) fn describe(&self) -> String {
        let kind = if self.is_registered() { "registered" } else { "pinned" };
        format!("{} bytes of {kind} memory", self.bytes)
    }
}

/// The memory of a `Vec` of plain elements, of a type that is not known here. Owns it as the `Vec` did.
pub(crate) struct VecMemory {
    ptr: NonNull<u8>,
    /// Of its elements.
    bytes: usize,
    len: usize,
    capacity: usize,
    element: TypeId,
    /// Drops the `Vec`, of these elements, which has that address, length and capacity.
    free: unsafe fn(NonNull<u8>, usize, usize),
}

// SAFETY: it owns memory of the global allocator and gives out its address only. Elements are `Copy`: nothing
// of theirs runs when they are dropped, on whatever thread.
unsafe impl Send for VecMemory {}
// SAFETY: as for `Send`.
unsafe impl Sync for VecMemory {}

impl VecMemory {
    pub(crate) fn new<T: Copy + 'static>(vec: Vec<T>) -> Self {
        /// # Safety
        /// The three are of a `Vec<T>` that nobody else has.
        unsafe fn free<T>(ptr: NonNull<u8>, len: usize, capacity: usize) {
            // SAFETY: the caller's promise.
            drop(unsafe { Vec::from_raw_parts(ptr.cast::<T>().as_ptr(), len, capacity) });
        }
        let mut vec = ManuallyDrop::new(vec);
        VecMemory {
            // Of the whole allocation, and not of its elements alone.
            ptr: NonNull::new(vec.as_mut_ptr().cast()).unwrap_or(NonNull::dangling()),
            bytes: size_of_val(vec.as_slice()),
            len: vec.len(),
            capacity: vec.capacity(),
            element: TypeId::of::<T>(),
            free: free::<T>,
        }
    }

    /// The `Vec` that it was; `None` where that had other elements.
    pub(crate) fn into_vec<T: Copy + 'static>(self) -> Option<Vec<T>> {
        if self.element != TypeId::of::<T>() {
            return None;
        }
        let VecMemory { ptr, len, capacity, .. } = *ManuallyDrop::new(self);
        // SAFETY: they were taken from a `Vec<T>` by `new`, and `self`, which owned it, is not dropped.
        Some(unsafe { Vec::from_raw_parts(ptr.cast().as_ptr(), len, capacity) })
    }
}

impl Drop for VecMemory {
    fn drop(&mut self) {
        // SAFETY: `new` took them from such a `Vec`, and `into_vec` does not come here.
        unsafe { (self.free)(self.ptr, self.len, self.capacity) };
    }
}

impl fmt::Debug for VecMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VecMemory").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
