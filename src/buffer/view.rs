//! Borrowed device memory, as operations take it.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::Pod;

use super::allocation::Allocation;
use super::device_buffer::DeviceBuffer;
use super::hazard::{Access, Mode};
use super::region::Region;
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
                (tracked, Access { region: Region::of_bytes(0..self.bytes()), mode })
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
    /// Made by [`IntoDeviceSlice`]. It is the whole buffer; parts of one are still to come.
    DeviceSlice, &'a [T]
}

view! {
    /// Device memory that an operation writes: an exclusive borrow of a [`DeviceBuffer`] for the
    /// call.
    ///
    /// Made by [`IntoDeviceSliceMut`].
    DeviceSliceMut, &'a mut [T]
}

/// What a kernel can read as a `&[T]`: a `&DeviceBuffer<T>`, or an `&Arc<DeviceBuffer<T>>` that
/// several tasks share.
#[diagnostic::on_unimplemented(
    message = "a kernel cannot read a `{Self}` as a `&[{T}]`",
    label = "not device memory with elements of `{T}`",
    note = "a kernel reads a `&DeviceBuffer<{T}>` or an `&Arc<DeviceBuffer<{T}>>`; what `upload` \
            returns is a future of one: is an `.await?` missing?"
)]
pub trait IntoDeviceSlice<'a, T> {
    /// The memory, for a call that reads it.
    fn into_device_slice(self) -> DeviceSlice<'a, T>;
}

/// What a kernel can read and write as a `&mut [T]`: a `&mut DeviceBuffer<T>`. One that is a variable
/// is moved into the call: write `&mut *x` to use it again.
#[diagnostic::on_unimplemented(
    message = "a kernel cannot write a `{Self}` as a `&mut [{T}]`",
    label = "not device memory to write, with elements of `{T}`",
    note = "a kernel writes a `&mut DeviceBuffer<{T}>`; what `upload` returns is a future of a \
            `DeviceBuffer`: is an `.await?` missing?"
)]
pub trait IntoDeviceSliceMut<'a, T> {
    /// The memory, for a call that writes it.
    fn into_device_slice_mut(self) -> DeviceSliceMut<'a, T>;
}

impl<'a, T: Pod> IntoDeviceSlice<'a, T> for &'a DeviceBuffer<T> {
    fn into_device_slice(self) -> DeviceSlice<'a, T> {
        self.as_slice()
    }
}

impl<'a, T: Pod> IntoDeviceSlice<'a, T> for &'a mut DeviceBuffer<T> {
    fn into_device_slice(self) -> DeviceSlice<'a, T> {
        self.as_slice()
    }
}

impl<'a, T: Pod> IntoDeviceSlice<'a, T> for &'a Arc<DeviceBuffer<T>> {
    fn into_device_slice(self) -> DeviceSlice<'a, T> {
        self.as_slice()
    }
}

impl<'a, T> IntoDeviceSlice<'a, T> for DeviceSlice<'a, T> {
    fn into_device_slice(self) -> DeviceSlice<'a, T> {
        self
    }
}

impl<'a, T: Pod> IntoDeviceSliceMut<'a, T> for &'a mut DeviceBuffer<T> {
    fn into_device_slice_mut(self) -> DeviceSliceMut<'a, T> {
        self.as_slice_mut()
    }
}

impl<'a, T> IntoDeviceSliceMut<'a, T> for DeviceSliceMut<'a, T> {
    fn into_device_slice_mut(self) -> DeviceSliceMut<'a, T> {
        self
    }
}
