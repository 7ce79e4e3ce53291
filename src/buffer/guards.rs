//! The host's view of pinned memory: futures that await it, guards that are it.

use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytemuck::Pod;

use super::each::{for_host_slices, for_host_slices_mut};
use super::host_access::HostAccess;
use super::host_buffer::HostBuffer;
use super::view::{HostSlice, HostSliceMut};
use crate::error::Result;
use crate::reactor::block_on_thread;

/// Elements of pinned memory to read. While it lives, no operation that writes them
/// can be enqueued. A plain borrow: dropping or forgetting it does nothing.
pub struct HostRef<'a, T> {
    elements: &'a [T],
}

/// Elements of pinned memory to change. While it lives, no operation can touch them.
/// A plain borrow: dropping or forgetting it does nothing.
pub struct HostMut<'a, T> {
    elements: &'a mut [T],
}

/// The future of [`HostBuffer::read`] and its like.
///
/// # Errors
///
/// [`Error::Uninitialised`](crate::Error::Uninitialised) where nothing has written some of the
/// elements; [`Error::DeviceLost`](crate::Error::DeviceLost).
///
/// # Cancel safety
///
/// Dropping it stops the waiting and nothing else.
#[must_use = "the bytes come from awaiting it"]
#[derive(Debug)]
pub struct Read<'a, T> {
    access: HostAccess<HostSlice<'a, T>>,
}

/// The future of [`HostBuffer::write`] and its like.
///
/// # Errors
///
/// [`Error::DeviceLost`](crate::Error::DeviceLost).
///
/// # Cancel safety
///
/// Dropping it stops the waiting and nothing else.
#[must_use = "the bytes come from awaiting it"]
#[derive(Debug)]
pub struct Write<'a, T> {
    access: HostAccess<HostSliceMut<'a, T>>,
}

impl<'a, T: Pod> Future for Read<'a, T> {
    type Output = Result<HostRef<'a, T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.access.poll(cx).map_ok(|elements| HostRef { elements })
    }
}

impl<'a, T: Pod> Future for Write<'a, T> {
    type Output = Result<HostMut<'a, T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.access.poll(cx).map_ok(|elements| HostMut { elements })
    }
}

macro_rules! read_on_host {
    ($([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> $type {
            /// Awaits the last operations that write the elements, then gives them to read.
            ///
            /// Operations that only read them go on meanwhile, and those enqueued later on the same
            /// stream are not waited for. See [`Read`] for errors and cancel safety.
            pub fn read(&self) -> Read<$borrow, T> {
                Read { access: HostAccess::new(self.as_slice()) }
            }

            /// The elements, if no operation still writes them, by
            /// [`is_finished`](crate::Completion::is_finished).
            ///
            /// # Errors
            ///
            /// [`InFlight`](crate::Error::InFlight); [`Uninitialised`](crate::Error::Uninitialised);
            /// the device is lost.
            pub fn try_read(&self) -> Result<HostRef<$borrow, T>> {
                HostAccess::now(self.as_slice()).map(|elements| HostRef { elements })
            }

            /// As `read`, blocking the calling thread. Not for async workers.
            ///
            /// # Errors
            ///
            /// As [`Read`].
            pub fn blocking_read(&self) -> Result<HostRef<$borrow, T>> {
                block_on_thread(self.read())
            }
        }
    )+};
}

macro_rules! write_on_host {
    ($([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> $type {
            /// Awaits every operation that touches the elements, then gives them to change. Those that
            /// nothing has written yet are zero. See [`Write`] for errors and cancel safety.
            pub fn write(&mut self) -> Write<$borrow, T> {
                Write { access: HostAccess::new(self.as_slice_mut()) }
            }

            /// The elements to change, if no operation still touches them. Those that nothing has
            /// written yet are zero.
            ///
            /// # Errors
            ///
            /// [`InFlight`](crate::Error::InFlight); the device is lost.
            pub fn try_write(&mut self) -> Result<HostMut<$borrow, T>> {
                HostAccess::now(self.as_slice_mut()).map(|elements| HostMut { elements })
            }

            /// As `write`, blocking the calling thread. Not for async workers.
            ///
            /// # Errors
            ///
            /// As [`Write`].
            pub fn blocking_write(&mut self) -> Result<HostMut<$borrow, T>> {
                block_on_thread(self.write())
            }
        }
    )+};
}

for_host_slices!(read_on_host! {});
for_host_slices_mut!(write_on_host! {});

impl<T> Deref for HostRef<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.elements
    }
}

impl<T> Deref for HostMut<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.elements
    }
}

impl<T> DerefMut for HostMut<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.elements
    }
}

impl<T: fmt::Debug> fmt::Debug for HostRef<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.elements.fmt(f)
    }
}

impl<T: fmt::Debug> fmt::Debug for HostMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.elements.fmt(f)
    }
}
