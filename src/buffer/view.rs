//! Borrowed device memory, as operations take it.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::Pod;

use super::allocation::Allocation;
use super::device_buffer::DeviceBuffer;
use super::hazard::{Access, Mode};
use super::tracked::Tracked;
use crate::device::DeviceCore;
use crate::driver::DevicePtr;

/// Where a view lies. What both kinds of view share.
struct Place<'a> {
    /// `None` only where there are no bytes.
    allocation: Option<&'a Allocation>,
    core: &'a Arc<DeviceCore>,
    len: usize,
}

macro_rules! view {
    ($(#[$doc:meta])* $name:ident, $marker:ty) => {
        $(#[$doc])*
        pub struct $name<'a, T> {
            place: Place<'a>,
            element: PhantomData<$marker>,
        }

        impl<'a, T: Pod> $name<'a, T> {
            pub(super) fn new(
                allocation: Option<&'a Allocation>,
                core: &'a Arc<DeviceCore>,
                len: usize,
            ) -> Self {
                $name { place: Place { allocation, core, len }, element: PhantomData }
            }

            /// First byte; null where there are none.
            pub(crate) fn ptr(&self) -> DevicePtr {
                self.place.allocation.map_or(DevicePtr(0), Allocation::ptr)
            }

            pub(crate) fn bytes(&self) -> usize {
                self.place.len * size_of::<T>()
            }

            pub(crate) fn core(&self) -> &'a Arc<DeviceCore> {
                self.place.core
            }

            /// The memory, if there are any bytes, and how it is touched.
            pub(crate) fn access(&self, mode: Mode) -> (Option<&'a Tracked>, Access) {
                let tracked = self.place.allocation.map(Allocation::tracked);
                (tracked, Access { range: 0..self.bytes(), mode })
            }
        }

        impl<T> $name<'_, T> {
            /// Elements.
            pub fn len(&self) -> usize {
                self.place.len
            }

            /// Whether there are none.
            pub fn is_empty(&self) -> bool {
                self.place.len == 0
            }
        }

        impl<T> fmt::Debug for $name<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).field("len", &self.place.len).finish_non_exhaustive()
            }
        }
    };
}

view! {
    /// Device memory that an operation reads: a borrow of a [`DeviceBuffer`] for the call.
    ///
    /// Kernels take `impl Into<DeviceSlice<T>>`: a `&DeviceBuffer<T>` will do, or an
    /// `&Arc<DeviceBuffer<T>>` that several tasks share. It is the whole buffer; parts of one are
    /// still to come.
    DeviceSlice, &'a [T]
}

view! {
    /// Device memory that an operation writes: an exclusive borrow of a [`DeviceBuffer`] for the
    /// call.
    ///
    /// Kernels take `impl Into<DeviceSliceMut<T>>`: a `&mut DeviceBuffer<T>` will do.
    DeviceSliceMut, &'a mut [T]
}

impl<'a, T: Pod> From<&'a DeviceBuffer<T>> for DeviceSlice<'a, T> {
    fn from(buffer: &'a DeviceBuffer<T>) -> Self {
        buffer.as_slice()
    }
}

impl<'a, T: Pod> From<&'a Arc<DeviceBuffer<T>>> for DeviceSlice<'a, T> {
    fn from(buffer: &'a Arc<DeviceBuffer<T>>) -> Self {
        buffer.as_slice()
    }
}

impl<'a, T: Pod> From<&'a mut DeviceBuffer<T>> for DeviceSlice<'a, T> {
    fn from(buffer: &'a mut DeviceBuffer<T>) -> Self {
        buffer.as_slice()
    }
}

impl<'a, T: Pod> From<&'a mut DeviceBuffer<T>> for DeviceSliceMut<'a, T> {
    fn from(buffer: &'a mut DeviceBuffer<T>) -> Self {
        buffer.as_slice_mut()
    }
}
