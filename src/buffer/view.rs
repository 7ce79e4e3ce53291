//! Borrowed memory in one piece.
//!
//! An exclusive view is made by unsafe functions only: here, and in `tile` of what is in rows. Whoever
//! makes one shows that it has the elements alone; `host_access` says what relies on that.
#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;

use bytemuck::Pod;

use super::allocation::Allocation;
use super::device_buffer::DeviceBuffer;
use super::each::{for_device_slices, for_device_slices_mut, for_host_slices, for_host_slices_mut};
use super::host_buffer::HostBuffer;
use super::part::{DevicePart, HostPart};
use super::pieces::Pieces;
use super::pinned::Pinned;
use super::shape::{Cut, Shape};
use super::shared::SharedBuffer;
use super::store::Place;
use crate::device::Device;
use crate::error::Result;

/// Declares a view: a place of some shape, and the kind of borrow that it is.
macro_rules! view {
    ($(#[$doc:meta])* $name:ident of $shape:ident in $memory:ident as shared) => {
        view! { @either $(#[$doc])* $name of $shape in $memory as &'a [T] }

        impl<'a, T: Pod> $name<'a, T> {
            /// Safe, as a place borrows what it is of for as long as it says, shared.
            pub(super) fn new(place: Place<'a, $memory, $shape>) -> Self {
                $name { place, element: PhantomData }
            }

            pub(crate) fn place(&self) -> Place<'a, $memory, $shape> {
                self.place
            }
        }

        impl<T> Clone for $name<'_, T> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T> Copy for $name<'_, T> {}
    };
    ($(#[$doc:meta])* $name:ident of $shape:ident in $memory:ident as exclusive) => {
        view! { @either $(#[$doc])* $name of $shape in $memory as &'a mut [T] }

        impl<'a, T: Pod> $name<'a, T> {
            /// # Safety
            ///
            /// The elements are borrowed exclusively for `'a`: what they are reached through is not
            /// used meanwhile, and no other view has one of them.
            pub(super) unsafe fn new(place: Place<'a, $memory, $shape>) -> Self {
                $name { place, element: PhantomData }
            }

            /// For no longer than the view is borrowed: a view made of it excludes this one.
            pub(crate) fn place(&self) -> Place<'_, $memory, $shape> {
                self.place
            }
        }
    };
    (@either $(#[$doc:meta])* $name:ident of $shape:ident in $memory:ident as $marker:ty) => {
        $(#[$doc])*
        pub struct $name<'a, T> {
            place: Place<'a, $memory, $shape>,
            element: PhantomData<$marker>,
        }

        impl<T: Pod> $name<'_, T> {
            /// The device whose memory it is, or whose copies it is made for.
            pub fn device(&self) -> Device {
                Device::from_core(self.place.core().clone())
            }
        }
    };
}
pub(super) use view;

/// What an exclusive view is of, for whoever takes the view's place.
macro_rules! into_place {
    ($($name:ident of $memory:ident),+) => {$(
        impl<'a, T> $name<'a, T> {
            pub(super) fn into_place(self) -> Place<'a, $memory> {
                self.place
            }
        }
    )+};
}
pub(super) use into_place;

/// Declares a view of memory in one piece.
macro_rules! slice {
    ($(#[$doc:meta])* $name:ident of $memory:ident as $borrow:tt) => {
        view! { $(#[$doc])* $name of Shape in $memory as $borrow }

        impl<T> $name<'_, T> {
            /// Elements.
            pub fn len(&self) -> usize {
                self.place.shape().len()
            }

            /// Whether there are none.
            pub fn is_empty(&self) -> bool {
                self.place.shape().is_empty()
            }
        }

        impl<T> fmt::Debug for $name<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("buffer", &self.place.store().number())
                    .field("first_byte", &self.place.offset())
                    .field("len", &self.len())
                    .finish_non_exhaustive()
            }
        }
    };
}

slice! {
    /// Elements of device memory, to read: a borrow of a [`DeviceBuffer`] or of a part of one.
    ///
    /// Made by [`DeviceBuffer::slice`] and its like. An operation that takes it is ordered with those
    /// that touch the same elements, and with no others. It borrows: there is no view of memory that
    /// was dropped.
    ///
    /// ```compile_fail,E0505
    /// # fn f(x: headwater::DeviceBuffer<f32>) -> headwater::Result<()> {
    /// let half = x.slice(..8)?;
    /// drop(x);
    /// let _ = half.to_vec();
    /// # Ok(())
    /// # }
    /// ```
    DeviceSlice of Allocation as shared
}

slice! {
    /// Elements of device memory, to read and write: an exclusive borrow of a [`DeviceBuffer`] or of a
    /// part of one.
    ///
    /// Made by [`DeviceBuffer::slice_mut`], [`DeviceBuffer::split_at_mut`] and their like. While it
    /// lives no other view of the same elements does:
    ///
    /// ```compile_fail,E0499
    /// # fn f(mut x: headwater::DeviceBuffer<f32>) -> headwater::Result<()> {
    /// let mut a = x.slice_mut(..8)?;
    /// let mut b = x.slice_mut(4..)?; // could be the same elements
    /// a.fill(0.0)?;
    /// b.fill(1.0)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The compiler cannot see that two ranges are disjoint. `split_at_mut` and `chunks_mut` know it:
    ///
    /// ```
    /// # fn f(mut x: headwater::DeviceBuffer<f32>) -> headwater::Result<()> {
    /// let (mut a, mut b) = x.split_at_mut(8)?;
    /// a.fill(0.0)?;
    /// b.fill(1.0)?; // on another stream it would not wait for the first
    /// # Ok(())
    /// # }
    /// ```
    DeviceSliceMut of Allocation as exclusive
}

slice! {
    /// Elements of pinned memory, to read: a borrow of a [`HostBuffer`] or of a part of one.
    ///
    /// Made by [`HostBuffer::slice`] and its like.
    HostSlice of Pinned as shared
}

slice! {
    /// Elements of pinned memory, to read and write: an exclusive borrow of a [`HostBuffer`] or of a
    /// part of one.
    ///
    /// Made by [`HostBuffer::slice_mut`], [`HostBuffer::chunks_mut`] and their like. The device may
    /// copy to or from one chunk while the host has a guard of another; never of the same:
    ///
    /// ```compile_fail,E0502
    /// # async fn f(y: headwater::DeviceBuffer<f32>, mut out: headwater::HostBuffer<f32>) {
    /// let mut chunk = out.slice_mut(..8).unwrap();
    /// let bytes = chunk.read().await.unwrap();
    /// y.copy_to(&mut chunk).unwrap(); // would write what `bytes` reads
    /// println!("{}", bytes[0]);
    /// # }
    /// ```
    HostSliceMut of Pinned as exclusive
}

into_place!(DeviceSliceMut of Allocation, HostSliceMut of Pinned);

/// What can be read of everything that is in one piece.
macro_rules! read_in_pieces {
    ($slice:ident; $([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> $type {
            /// All of it, to read.
            pub fn as_slice(&self) -> $slice<$borrow, T> {
                $slice::new(self.place())
            }

            /// The elements of a range, to read.
            ///
            /// # Errors
            ///
            /// [`OutOfRange`](crate::Error::OutOfRange): it ends past the end, or before its start.
            pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<$slice<$borrow, T>> {
                Ok($slice::new(self.place().elements(range)?))
            }

            /// The elements before index `mid` and those from there on, to read.
            ///
            /// # Errors
            ///
            /// [`OutOfRange`](crate::Error::OutOfRange): `mid` is more than the length.
            pub fn split_at(
                &self,
                mid: usize,
            ) -> Result<($slice<$borrow, T>, $slice<$borrow, T>)> {
                Ok((self.slice(..mid)?, self.slice(mid..)?))
            }

            /// Pieces of `len` elements each, to read; the last one may have less.
            ///
            /// # Errors
            ///
            /// [`EmptyPieces`](crate::Error::EmptyPieces): `len` is 0.
            pub fn chunks(&self, len: usize) -> Result<Pieces<$slice<$borrow, T>>> {
                let whole = self.as_slice();
                let cut = Cut::new(whole.place.shape(), 1, len)?;
                // SAFETY: the cut is of this view.
                Ok(unsafe {
                    Pieces::new(whole, cut, |whole, shape| $slice::new(whole.place.with(shape)))
                })
            }
        }
    )+};
}

/// What can be written of everything that is in one piece.
macro_rules! write_in_pieces {
    ($slice:ident; $([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> $type {
            /// All of it, to read and write.
            pub fn as_slice_mut(&mut self) -> $slice<$borrow, T> {
                // SAFETY: `self` has its elements alone, and is borrowed exclusively for as long.
                unsafe { $slice::new(self.place()) }
            }

            /// The elements of a range, to read and write.
            ///
            /// # Errors
            ///
            /// [`OutOfRange`](crate::Error::OutOfRange): it ends past the end, or before its start.
            pub fn slice_mut(
                &mut self,
                range: impl RangeBounds<usize>,
            ) -> Result<$slice<$borrow, T>> {
                let place = self.place().elements(range)?;
                // SAFETY: as for `as_slice_mut`, of some of the elements.
                Ok(unsafe { $slice::new(place) })
            }

            /// The elements before index `mid` and those from there on, to read and write: what
            /// touches the ones is not ordered with what touches the others.
            ///
            /// # Errors
            ///
            /// [`OutOfRange`](crate::Error::OutOfRange): `mid` is more than the length.
            pub fn split_at_mut(
                &mut self,
                mid: usize,
            ) -> Result<($slice<$borrow, T>, $slice<$borrow, T>)> {
                let place = self.place();
                let (before, after) = (place.elements(..mid)?, place.elements(mid..)?);
                // SAFETY: as for `as_slice_mut`; no element is in both.
                Ok(unsafe { ($slice::new(before), $slice::new(after)) })
            }

            /// Pieces of `len` elements each, to read and write; the last one may have less.
            ///
            /// # Errors
            ///
            /// [`EmptyPieces`](crate::Error::EmptyPieces): `len` is 0.
            pub fn chunks_mut(&mut self, len: usize) -> Result<Pieces<$slice<$borrow, T>>> {
                let whole = self.as_slice_mut();
                let cut = Cut::new(whole.place.shape(), 1, len)?;
                // SAFETY: the cut is of this view, which is given away; nobody else gets a piece of it.
                Ok(unsafe {
                    Pieces::new(whole, cut, |whole, shape| $slice::new(whole.place.with(shape)))
                })
            }
        }
    )+};
}

for_device_slices!(read_in_pieces! { DeviceSlice; });
for_host_slices!(read_in_pieces! { HostSlice; });
for_device_slices_mut!(write_in_pieces! { DeviceSliceMut; });
for_host_slices_mut!(write_in_pieces! { HostSliceMut; });
