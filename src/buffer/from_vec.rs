//! A `Vec` as page-locked memory: in place, where that pays.

use std::fmt;
use std::future::Future;
use std::mem;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytemuck::Pod;
use smallvec::SmallVec;

use super::host_buffer::HostBuffer;
use super::pinned::Pinned;
use super::pod::byte_len;
use super::store::Store;
use crate::device::{Answer, Device, DeviceCore, PinnedBlock, Registered, VecMemory};
use crate::error::{Error, Result};

/// From how many bytes on a `Vec` is registered and not copied. To register and unregister 512 MiB takes 46 ms,
/// and to copy them 12 (an H200's host), so that it pays for what is copied more than some four times; of
/// little memory the calls themselves take longer than that.
const REGISTERED_FROM: usize = 1 << 20;

/// A `Vec` that is not page-locked: given back, with the reason.
// No `From` for `Error`: see `NotRejoined`.
#[derive(Debug)]
pub struct NotPinned<T> {
    /// As they were given.
    pub elements: Vec<T>,
    /// What is wrong.
    pub error: Error,
}

impl<T> fmt::Display for NotPinned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T: fmt::Debug> std::error::Error for NotPinned<T> {}

impl<T: Pod> HostBuffer<T> {
    /// The elements of a `Vec` in page-locked memory, for a program that has them there already and copies
    /// them to or from a device again and again.
    ///
    /// A `Vec` of 1 MiB and more is page-locked where it is (`cuMemHostRegister`) by a thread of the device's, which takes
    /// long: 70 us a MiB, and 20 to undo it. That pays for memory that is copied some four times or more; for less, use
    /// [`Device::upload`](crate::Device::upload). A smaller one is copied to memory of the device's pool inside this call. The
    /// buffer is as any other. [`into_vec`](HostBuffer::into_vec) makes a `Vec` of it again: the same one, if it was
    /// registered.
    ///
    /// What is refused is told by the future, with the `Vec`.
    #[track_caller]
    pub fn from_vec(device: &Device, elements: Vec<T>) -> FromVec<T> {
        FromVec { state: State::start(device.core(), elements, Location::caller()) }
    }
}

/// The future of [`HostBuffer::from_vec`]: the buffer, with the elements in it.
///
/// # Errors
///
/// As [`Device::alloc_host`](crate::Device::alloc_host), for a small `Vec`; the driver refused to register a large one, as it
/// does where it is registered already by others; [`Error::Thread`]; the device is lost. With the `Vec`.
///
/// # Cancel safety
///
/// Dropping it drops the `Vec`, as soon as it is not page-locked any more: a thread of the device's sees to that.
#[must_use = "the buffer, and what went wrong, come from awaiting it"]
pub struct FromVec<T> {
    state: State<T>,
}

enum State<T> {
    Registering(Registering),
    Done(Result<HostBuffer<T>, NotPinned<T>>),
    /// It was ready.
    Taken,
}

struct Registering {
    core: Arc<DeviceCore>,
    answer: Answer<Registered>,
    /// Elements.
    len: usize,
    made_at: &'static Location<'static>,
}

impl<T: Pod> State<T> {
    fn start(
        core: &Arc<DeviceCore>,
        elements: Vec<T>,
        made_at: &'static Location<'static>,
    ) -> Self {
        let len = elements.len();
        match byte_len::<T>(len).and_then(|bytes| core.reactor().check().map(|()| bytes)) {
            Err(error) => State::Done(Err(NotPinned { elements, error })),
            Ok(..REGISTERED_FROM) => State::Done(copied(core, elements, made_at)),
            Ok(_) => {
                let answer = core.pinned().register(core, VecMemory::new(elements));
                State::Registering(Registering { core: core.clone(), answer, len, made_at })
            }
        }
    }
}

fn copied<T: Pod>(
    core: &Arc<DeviceCore>,
    elements: Vec<T>,
    made_at: &'static Location<'static>,
) -> Result<HostBuffer<T>, NotPinned<T>> {
    match HostBuffer::unwritten_at(core, elements.len(), Default::default(), made_at) {
        Ok(mut buffer) => {
            buffer.set(&elements);
            Ok(buffer)
        }
        Err(error) => Err(NotPinned { elements, error }),
    }
}

impl<T: Pod> HostBuffer<T> {
    /// A registered block with `len` elements in it, all of them written, that nothing touches.
    pub(super) fn of_registered(
        core: &Arc<DeviceCore>,
        block: PinnedBlock,
        len: usize,
        made_at: &'static Location<'static>,
    ) -> Self {
        let size = size_of::<T>();
        let memory = Some(Pinned::of_block(core, block, len * size, made_at));
        let buffer = HostBuffer::of_store(Store { memory, core: core.clone(), len, size });
        buffer.place().tell_of_access(true);
        buffer.place().written_by_host();
        buffer
    }
}

impl Drop for Registering {
    fn drop(&mut self) {
        if let Some(Ok(block)) = self.answer.abandon() {
            self.core.pinned().retire(&self.core, block, SmallVec::new());
        }
    }
}

impl<T> Unpin for FromVec<T> {}

impl<T: Pod> Future for FromVec<T> {
    type Output = Result<HostBuffer<T>, NotPinned<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::Registering(Registering { core, answer, len, made_at }) = &mut self.state {
            let done = match ready!(answer.poll(cx)) {
                Ok(Ok(block)) => Ok(HostBuffer::of_registered(core, block, *len, made_at)),
                Ok(Err((memory, error))) => {
                    // It was made of a `Vec<T>`.
                    Err(NotPinned { elements: memory.into_vec().unwrap_or_default(), error })
                }
                // The memory went with the thread that had it.
                Err(error) => Err(NotPinned { elements: Vec::new(), error }),
            };
            self.state = State::Done(done);
        }
        match mem::replace(&mut self.state, State::Taken) {
            State::Done(done) => Poll::Ready(done),
            // Polled again after it was ready, which a future's contract forbids.
            State::Registering(_) | State::Taken => Poll::Pending,
        }
    }
}

impl<T> fmt::Debug for FromVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_registering = matches!(self.state, State::Registering(_));
        f.debug_struct("FromVec").field("registering", &is_registering).finish_non_exhaustive()
    }
}
