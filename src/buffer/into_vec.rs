//! Page-locked memory as a `Vec`.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytemuck::Pod;
use smallvec::SmallVec;

use super::hazard::Mode;
use super::host_buffer::HostBuffer;
use super::pinned::Pinned;
use crate::device::{Answer, DeviceCore, Unregistered};
use crate::error::{Error, Result};
use crate::reactor::Completion;

/// A buffer that does not become a `Vec`: given back, with the reason.
// No `From` for `Error`: see `NotRejoined`.
#[derive(Debug)]
pub struct NotUnpinned<T> {
    /// As it was given.
    pub buffer: HostBuffer<T>,
    /// What is wrong.
    pub error: Error,
}

impl<T> fmt::Display for NotUnpinned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T: fmt::Debug> std::error::Error for NotUnpinned<T> {}

impl<T: Pod> HostBuffer<T> {
    /// The elements as ordinary memory, once no operation touches them any more.
    ///
    /// What [`from_vec`](HostBuffer::from_vec) has registered is the same `Vec` again: a thread of the device's unregisters it
    /// (`cuMemHostUnregister`, which waits for running kernels). All else is copied out, in the future's last poll (about
    /// 0.1 ms a MiB), and its memory goes back to the pool.
    #[track_caller]
    pub fn into_vec(self) -> IntoVec<T> {
        let waits = self.place().waits(Mode::Overwrite);
        IntoVec { buffer: Some(self), waits, unregistering: None, made_at: Location::caller() }
    }
}

/// The future of [`HostBuffer::into_vec`]: the elements.
///
/// # Errors
///
/// [`Uninitialised`](Error::Uninitialised) where nothing has written some of them; the driver refused to unregister
/// them; [`Error::Thread`]; the device is lost. With the buffer.
///
/// # Cancel safety
///
/// Dropping it drops the buffer.
#[must_use = "the elements, and what went wrong, come from awaiting it"]
pub struct IntoVec<T> {
    /// Until nothing touches it.
    buffer: Option<HostBuffer<T>>,
    /// What still does. Nothing can be added: the buffer is in here.
    waits: SmallVec<[Completion; 2]>,
    /// After that, if it is registered.
    unregistering: Option<Unregistering>,
    made_at: &'static Location<'static>,
}

struct Unregistering {
    core: Arc<DeviceCore>,
    answer: Answer<Unregistered>,
    /// Elements.
    len: usize,
}

impl Drop for Unregistering {
    fn drop(&mut self) {
        if let Some(Err((block, _))) = self.answer.abandon() {
            self.core.pinned().retire(&self.core, block, SmallVec::new());
        }
    }
}

impl<T: Pod> IntoVec<T> {
    /// Of a buffer that nothing touches: its elements, unless they are to be unregistered first.
    fn take(&mut self, mut buffer: HostBuffer<T>) -> Poll<Result<Vec<T>, NotUnpinned<T>>> {
        let checked = buffer.place().check_defined();
        if let Err(error) = checked {
            return Poll::Ready(Err(NotUnpinned { buffer, error }));
        }
        let registered = buffer.store.memory.take_if(|memory| memory.is_vec_of::<T>());
        let Some(block) = registered.and_then(Pinned::into_block) else {
            let copied = buffer.try_read().map(|elements| elements.to_vec());
            return Poll::Ready(copied.map_err(|error| NotUnpinned { buffer, error }));
        };
        let (core, len) = (buffer.store.core.clone(), buffer.store.len);
        let answer = core.pinned().unregister(&core, block);
        self.unregistering = Some(Unregistering { core, answer, len });
        Poll::Pending
    }
}

impl<T> Unpin for IntoVec<T> {}

impl<T: Pod> Future for IntoVec<T> {
    type Output = Result<Vec<T>, NotUnpinned<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.buffer.is_some() {
            let mut ended = Ok(());
            while let (Ok(()), Some(wait)) = (&ended, this.waits.last_mut()) {
                ended = ready!(Pin::new(wait).poll(cx));
                this.waits.pop();
            }
            if let Some(buffer) = this.buffer.take() {
                match ended {
                    Ok(()) => {
                        if let Poll::Ready(done) = this.take(buffer) {
                            return Poll::Ready(done);
                        }
                    }
                    Err(error) => return Poll::Ready(Err(NotUnpinned { buffer, error })),
                }
            }
        }
        let Some(Unregistering { core, answer, len }) = &mut this.unregistering else {
            // Polled again after it was ready, which a future's contract forbids.
            return Poll::Pending;
        };
        let (core, len) = (core.clone(), *len);
        let answer = ready!(answer.poll(cx));
        this.unregistering = None;
        Poll::Ready(match answer {
            Ok(Ok(memory)) => {
                // It was asked whether it is of a `Vec<T>`.
                let mut elements = memory.into_vec().unwrap_or_default();
                elements.truncate(len);
                Ok(elements)
            }
            Ok(Err((block, error))) => {
                let buffer = HostBuffer::of_registered(&core, block, len, this.made_at);
                Err(NotUnpinned { buffer, error })
            }
            // The memory went with the thread that had it.
            Err(error) => Err(NotUnpinned { buffer: HostBuffer::without_elements(&core), error }),
        })
    }
}

impl<T> fmt::Debug for IntoVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IntoVec")
            .field("buffer", &self.buffer)
            .field("unregistering", &self.unregistering.is_some())
            .finish_non_exhaustive()
    }
}
