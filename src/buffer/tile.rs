//! Borrowed memory in rows: a row-major matrix, or a part of one.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;

use bytemuck::Pod;

use super::allocation::Allocation;
use super::device_buffer::DeviceBuffer;
use super::each::{
    for_device_slices, for_device_slices_mut, for_device_tiles, for_device_tiles_mut,
    for_host_slices, for_host_slices_mut, for_host_tiles, for_host_tiles_mut,
};
use super::host_buffer::HostBuffer;
use super::part::{DevicePart, HostPart};
use super::pieces::Pieces;
use super::pinned::Pinned;
use super::shape::Cut;
use super::shared::SharedBuffer;
use super::store::Place;
use super::view::{DeviceSlice, DeviceSliceMut, HostSlice, HostSliceMut, view};
use crate::device::Device;
use crate::error::Result;

macro_rules! tile {
    ($(#[$doc:meta])* $name:ident of $memory:ty as $marker:ty) => {
        view! { $(#[$doc])* $name of $memory as $marker }

        impl<T> $name<'_, T> {
            /// How many rows there are.
            pub fn rows(&self) -> usize {
                self.place.shape().rows()
            }

            /// Elements of a row.
            pub fn columns(&self) -> usize {
                self.place.shape().columns()
            }

            /// Elements from the start of a row to that of the next: the columns of the matrix that
            /// this is a part of.
            pub fn stride(&self) -> usize {
                self.place.shape().stride()
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
                    .field("start", &self.place.shape().start())
                    .field("rows", &self.rows())
                    .field("columns", &self.columns())
                    .field("stride", &self.stride())
                    .finish_non_exhaustive()
            }
        }
    };
}

tile! {
    /// Rows of elements in device memory, to read: a row-major matrix, some of its columns, or a tile
    /// of it.
    ///
    /// Made by [`DeviceBuffer::rows_of`]. An operation that takes it is ordered with those that touch
    /// the same elements: one column is not ordered with another, though their bytes are interleaved.
    ///
    /// ```
    /// # fn f(x: headwater::DeviceBuffer<f32>, mut out: headwater::HostBuffer<f32>) -> headwater::Result<()> {
    /// let matrix = x.rows_of(64)?; // of 64 columns
    /// for (j, mut row) in out.chunks_mut(matrix.rows())?.enumerate() {
    ///     matrix.column(j)?.copy_to(&mut row)?; // transposed: one `cuMemcpy2DAsync` each
    /// }
    /// # Ok(())
    /// # }
    /// ```
    DeviceTile of Allocation as &'a [T]
}

tile! {
    /// Rows of elements in device memory, to read and write: an exclusive borrow of these elements, and
    /// not of what is between them.
    ///
    /// Made by [`DeviceBuffer::rows_of_mut`].
    DeviceTileMut of Allocation as &'a mut [T]
}

tile! {
    /// Rows of elements in pinned memory, to read: [`DeviceTile`] on the host.
    ///
    /// Made by [`HostBuffer::rows_of`].
    HostTile of Pinned as &'a [T]
}

tile! {
    /// Rows of elements in pinned memory, to read and write: [`DeviceTileMut`] on the host. The device
    /// may copy to or from some columns while the host has a guard of others.
    ///
    /// Made by [`HostBuffer::rows_of_mut`].
    HostTileMut of Pinned as &'a mut [T]
}

impl<T> Clone for DeviceTile<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DeviceTile<'_, T> {}

impl<T> Clone for HostTile<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for HostTile<'_, T> {}

macro_rules! rows_of {
    ($tile:ident; $([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> $type {
            /// All of it as a row-major matrix of so many columns, to read.
            ///
            /// # Errors
            ///
            /// [`NotRows`](crate::Error::NotRows): the length is not a multiple of `columns`, or that
            /// is 0.
            pub fn rows_of(&self, columns: usize) -> Result<$tile<$borrow, T>> {
                let place = self.place();
                Ok($tile::new(place.with(place.shape().rows_of(columns)?)))
            }
        }
    )+};
}

macro_rules! rows_of_mut {
    ($tile:ident; $([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> $type {
            /// All of it as a row-major matrix of so many columns, to read and write.
            ///
            /// # Errors
            ///
            /// [`NotRows`](crate::Error::NotRows): the length is not a multiple of `columns`, or that
            /// is 0.
            pub fn rows_of_mut(&mut self, columns: usize) -> Result<$tile<$borrow, T>> {
                let place = self.place();
                Ok($tile::new(place.with(place.shape().rows_of(columns)?)))
            }
        }
    )+};
}

/// What can be read of everything that is in rows.
macro_rules! read_in_rows {
    ($tile:ident, $slice:ident; $([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> $type {
            /// All of it, to read.
            pub fn as_tile(&self) -> $tile<$borrow, T> {
                $tile::new(self.place())
            }

            /// The elements where a range of rows and one of columns meet, to read.
            ///
            /// # Errors
            ///
            /// [`OutOfRange`](crate::Error::OutOfRange), by rows or by columns.
            pub fn tile(
                &self,
                rows: impl RangeBounds<usize>,
                columns: impl RangeBounds<usize>,
            ) -> Result<$tile<$borrow, T>> {
                Ok($tile::new(self.place().tile(rows, columns)?))
            }

            /// The row of that index, which is in one piece, to read.
            ///
            /// # Errors
            ///
            /// [`OutOfRange`](crate::Error::OutOfRange).
            pub fn row(&self, row: usize) -> Result<$slice<$borrow, T>> {
                let place = self.place();
                Ok($slice::new(place.with(place.shape().row(row)?)))
            }

            /// The column of that index, to read.
            ///
            /// # Errors
            ///
            /// [`OutOfRange`](crate::Error::OutOfRange).
            pub fn column(&self, column: usize) -> Result<$tile<$borrow, T>> {
                let place = self.place();
                Ok($tile::new(place.with(place.shape().column(column)?)))
            }

            /// Pieces of `height` rows and `width` columns each, row after row of them, to read; those
            /// at the far ends may have less.
            ///
            /// # Errors
            ///
            /// [`EmptyPieces`](crate::Error::EmptyPieces): one of the two is 0.
            pub fn tiles(&self, height: usize, width: usize) -> Result<Pieces<$tile<$borrow, T>>> {
                let whole = self.as_tile();
                let cut = Cut::new(whole.place.shape(), height, width)?;
                Ok(Pieces::new(whole, cut, |whole, shape| $tile::new(whole.place.with(shape))))
            }
        }
    )+};
}

/// What can be written of everything that is in rows.
macro_rules! write_in_rows {
    ($tile:ident, $slice:ident; $([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> $type {
            /// All of it, to read and write.
            pub fn as_tile_mut(&mut self) -> $tile<$borrow, T> {
                $tile::new(self.place())
            }

            /// The elements where a range of rows and one of columns meet, to read and write.
            ///
            /// # Errors
            ///
            /// [`OutOfRange`](crate::Error::OutOfRange), by rows or by columns.
            pub fn tile_mut(
                &mut self,
                rows: impl RangeBounds<usize>,
                columns: impl RangeBounds<usize>,
            ) -> Result<$tile<$borrow, T>> {
                Ok($tile::new(self.place().tile(rows, columns)?))
            }

            /// The row of that index, which is in one piece, to read and write.
            ///
            /// # Errors
            ///
            /// [`OutOfRange`](crate::Error::OutOfRange).
            pub fn row_mut(&mut self, row: usize) -> Result<$slice<$borrow, T>> {
                let place = self.place();
                Ok($slice::new(place.with(place.shape().row(row)?)))
            }

            /// The column of that index, to read and write.
            ///
            /// # Errors
            ///
            /// [`OutOfRange`](crate::Error::OutOfRange).
            pub fn column_mut(&mut self, column: usize) -> Result<$tile<$borrow, T>> {
                let place = self.place();
                Ok($tile::new(place.with(place.shape().column(column)?)))
            }

            /// The columns before index `mid` and those from there on, to read and write: what
            /// touches the ones is not ordered with what touches the others.
            ///
            /// # Errors
            ///
            /// [`OutOfRange`](crate::Error::OutOfRange): `mid` is more than there are.
            pub fn split_columns_at_mut(
                &mut self,
                mid: usize,
            ) -> Result<($tile<$borrow, T>, $tile<$borrow, T>)> {
                let place = self.place();
                let (before, after) = (place.tile(.., ..mid)?, place.tile(.., mid..)?);
                Ok(($tile::new(before), $tile::new(after)))
            }

            /// The rows before index `mid` and those from there on, to read and write.
            ///
            /// # Errors
            ///
            /// [`OutOfRange`](crate::Error::OutOfRange): `mid` is more than there are.
            pub fn split_rows_at_mut(
                &mut self,
                mid: usize,
            ) -> Result<($tile<$borrow, T>, $tile<$borrow, T>)> {
                let place = self.place();
                let (before, after) = (place.tile(..mid, ..)?, place.tile(mid.., ..)?);
                Ok(($tile::new(before), $tile::new(after)))
            }

            /// Pieces of `width` columns each, with all rows, to read and write; the last one may have
            /// less.
            ///
            /// # Errors
            ///
            /// [`EmptyPieces`](crate::Error::EmptyPieces): `width` is 0.
            pub fn columns_mut(&mut self, width: usize) -> Result<Pieces<$tile<$borrow, T>>> {
                self.tiles_mut(usize::MAX, width)
            }

            /// Pieces of `height` rows and `width` columns each, row after row of them, to read and
            /// write; those at the far ends may have less.
            ///
            /// # Errors
            ///
            /// [`EmptyPieces`](crate::Error::EmptyPieces): one of the two is 0.
            pub fn tiles_mut(
                &mut self,
                height: usize,
                width: usize,
            ) -> Result<Pieces<$tile<$borrow, T>>> {
                let whole = self.as_tile_mut();
                let cut = Cut::new(whole.place.shape(), height, width)?;
                Ok(Pieces::new(whole, cut, |whole, shape| $tile::new(whole.place.with(shape))))
            }
        }
    )+};
}

for_device_slices!(rows_of! { DeviceTile; });
for_device_slices_mut!(rows_of_mut! { DeviceTileMut; });
for_host_slices!(rows_of! { HostTile; });
for_host_slices_mut!(rows_of_mut! { HostTileMut; });
for_device_tiles!(read_in_rows! { DeviceTile, DeviceSlice; });
for_device_tiles_mut!(write_in_rows! { DeviceTileMut, DeviceSliceMut; });
for_host_tiles!(read_in_rows! { HostTile, HostSlice; });
for_host_tiles_mut!(write_in_rows! { HostTileMut, HostSliceMut; });
