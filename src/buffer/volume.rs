//! Borrowed memory in planes: a volume, or a block of one.
//!
//! Exclusive views are made as in `view`.
#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;

use bytemuck::Pod;

use super::allocation::Allocation;
use super::device_buffer::DeviceBuffer;
use super::each::{
    for_device_slices, for_device_slices_mut, for_device_volumes, for_device_volumes_mut,
    for_host_slices, for_host_slices_mut, for_host_volumes, for_host_volumes_mut,
};
use super::host_buffer::HostBuffer;
use super::part::{DevicePart, HostPart};
use super::pinned::Pinned;
use super::planes::Planes;
use super::shape::Extent;
use super::shared::SharedBuffer;
use super::store::Place;
use super::tile::{DeviceTile, DeviceTileMut, HostTile, HostTileMut};
use super::view::{DeviceSlice, DeviceSliceMut, HostSlice, HostSliceMut, view};
use crate::device::Device;
use crate::error::Result;

macro_rules! volume {
    ($(#[$doc:meta])* $name:ident of $memory:ident as $borrow:tt) => {
        view! { $(#[$doc])* $name of Planes in $memory as $borrow }

        impl<T> $name<'_, T> {
            /// How many planes there are.
            pub fn planes(&self) -> usize {
                self.place.shape().sides()[0]
            }

            /// How many rows each plane has.
            pub fn rows(&self) -> usize {
                self.place.shape().sides()[1]
            }

            /// Elements of a row.
            pub fn columns(&self) -> usize {
                self.place.shape().sides()[2]
            }

            /// Whether there are no elements.
            pub fn is_empty(&self) -> bool {
                self.place.shape().is_empty()
            }
        }

        impl<T> fmt::Debug for $name<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("buffer", &self.place.store().number())
                    .field("first_byte", &self.place.offset())
                    .field("planes", &self.planes())
                    .field("rows", &self.rows())
                    .field("columns", &self.columns())
                    .finish_non_exhaustive()
            }
        }
    };
}

volume! {
    /// Planes of rows of elements in device memory, to read: a volume, or a block of one.
    ///
    /// Made by [`DeviceBuffer::as_volume`]. A copy of it is one call of the driver, and ordered with what
    /// touches the same elements: one block is not ordered with another, though their bytes are
    /// interleaved. A [plane](DeviceVolume::plane) is a matrix, for kernels and whatever else takes one.
    ///
    /// ```
    /// # use headwater::{DeviceBuffer, HostBuffer, Result};
    /// /// The inside of a grid, without the cells at its six sides.
    /// fn inside(grid: &DeviceBuffer<f32>, n: usize, out: &mut HostBuffer<f32>) -> Result<()> {
    ///     let grid = grid.as_volume(n, n)?; // planes of n rows of n
    ///     let inside = grid.block(1..grid.planes() - 1, 1..n - 1, 1..n - 1)?;
    ///     inside.copy_to(out)?; // packed: one `cuMemcpy3DAsync`
    ///     Ok(())
    /// }
    /// # headwater::block_on(async {
    /// # let device = headwater::Device::simulated()?;
    /// # let (grid, mut out) = (device.zeros(64)?, device.alloc_host(8)?);
    /// # inside(&grid, 4, &mut out)?;
    /// # assert_eq!(out.read().await?[..], [0.0; 8]);
    /// # Ok::<_, headwater::Error>(())
    /// # }).unwrap();
    /// ```
    DeviceVolume of Allocation as shared
}

volume! {
    /// Planes of rows of elements in device memory, to read and write: an exclusive borrow of these
    /// elements, and not of what is between them.
    ///
    /// Made by [`DeviceBuffer::as_volume_mut`].
    DeviceVolumeMut of Allocation as exclusive
}

volume! {
    /// Planes of rows of elements in pinned memory, to read: [`DeviceVolume`] on the host.
    ///
    /// Made by [`HostBuffer::as_volume`]. The host reads a [plane](HostVolume::plane) at a time.
    HostVolume of Pinned as shared
}

volume! {
    /// Planes of rows of elements in pinned memory, to read and write: [`DeviceVolumeMut`] on the host.
    ///
    /// Made by [`HostBuffer::as_volume_mut`]. The host writes a [plane](HostVolumeMut::plane_mut) at a
    /// time.
    HostVolumeMut of Pinned as exclusive
}

