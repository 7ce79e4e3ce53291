//! The host's view of pinned memory: futures that await it, guards that are it.

use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytemuck::Pod;

use super::each::{for_host_slices, for_host_slices_mut, for_host_tiles, for_host_tiles_mut};
use super::host_access::HostAccess;
use super::host_buffer::HostBuffer;
use super::part::HostPart;
use super::rows::{TileMut, TileRef};
use super::tile::{HostTile, HostTileMut};
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

impl<'a, T> HostRef<'a, T> {
    pub(super) fn new(elements: &'a [T]) -> Self {
        HostRef { elements }
    }
}

impl<'a, T> HostMut<'a, T> {
    pub(super) fn new(elements: &'a mut [T]) -> Self {
        HostMut { elements }
    }
}

/// Declares the future of an access by the host.
macro_rules! access {
    ($(#[$doc:meta])* $name:ident of $view:ident to $guard:ident) => {
        $(#[$doc])*
        ///
        /// [`Error::DeviceLost`](crate::Error::DeviceLost).
        ///
        /// # Cancel safety
        ///
        /// Dropping it stops the waiting and nothing else.
        #[must_use = "the bytes come from awaiting it"]
        #[derive(Debug)]
        pub struct $name<'a, T> {
            access: HostAccess<$view<'a, T>>,
        }

        impl<'a, T: Pod> Future for $name<'a, T> {
            type Output = Result<$guard<'a, T>>;

            fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
                self.access.poll(cx)
            }
        }
    };
}

access! {
    /// The future of [`HostBuffer::read`] and its like.
    ///
    /// # Errors
    ///
    /// [`Error::Uninitialised`](crate::Error::Uninitialised) where nothing has written some of the
    /// elements;
    Read of HostSlice to HostRef
}

access! {
    /// The future of [`HostBuffer::write`] and its like.
    ///
    /// # Errors
    Write of HostSliceMut to HostMut
}

access! {
    /// The future of [`HostTile::read`].
    ///
    /// # Errors
    ///
    /// [`Error::Uninitialised`](crate::Error::Uninitialised) where nothing has written some of the
    /// elements;
    ReadTile of HostTile to TileRef
}

access! {
    /// The future of [`HostTileMut::write`].
    ///
    /// # Errors
    WriteTile of HostTileMut to TileMut
}

macro_rules! read_on_host {
    ($as_view:ident, $future:ident, $guard:ident;
     $([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> $type {
            /// Awaits the last operations that write the elements, then gives them to read.
            ///
            /// Operations that only read them go on meanwhile, and those enqueued later on the same
            /// stream are not waited for. See the future for errors and cancel safety.
            pub fn read(&self) -> $future<$borrow, T> {
                $future { access: HostAccess::new(self.$as_view()) }
            }

            /// The elements, if no operation still writes them, by
            /// [`is_finished`](crate::Completion::is_finished).
            ///
            /// # Errors
            ///
            /// [`InFlight`](crate::Error::InFlight); [`Uninitialised`](crate::Error::Uninitialised);
            /// the device is lost.
            pub fn try_read(&self) -> Result<$guard<$borrow, T>> {
                HostAccess::now(self.$as_view())
            }

            /// As `read`, blocking the calling thread. Not for async workers.
            ///
            /// # Errors
            ///
            /// As of the future of `read`.
            pub fn blocking_read(&self) -> Result<$guard<$borrow, T>> {
                block_on_thread(self.read())
            }
        }
    )+};
}

macro_rules! write_on_host {
    ($as_view:ident, $future:ident, $guard:ident;
     $([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> $type {
            /// Awaits every operation that touches the elements, then gives them to change. Those that
            /// nothing has written yet are zero. See the future for errors and cancel safety.
            pub fn write(&mut self) -> $future<$borrow, T> {
                $future { access: HostAccess::new(self.$as_view()) }
            }

            /// The elements to change, if no operation still touches them. Those that nothing has
            /// written yet are zero.
            ///
            /// # Errors
            ///
            /// [`InFlight`](crate::Error::InFlight); the device is lost.
            pub fn try_write(&mut self) -> Result<$guard<$borrow, T>> {
                HostAccess::now(self.$as_view())
            }

            /// As `write`, blocking the calling thread. Not for async workers.
            ///
            /// # Errors
            ///
            /// As of the future of `write`.
            pub fn blocking_write(&mut self) -> Result<$guard<$borrow, T>> {
                block_on_thread(self.write())
            }
        }
    )+};
}

for_host_slices!(read_on_host! { as_slice, Read, HostRef; });
for_host_slices_mut!(write_on_host! { as_slice_mut, Write, HostMut; });
for_host_tiles!(read_on_host! { as_tile, ReadTile, TileRef; });
for_host_tiles_mut!(write_on_host! { as_tile_mut, WriteTile, TileMut; });

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
