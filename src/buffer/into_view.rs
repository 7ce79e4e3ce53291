//! What kernels take.

use std::sync::Arc;

use bytemuck::Pod;

use super::device_buffer::DeviceBuffer;
use super::part::DevicePart;
use super::shared::SharedBuffer;
use super::tile::{DeviceTile, DeviceTileMut};
use super::view::{DeviceSlice, DeviceSliceMut};

/// What a kernel can read as a `&[T]`: a `&DeviceBuffer<T>`, a [`DeviceSlice`] or a reference to one, a
/// `&DevicePart<T>` or a `&SharedBuffer<T>`, or an `&Arc` of any of these that several tasks share.
#[diagnostic::on_unimplemented(
    message = "a kernel cannot read a `{Self}` as a `&[{T}]`",
    label = "not device memory with elements of `{T}`",
    note = "a kernel reads a `&DeviceBuffer<{T}>`, an `&Arc<DeviceBuffer<{T}>>`, or a slice or part of one; what \
            `upload` returns is a future of one: is an `.await?` missing?"
)]
pub trait IntoDeviceSlice<'a, T> {
    /// The memory, for a call that reads it.
    fn into_device_slice(self) -> DeviceSlice<'a, T>;
}

/// What a kernel can read and write as a `&mut [T]`: a `&mut DeviceBuffer<T>`, or a
/// [`DeviceSliceMut`] or a `&mut` of one or of a [`DevicePart`]. A reference or view that is a variable is moved into the
/// call: write `&mut *x` or `&mut x` to use it again.
#[diagnostic::on_unimplemented(
    message = "a kernel cannot write a `{Self}` as a `&mut [{T}]`",
    label = "not device memory to write, with elements of `{T}`",
    note = "a kernel writes a `&mut DeviceBuffer<{T}>`, or a slice or part of one; what `upload` returns is a \
            future of a `DeviceBuffer`: is an `.await?` missing?"
)]
pub trait IntoDeviceSliceMut<'a, T> {
    /// The memory, for a call that writes it.
    fn into_device_slice_mut(self) -> DeviceSliceMut<'a, T>;
}

macro_rules! into_slice {
    ($($type:ty),+) => {$(
        impl<'a, T: Pod> IntoDeviceSlice<'a, T> for $type {
            fn into_device_slice(self) -> DeviceSlice<'a, T> {
                self.as_slice()
            }
        }
    )+};
}

macro_rules! into_slice_mut {
    ($($type:ty),+) => {$(
        impl<'a, T: Pod> IntoDeviceSliceMut<'a, T> for $type {
            fn into_device_slice_mut(self) -> DeviceSliceMut<'a, T> {
                self.as_slice_mut()
            }
        }
    )+};
}

into_slice!(
    &'a DeviceBuffer<T>,
    &'a mut DeviceBuffer<T>,
    DeviceSlice<'a, T>,
    &DeviceSlice<'a, T>,
    &'a DeviceSliceMut<'_, T>,
    &'a mut DeviceSliceMut<'_, T>,
    &'a DevicePart<T>,
    &'a mut DevicePart<T>,
    &'a SharedBuffer<T>,
    // One by one: of an `Arc` of whatever can be read, the compiler would look for ever.
    &'a Arc<DeviceBuffer<T>>,
    &Arc<DeviceSlice<'a, T>>,
    &'a Arc<DeviceSliceMut<'_, T>>,
    &'a Arc<DevicePart<T>>,
    &'a Arc<SharedBuffer<T>>
);
into_slice_mut!(&'a mut DeviceBuffer<T>, &'a mut DeviceSliceMut<'_, T>, &'a mut DevicePart<T>);

impl<'a, T: Pod> IntoDeviceSlice<'a, T> for DeviceSliceMut<'a, T> {
    fn into_device_slice(self) -> DeviceSlice<'a, T> {
        DeviceSlice::new(self.into_place())
    }
}

impl<'a, T> IntoDeviceSliceMut<'a, T> for DeviceSliceMut<'a, T> {
    fn into_device_slice_mut(self) -> DeviceSliceMut<'a, T> {
        self
    }
}

/// What a kernel can read as a `TileRef<'_, T>`: a [`DeviceTile`] or a reference to one, or
/// an `&Arc` of one. A buffer is no matrix before [`as_matrix`](DeviceBuffer::as_matrix) says of how many columns.
#[diagnostic::on_unimplemented(
    message = "a kernel cannot read a `{Self}` as a matrix of `{T}`s",
    label = "not device memory in rows, with elements of `{T}`",
    note = "a kernel reads a `DeviceTile<{T}>`, such as `x.as_matrix(columns)?` or a column or tile of that"
)]
pub trait IntoDeviceTile<'a, T> {
    /// The memory, for a call that reads it.
    fn into_device_tile(self) -> DeviceTile<'a, T>;
}

/// What a kernel can read and write as a `TileMut<'_, T>`: a [`DeviceTileMut`] or a `&mut` of one. One
/// that is a variable is moved into the call: write `&mut x` to use it again.
#[diagnostic::on_unimplemented(
    message = "a kernel cannot write a `{Self}` as a matrix of `{T}`s",
    label = "not device memory in rows to write, with elements of `{T}`",
    note = "a kernel writes a `DeviceTileMut<{T}>`, such as `x.as_matrix_mut(columns)?` or a column or tile \
            of that"
)]
pub trait IntoDeviceTileMut<'a, T> {
    /// The memory, for a call that writes it.
    fn into_device_tile_mut(self) -> DeviceTileMut<'a, T>;
}

macro_rules! into_tile {
    ($($type:ty),+) => {$(
        impl<'a, T: Pod> IntoDeviceTile<'a, T> for $type {
            fn into_device_tile(self) -> DeviceTile<'a, T> {
                self.as_tile()
            }
        }
    )+};
}

into_tile!(
    DeviceTile<'a, T>,
    &DeviceTile<'a, T>,
    &'a DeviceTileMut<'_, T>,
    &'a mut DeviceTileMut<'_, T>,
    &Arc<DeviceTile<'a, T>>,
    &'a Arc<DeviceTileMut<'_, T>>
);

impl<'a, T: Pod> IntoDeviceTile<'a, T> for DeviceTileMut<'a, T> {
    fn into_device_tile(self) -> DeviceTile<'a, T> {
        DeviceTile::new(self.into_place())
    }
}

impl<'a, T> IntoDeviceTileMut<'a, T> for DeviceTileMut<'a, T> {
    fn into_device_tile_mut(self) -> DeviceTileMut<'a, T> {
        self
    }
}

impl<'a, T: Pod> IntoDeviceTileMut<'a, T> for &'a mut DeviceTileMut<'_, T> {
    fn into_device_tile_mut(self) -> DeviceTileMut<'a, T> {
        self.as_tile_mut()
    }
}
