//! What a twin gets in place of device pointers.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr::NonNull;

use bytemuck::Pod;

use crate::buffer::{DeviceSlice, DeviceSliceMut};
use crate::driver::{DevicePtr, TwinFault, TwinMemory};

/// Where a slice that the kernel reads lies.
#[derive(Clone, Copy, Debug)]
pub struct TwinSlice<T> {
    ptr: DevicePtr,
    len: usize,
    element: PhantomData<T>,
}

/// Where a slice that the kernel writes lies.
#[derive(Debug)]
pub struct TwinSliceMut<T> {
    ptr: DevicePtr,
    len: usize,
    element: PhantomData<T>,
}

/// Captures a slice that the kernel reads.
pub fn twin_slice<T: Pod>(view: &DeviceSlice<'_, T>) -> TwinSlice<T> {
    TwinSlice { ptr: view.place().ptr(), len: view.len(), element: PhantomData }
}

/// Captures a slice that the kernel writes.
pub fn twin_slice_mut<T: Pod>(view: &DeviceSliceMut<'_, T>) -> TwinSliceMut<T> {
    TwinSliceMut { ptr: view.place().ptr(), len: view.len(), element: PhantomData }
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
    /// Called inside the twin of the launch that captured it, which declared the range as read;
    /// nothing writes there while the twin runs.
    pub unsafe fn get(self, memory: &dyn TwinMemory) -> Result<&[T], TwinFault> {
        let first = resolve::<T>(memory, self.ptr, self.len)?;
        // SAFETY: the simulator answers for `len` elements at `first`, aligned as device memory is
        // (256 bytes) and alive while `memory` is borrowed; the caller, for nobody writing there.
        Ok(unsafe { std::slice::from_raw_parts(first.as_ptr(), self.len) })
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
    /// Called inside the twin of the launch that captured it, which declared the range as written
    /// and overlapping no other of its ranges; nothing else touches it while the twin runs.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn get(self, memory: &dyn TwinMemory) -> Result<&mut [T], TwinFault> {
        let first = resolve::<T>(memory, self.ptr, self.len)?;
        // SAFETY: as in `TwinSlice::get`; the caller answers for nobody else touching the range.
        Ok(unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), self.len) })
    }
}

fn resolve<T>(
    memory: &dyn TwinMemory,
    ptr: DevicePtr,
    len: usize,
) -> Result<NonNull<T>, TwinFault> {
    let bytes = len * size_of::<T>();
    if bytes == 0 {
        return Ok(NonNull::dangling());
    }
    memory.resolve(ptr, bytes).map(NonNull::cast).ok_or(TwinFault { ptr, bytes })
}
