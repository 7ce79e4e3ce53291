//! Borrowed memory in rows: a row-major matrix, or a part of one.
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
    for_device_slices, for_device_slices_mut, for_device_tiles, for_device_tiles_mut,
    for_host_slices, for_host_slices_mut, for_host_tiles, for_host_tiles_mut,
};
use super::host_buffer::HostBuffer;
use super::part::{DevicePart, HostPart};
use super::pieces::Pieces;
use super::pinned::Pinned;
use super::shape::{Cut, Shape};
use super::shared::SharedBuffer;
use super::store::Place;
use super::view::{DeviceSlice, DeviceSliceMut, HostSlice, HostSliceMut, into_place, view};
use crate::device::Device;
use crate::error::Result;

macro_rules! tile {
    ($(#[$doc:meta])* $name:ident of $memory:ident as $borrow:tt) => {
        view! { $(#[$doc])* $name of Shape in $memory as $borrow }

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
                    .field("first_byte", &self.place.offset())
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
    /// Made by [`DeviceBuffer::as_matrix`]. An operation that takes it is ordered with those that touch
    /// the same elements: one column is not ordered with another, though their bytes are interleaved.
    ///
    /// ```
    /// # fn f(x: headwater::DeviceBuffer<f32>, mut out: headwater::HostBuffer<f32>) -> headwater::Result<()> {
    /// let matrix = x.as_matrix(64)?; // 64 columns
    /// for (j, mut row) in out.chunks_mut(matrix.rows())?.enumerate() {
    ///     matrix.column(j)?.copy_to(&mut row)?; // transposed: one `cuMemcpy2DAsync` each
    /// }
    /// # Ok(())
    /// # }
    /// ```
    DeviceTile of Allocation as shared
}

tile! {
    /// Rows of elements in device memory, to read and write: an exclusive borrow of these elements, and
    /// not of what is between them.
    ///
    /// Made by [`DeviceBuffer::as_matrix_mut`].
    ///
    /// Columns of one matrix, each on a stream of its own. They borrow the matrix, so they cannot go to
    /// tasks that are spawned (parts of a buffer can: [`DeviceBuffer::into_parts`]); futures that run
    /// in one task can have them:
    ///
    /// ```
    /// # use futures::future::try_join_all;
    /// # async fn f(device: &headwater::Device, x: &mut headwater::DeviceBuffer<f32>) -> headwater::Result<()> {
    /// let mut matrix = x.as_matrix_mut(64)?;
    /// let columns = matrix.column_chunks_mut(1)?.enumerate();
    /// let fills = columns.map(|(j, mut column)| {
    ///     device.scope(async move { column.fill(j as f32)?.await })
    /// });
    /// try_join_all(fills).await?;
    /// # Ok(())
    /// # }
    /// ```
    DeviceTileMut of Allocation as exclusive
}

tile! {
    /// Rows of elements in pinned memory, to read: [`DeviceTile`] on the host.
    ///
    /// Made by [`HostBuffer::as_matrix`].
    HostTile of Pinned as shared
}

tile! {
    /// Rows of elements in pinned memory, to read and write: [`DeviceTileMut`] on the host. The device
    /// may copy to or from some columns while the host has a guard of others.
    ///
    /// Made by [`HostBuffer::as_matrix_mut`].
    HostTileMut of Pinned as exclusive
}

into_place!(DeviceTileMut of Allocation, HostTileMut of Pinned);

macro_rules! as_matrix {
    ($tile:ident; $([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> $type {
            /// All of it as a row-major matrix of so many columns, to read.
            ///
            /// # Errors
            ///
            /// [`NotRows`](crate::Error::NotRows): the length is not a multiple of `columns`, or that
            /// is 0.
            pub fn as_matrix(&self, columns: usize) -> Result<$tile<$borrow, T>> {
                let place = self.place();
                Ok($tile::new(place.with(place.shape().as_matrix(columns)?)))
            }
        }
    )+};
}

macro_rules! as_matrix_mut {
    ($tile:ident; $([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> $type {
            /// All of it as a row-major matrix of so many columns, to read and write.
            ///
            /// # Errors
            ///
            /// [`NotRows`](crate::Error::NotRows): the length is not a multiple of `columns`, or that
            /// is 0.
            pub fn as_matrix_mut(&mut self, columns: usize) -> Result<$tile<$borrow, T>> {
                let place = self.place();
                let place = place.with(place.shape().as_matrix(columns)?);
                // SAFETY: `self` has its elements alone, and is borrowed exclusively for as long.
                Ok(unsafe { $tile::new(place) })
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

            /// The columns before index `mid` and those from there on, to read.
            ///
            /// # Errors
            ///
            /// [`OutOfRange`](crate::Error::OutOfRange): `mid` is more than there are.
            pub fn split_columns_at(
                &self,
                mid: usize,
            ) -> Result<($tile<$borrow, T>, $tile<$borrow, T>)> {
                Ok((self.tile(.., ..mid)?, self.tile(.., mid..)?))
            }

            /// The rows before index `mid` and those from there on, to read.
            ///
            /// # Errors
            ///
            /// [`OutOfRange`](crate::Error::OutOfRange): `mid` is more than there are.
            pub fn split_rows_at(
                &self,
                mid: usize,
            ) -> Result<($tile<$borrow, T>, $tile<$borrow, T>)> {
                Ok((self.tile(..mid, ..)?, self.tile(mid.., ..)?))
            }

            /// Pieces of `width` columns each, with all rows, to read; the last one may have less.
            ///
            /// # Errors
            ///
            /// [`EmptyPieces`](crate::Error::EmptyPieces): `width` is 0.
            pub fn column_chunks(&self, width: usize) -> Result<Pieces<$tile<$borrow, T>>> {
                self.tiles(usize::MAX, width)
            }

            /// Pieces of `height` rows each, with all columns, to read; the last one may have less.
            ///
            /// # Errors
            ///
            /// [`EmptyPieces`](crate::Error::EmptyPieces): `height` is 0.
            pub fn row_chunks(&self, height: usize) -> Result<Pieces<$tile<$borrow, T>>> {
                self.tiles(height, usize::MAX)
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
                // SAFETY: the cut is of this view.
                Ok(unsafe {
                    Pieces::new(whole, cut, |whole, shape| $tile::new(whole.place.with(shape)))
                })
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
                // SAFETY: `self` has its elements alone, and is borrowed exclusively for as long.
                unsafe { $tile::new(self.place()) }
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
                let place = self.place().tile(rows, columns)?;
                // SAFETY: as for `as_tile_mut`, of some of the elements.
                Ok(unsafe { $tile::new(place) })
            }

            /// The row of that index, which is in one piece, to read and write.
            ///
            /// # Errors
            ///
            /// [`OutOfRange`](crate::Error::OutOfRange).
            pub fn row_mut(&mut self, row: usize) -> Result<$slice<$borrow, T>> {
                let place = self.place();
                let place = place.with(place.shape().row(row)?);
                // SAFETY: as for `as_tile_mut`, of some of the elements.
                Ok(unsafe { $slice::new(place) })
            }

            /// The column of that index, to read and write.
            ///
            /// # Errors
            ///
            /// [`OutOfRange`](crate::Error::OutOfRange).
            pub fn column_mut(&mut self, column: usize) -> Result<$tile<$borrow, T>> {
                let place = self.place();
                let place = place.with(place.shape().column(column)?);
                // SAFETY: as for `as_tile_mut`, of some of the elements.
                Ok(unsafe { $tile::new(place) })
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
                // SAFETY: as for `as_tile_mut`; no element is in both.
                Ok(unsafe { ($tile::new(before), $tile::new(after)) })
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
                // SAFETY: as for `as_tile_mut`; no element is in both.
                Ok(unsafe { ($tile::new(before), $tile::new(after)) })
            }

            /// Pieces of `width` columns each, with all rows, to read and write; the last one may have
            /// less.
            ///
            /// # Errors
            ///
            /// [`EmptyPieces`](crate::Error::EmptyPieces): `width` is 0.
            pub fn column_chunks_mut(&mut self, width: usize) -> Result<Pieces<$tile<$borrow, T>>> {
                self.tiles_mut(usize::MAX, width)
            }

            /// Pieces of `height` rows each, with all columns, to read and write; the last one may
            /// have less.
            ///
            /// # Errors
            ///
            /// [`EmptyPieces`](crate::Error::EmptyPieces): `height` is 0.
            pub fn row_chunks_mut(&mut self, height: usize) -> Result<Pieces<$tile<$borrow, T>>> {
                self.tiles_mut(height, usize::MAX)
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
                // SAFETY: the cut is of this view, which is given away; nobody else gets a piece of it.
                Ok(unsafe {
                    Pieces::new(whole, cut, |whole, shape| $tile::new(whole.place.with(shape)))
                })
            }
        }
    )+};
}

for_device_slices!(as_matrix! { DeviceTile; });
for_device_slices_mut!(as_matrix_mut! { DeviceTileMut; });
for_host_slices!(as_matrix! { HostTile; });
for_host_slices_mut!(as_matrix_mut! { HostTileMut; });
for_device_tiles!(read_in_rows! { DeviceTile, DeviceSlice; });
for_device_tiles_mut!(write_in_rows! { DeviceTileMut, DeviceSliceMut; });
for_host_tiles!(read_in_rows! { HostTile, HostSlice; });
for_host_tiles_mut!(write_in_rows! { HostTileMut, HostSliceMut; });
