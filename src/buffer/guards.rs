//! The host's view of pinned memory: futures that await it, guards that are it.

use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytemuck::Pod;
use smallvec::SmallVec;

use super::hazard::Mode;
use super::host_buffer::HostBuffer;
use crate::error::Result;
use crate::reactor::Completion;

/// The elements of a [`HostBuffer`] to read. While it lives, no operation that writes the buffer
/// can be enqueued. A plain borrow: dropping or forgetting it does nothing.
pub struct HostRef<'a, T> {
    elements: &'a [T],
}

/// The elements of a [`HostBuffer`] to change. While it lives, no operation can touch the buffer.
/// A plain borrow: dropping or forgetting it does nothing.
pub struct HostMut<'a, T> {
    elements: &'a mut [T],
}

/// The future of [`HostBuffer::read`].
///
/// # Errors
///
/// [`Error::Uninitialised`](crate::Error::Uninitialised) where nothing has written the buffer;
/// [`Error::DeviceLost`](crate::Error::DeviceLost).
///
/// # Cancel safety
///
/// Dropping it stops the waiting and nothing else.
#[derive(Debug)]
#[must_use = "the bytes come from awaiting it"]
pub struct Read<'a, T> {
    buffer: &'a HostBuffer<T>,
    /// What is still to be waited for.
    waits: SmallVec<[Completion; 2]>,
}

/// The future of [`HostBuffer::write`].
///
/// # Errors
///
/// [`Error::DeviceLost`](crate::Error::DeviceLost).
///
/// # Cancel safety
///
/// Dropping it stops the waiting and nothing else.
#[derive(Debug)]
#[must_use = "the bytes come from awaiting it"]
pub struct Write<'a, T> {
    /// Taken when ready.
    buffer: Option<&'a mut HostBuffer<T>>,
    waits: SmallVec<[Completion; 2]>,
}

impl<'a, T: Pod> Read<'a, T> {
    pub(super) fn new(buffer: &'a HostBuffer<T>) -> Self {
        // No writer can be added while `buffer` is borrowed: what is waited for is settled here.
        Read { buffer, waits: buffer.waits(Mode::Read) }
    }
}

impl<'a, T: Pod> Write<'a, T> {
    pub(super) fn new(buffer: &'a mut HostBuffer<T>) -> Self {
        let waits = buffer.waits(Mode::Overwrite);
        Write { buffer: Some(buffer), waits }
    }
}

/// Ready when all are, or with the first error.
fn poll_all(waits: &mut SmallVec<[Completion; 2]>, cx: &mut Context<'_>) -> Poll<Result<()>> {
    while let Some(wait) = waits.last_mut() {
        ready!(Pin::new(wait).poll(cx))?;
        waits.pop();
    }
    Poll::Ready(Ok(()))
}

impl<'a, T: Pod> Future for Read<'a, T> {
    type Output = Result<HostRef<'a, T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        ready!(poll_all(&mut self.waits, cx))?;
        Poll::Ready(self.buffer.readable())
    }
}

impl<'a, T: Pod> Future for Write<'a, T> {
    type Output = Result<HostMut<'a, T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        ready!(poll_all(&mut self.waits, cx))?;
        match self.buffer.take() {
            Some(buffer) => Poll::Ready(Ok(buffer.writable())),
            // Polled again after it was ready, which a future's contract forbids.
            None => Poll::Pending,
        }
    }
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
