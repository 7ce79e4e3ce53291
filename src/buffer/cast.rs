//! The same bytes as elements of another type.
#![allow(unsafe_code)]

use std::fmt;

use bytemuck::Pod;

use super::device_buffer::DeviceBuffer;
use super::each::{for_device_slices_mut, for_host_slices_mut};
use super::host_buffer::HostBuffer;
use super::part::{DevicePart, HostPart};
use super::shared::SharedBuffer;
use super::view::{DeviceSlice, DeviceSliceMut, HostSlice, HostSliceMut};
use crate::error::{Error, Result};

/// A buffer that is none of elements of another type: given back, with the reason. Where it is of no more
/// use, `map_err(|refused| refused.error)?`.
// No `From` for `Error`: see `NotRejoined`.
#[derive(Debug)]
pub struct NotCast<B> {
    /// As it was given.
    pub buffer: B,
    /// What is wrong.
    pub error: Error,
}

impl<B> fmt::Display for NotCast<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<B: fmt::Debug> std::error::Error for NotCast<B> {}

macro_rules! cast {
    ($slice:ident; $([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> $type {
            /// The same bytes as elements of another type, to read; nothing is done to them. What is
            /// ordered with what goes by bytes, so it is as before.
            ///
            /// Elements of no bytes are as many as before if those were of none either, and none else.
            ///
            /// # Errors
            ///
            /// [`NotElements`](Error::NotElements): the bytes are no whole number of elements of `U`;
            /// [`Misaligned`](Error::Misaligned): they begin where none can be.
            pub fn cast<U: Pod>(&self) -> Result<$slice<$borrow, U>> {
                Ok($slice::new(self.place().cast::<U>()?))
            }
        }
    )+};
}

macro_rules! cast_mut {
    ($slice:ident; $([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> $type {
            /// The same bytes as elements of another type, to read and write; nothing is done to them.
            /// What is ordered with what goes by bytes, so it is as before.
            ///
            /// Elements of no bytes are as many as before if those were of none either, and none else.
            ///
            /// # Errors
            ///
            /// [`NotElements`](Error::NotElements): the bytes are no whole number of elements of `U`;
            /// [`Misaligned`](Error::Misaligned): they begin where none can be.
            pub fn cast_mut<U: Pod>(&mut self) -> Result<$slice<$borrow, U>> {
                let place = self.place().cast::<U>()?;
                // SAFETY: `self` has its bytes alone, and is borrowed exclusively for as long.
                Ok(unsafe { $slice::new(place) })
            }
        }
    )+};
}

macro_rules! cast_buffer {
    ($($buffer:ident)+) => {$(
        impl<T: Pod> $buffer<T> {
            /// The same bytes as elements of another type; nothing is done to them, and whoever uses
            /// them next is ordered after whoever did before.
            ///
            /// Elements of no bytes are as many as before if those were of none either, and none else.
            ///
            /// # Errors
            ///
            /// [`NotElements`](Error::NotElements): the bytes are no whole number of elements of `U`;
            /// [`Misaligned`](Error::Misaligned): they begin where none can be; with the buffer.
            #[expect(clippy::result_large_err, reason = "it is the buffer, as given")]
            pub fn cast<U: Pod>(self) -> Result<$buffer<U>, NotCast<Self>> {
                match self.place().len_as::<U>() {
                    Ok(len) => {
                        let mut store = self.store;
                        (store.len, store.size) = (len, size_of::<U>());
                        Ok($buffer::of_store(store))
                    }
                    Err(error) => Err(NotCast { buffer: self, error }),
                }
            }
        }
    )+};
}

cast_buffer!(DeviceBuffer HostBuffer);

impl<T: Pod> SharedBuffer<T> {
    /// The same bytes as elements of another type; nothing is done to them. Other handles stay what
    /// they are.
    ///
    /// # Errors
    ///
    /// As [`DeviceBuffer::cast`], with the handle.
    pub fn cast<U: Pod>(self) -> Result<SharedBuffer<U>, NotCast<Self>> {
        match self.place().len_as::<U>() {
            Ok(len) => Ok(SharedBuffer::of_store(self.store, len)),
            Err(error) => Err(NotCast { buffer: self, error }),
        }
    }
}

cast! { DeviceSlice;
    ['a, T: Pod] DeviceSlice<'a, T>, 'a;
    [T: Pod] DeviceSliceMut<'_, T>, '_;
    [T: Pod] DevicePart<T>, '_;
}
cast! { HostSlice;
    ['a, T: Pod] HostSlice<'a, T>, 'a;
    [T: Pod] HostSliceMut<'_, T>, '_;
    [T: Pod] HostPart<T>, '_;
}
for_device_slices_mut!(cast_mut! { DeviceSliceMut; });
for_host_slices_mut!(cast_mut! { HostSliceMut; });
