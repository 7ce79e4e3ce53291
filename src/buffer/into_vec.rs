//! Page-locked memory as a `Vec`.

use std::fmt;
use std::future::Future;
use std::mem;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytemuck::Pod;
use smallvec::SmallVec;

use super::hazard::Mode;
use super::host_buffer::HostBuffer;
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
        IntoVec { state: State::Waiting { buffer: self, waits }, made_at: Location::caller() }
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
    state: State<T>,
    made_at: &'static Location<'static>,
}

enum State<T> {
    Waiting {
        buffer: HostBuffer<T>,
        waits: SmallVec<[Completion; 2]>,
    },
    Unregistering(Unregistering),
    /// It was ready.
    Taken,
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

/// Of a buffer that no operation touches: its elements copied, or its registered memory on the way back.
fn taken<T: Pod>(mut buffer: HostBuffer<T>) -> Result<State<T>, Result<Vec<T>, NotUnpinned<T>>> {
    let is_vec = buffer.store.memory.as_ref().is_some_and(|memory| memory.is_vec_of::<T>());
    let checked = buffer.place().check_defined();
    if let Err(error) = checked {
        return Err(Err(NotUnpinned { buffer, error }));
    }
    if !is_vec {
        let copied = buffer.try_read().map(|elements| elements.to_vec());
        return Err(copied.map_err(|error| NotUnpinned { buffer, error }));
    }
    let (core, len) = (buffer.store.core.clone(), buffer.store.len);
    let block = buffer.store.memory.take().and_then(|memory| memory.into_block());
    let Some(block) = block else { return Err(Ok(Vec::new())) };
    let answer = core.pinned().unregister(&core, block);
    Ok(State::Unregistering(Unregistering { core, answer, len }))
}

impl<T> Unpin for IntoVec<T> {}

impl<T: Pod> Future for IntoVec<T> {
    type Output = Result<Vec<T>, NotUnpinned<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let State::Waiting { waits, .. } = &mut this.state {
            let mut ended = Ok(());
            while let (Ok(()), Some(wait)) = (&ended, waits.last_mut()) {
                ended = ready!(Pin::new(wait).poll(cx));
                waits.pop();
            }
            let State::Waiting { buffer, .. } = mem::replace(&mut this.state, State::Taken) else {
                return Poll::Pending;
            };
            if let Err(error) = ended {
                return Poll::Ready(Err(NotUnpinned { buffer, error }));
            }
            match taken(buffer) {
                Ok(state) => this.state = state,
                Err(done) => return Poll::Ready(done),
            }
        }
        let State::Unregistering(Unregistering { core, answer, len }) = &mut this.state else {
            // Polled again after it was ready, which a future's contract forbids.
            return Poll::Pending;
        };
        let (core, len) = (core.clone(), *len);
        let answer = ready!(answer.poll(cx));
        this.state = State::Taken;
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
        let state = match self.state {
            State::Waiting { .. } => "waiting",
            State::Unregistering(_) => "unregistering",
            State::Taken => "taken",
        };
        f.debug_struct("IntoVec").field("state", &state).finish_non_exhaustive()
    }
}
