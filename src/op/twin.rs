//! What a twin gets in place of device pointers.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr::NonNull;

use bytemuck::Pod;

use crate::buffer::{Shape, TileMut, TileRef};
use crate::driver::{DevicePtr, TwinFault, TwinMemory};

macro_rules! twin {
    ($($(#[$doc:meta])* $name:ident)+) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<T> {
            ptr: DevicePtr,
            shape: Shape,
            element: PhantomData<T>,
        }

        impl<T: Pod> $name<T> {
            /// Of `shape`, with the first element at `ptr`.
            pub(super) fn new(ptr: DevicePtr, shape: Shape) -> Self {
                $name { ptr, shape, element: PhantomData }
            }

            /// Host address of the first element.
            fn first(&self, memory: &dyn TwinMemory) -> Result<NonNull<T>, TwinFault> {
                let bytes = self.shape.region(size_of::<T>()).extent().len();
                if bytes == 0 {
                    return Ok(NonNull::dangling());
                }
                let first = memory.resolve(self.ptr, bytes).map(NonNull::cast);
                first.ok_or(TwinFault { ptr: self.ptr, bytes })
            }
        }
    )+};
}

twin! {
    /// Where a slice that the kernel reads lies.
    TwinSlice
    /// Where a slice that the kernel writes lies.
    TwinSliceMut
    /// Where a tile that the kernel reads lies.
    TwinTile
    /// Where a tile that the kernel writes lies.
    TwinTileMut
}

impl<T: Pod> TwinSlice<T> {
    /// The elements.
    ///
    /// # Errors
    ///
    /// They are not all in live memory that the launch declared.
    ///
    /// # Safety
    ///
    /// Called inside the twin of the launch that captured it, which declared the elements as read;
    /// nothing writes them while the twin runs.
    pub unsafe fn get(self, memory: &dyn TwinMemory) -> Result<&[T], TwinFault> {
        let first = self.first(memory)?;
        // SAFETY: the simulator answers for as many elements at `first`, aligned as device memory is
        // (256 bytes) and alive while `memory` is borrowed; the caller, for nobody writing there.
        Ok(unsafe { std::slice::from_raw_parts(first.as_ptr(), self.shape.len()) })
    }
}

impl<T: Pod> TwinSliceMut<T> {
    /// The elements.
    ///
    /// # Errors
    ///
    /// As [`TwinSlice::get`].
    ///
    /// # Safety
    ///
    /// Called inside the twin of the launch that captured it, which declared the elements as written,
    /// and as none of another argument; nothing else touches them while the twin runs.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn get(self, memory: &dyn TwinMemory) -> Result<&mut [T], TwinFault> {
        let first = self.first(memory)?;
        // SAFETY: as in `TwinSlice::get`; the caller answers for nobody else touching the elements.
        Ok(unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), self.shape.len()) })
    }
}

impl<T: Pod> TwinTile<T> {
    /// The elements.
    ///
    /// # Errors
    ///
    /// As [`TwinSlice::get`].
    ///
    /// # Safety
    ///
    /// As of [`TwinSlice::get`], for the elements of the rows.
    pub unsafe fn get(self, memory: &dyn TwinMemory) -> Result<TileRef<'_, T>, TwinFault> {
        let first = self.first(memory)?;
        // SAFETY: as in `TwinSlice::get`, of each row; rows do not overlap (`Shape`).
        Ok(unsafe { TileRef::from_raw(first, self.shape.sides()) })
    }
}

impl<T: Pod> TwinTileMut<T> {
    /// The elements.
    ///
    /// # Errors
    ///
    /// As [`TwinSlice::get`].
    ///
    /// # Safety
    ///
    /// As of [`TwinSliceMut::get`], for the elements of the rows.
    pub unsafe fn get(self, memory: &dyn TwinMemory) -> Result<TileMut<'_, T>, TwinFault> {
        let first = self.first(memory)?;
        // SAFETY: as in `TwinSliceMut::get`, of each row; rows do not overlap (`Shape`).
        Ok(unsafe { TileMut::from_raw(first, self.shape.sides()) })
    }
}