macro_rules! as_volume {
    ($volume:ident; $([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> $type {
            /// All of it as a volume, plane after plane of so many rows of so many columns, to read.
            ///
            /// # Errors
            ///
            /// [`NotPlanes`](crate::Error::NotPlanes): the length is not a multiple of `rows * columns`,
            /// or that is 0 or more than can be addressed.
            pub fn as_volume(&self, rows: usize, columns: usize) -> Result<$volume<$borrow, T>> {
                let place = self.place();
                Ok($volume::new(place.with(place.shape().as_volume(rows, columns)?)))
            }
        }
    )+};
}

macro_rules! as_volume_mut {
    ($volume:ident; $([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> $type {
            /// All of it as a volume, plane after plane of so many rows of so many columns, to read and
            /// write.
            ///
            /// # Errors
            ///
            /// [`NotPlanes`](crate::Error::NotPlanes): the length is not a multiple of `rows * columns`,
            /// or that is 0 or more than can be addressed.
            pub fn as_volume_mut(
                &mut self,
                rows: usize,
                columns: usize,
            ) -> Result<$volume<$borrow, T>> {
                let place = self.place();
                let place = place.with(place.shape().as_volume(rows, columns)?);
                // SAFETY: `self` has its elements alone, and is borrowed exclusively for as long.
                Ok(unsafe { $volume::new(place) })
            }
        }
    )+};
}

/// What can be read of everything that is in planes.
macro_rules! read_in_planes {
    ($volume:ident, $tile:ident; $([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> $type {
            /// All of it, to read.
            pub fn as_block(&self) -> $volume<$borrow, T> {
                $volume::new(self.place())
            }

            /// The elements where a range of planes, one of rows and one of columns meet, to read.
            ///
            /// # Errors
            ///
            /// [`OutOfRange`](crate::Error::OutOfRange), by planes, by rows or by columns.
            pub fn block(
                &self,
                planes: impl RangeBounds<usize>,
                rows: impl RangeBounds<usize>,
                columns: impl RangeBounds<usize>,
            ) -> Result<$volume<$borrow, T>> {
                let place = self.place();
                Ok($volume::new(place.with(place.shape().block(planes, rows, columns)?)))
            }

            /// The plane of that index, a matrix, to read.
            ///
            /// # Errors
            ///
            /// [`OutOfRange`](crate::Error::OutOfRange).
            pub fn plane(&self, plane: usize) -> Result<$tile<$borrow, T>> {
                let place = self.place();
                Ok($tile::new(place.with(place.shape().plane(plane)?)))
            }
        }
    )+};
}

/// What can be written of everything that is in planes.
macro_rules! write_in_planes {
    ($volume:ident, $tile:ident; $([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> $type {
            /// All of it, to read and write.
            pub fn as_block_mut(&mut self) -> $volume<$borrow, T> {
                // SAFETY: `self` has its elements alone, and is borrowed exclusively for as long.
                unsafe { $volume::new(self.place()) }
            }

            /// The elements where a range of planes, one of rows and one of columns meet, to read and
            /// write.
            ///
            /// # Errors
            ///
            /// [`OutOfRange`](crate::Error::OutOfRange), by planes, by rows or by columns.
            pub fn block_mut(
                &mut self,
                planes: impl RangeBounds<usize>,
                rows: impl RangeBounds<usize>,
                columns: impl RangeBounds<usize>,
            ) -> Result<$volume<$borrow, T>> {
                let place = self.place();
                let place = place.with(place.shape().block(planes, rows, columns)?);
                // SAFETY: as for `as_block_mut`, of some of the elements.
                Ok(unsafe { $volume::new(place) })
            }

            /// The plane of that index, a matrix, to read and write.
            ///
            /// # Errors
            ///
            /// [`OutOfRange`](crate::Error::OutOfRange).
            pub fn plane_mut(&mut self, plane: usize) -> Result<$tile<$borrow, T>> {
                let place = self.place();
                let place = place.with(place.shape().plane(plane)?);
                // SAFETY: as for `as_block_mut`, of some of the elements.
                Ok(unsafe { $tile::new(place) })
            }

            /// The planes before index `mid` and those from there on, to read and write: what
            /// touches the ones is not ordered with what touches the others.
            ///
            /// # Errors
            ///
            /// [`OutOfRange`](crate::Error::OutOfRange): `mid` is more than there are.
            pub fn split_planes_at_mut(
                &mut self,
                mid: usize,
            ) -> Result<($volume<$borrow, T>, $volume<$borrow, T>)> {
                let place = self.place();
                let before = place.with(place.shape().block(..mid, .., ..)?);
                let after = place.with(place.shape().block(mid.., .., ..)?);
                // SAFETY: as for `as_block_mut`; no element is in both.
                Ok(unsafe { ($volume::new(before), $volume::new(after)) })
            }
        }
    )+};
}

for_device_slices!(as_volume! { DeviceVolume; });
for_device_slices_mut!(as_volume_mut! { DeviceVolumeMut; });
for_host_slices!(as_volume! { HostVolume; });
for_host_slices_mut!(as_volume_mut! { HostVolumeMut; });
for_device_volumes!(read_in_planes! { DeviceVolume, DeviceTile; });
for_device_volumes_mut!(write_in_planes! { DeviceVolumeMut, DeviceTileMut; });
for_host_volumes!(read_in_planes! { HostVolume, HostTile; });
for_host_volumes_mut!(write_in_planes! { HostVolumeMut, HostTileMut; });
