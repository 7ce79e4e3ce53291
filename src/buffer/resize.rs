//! Another number of elements in a pinned buffer.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytemuck::Pod;
use smallvec::SmallVec;

use super::hazard::Mode;
use super::host_access::move_bytes;
use super::host_buffer::HostBuffer;
use super::pinned::Pinned;
use super::pod::byte_len;
use super::region::Region;
use super::store::Backing;
use crate::error::Result;
use crate::reactor::Completion;

impl<T: Pod> HostBuffer<T> {
    /// Gives the buffer `len` elements, once no operation touches it any more. The first ones stay what they are;
    /// those that come to it are unwritten, as of a new buffer.
    ///
    /// The buffer stays where it is if its block has room, which up to a quarter of its bytes can be; else it moves to a larger
    /// one, in the future's last poll (about 0.1 ms a MiB, beside [`Device::alloc_host`](crate::Device::alloc_host)). What was
    /// registered by [`from_vec`](HostBuffer::from_vec) has no room, and moves to memory of the pool.
    #[track_caller]
    pub fn resize(&mut self, len: usize) -> Resize<'_, T> {
        let waits = self.place().waits(Mode::Overwrite);
        Resize { buffer: Some(self), len, waits, made_at: Location::caller() }
    }

    /// No operation touches the buffer. Where it fails nothing was changed.
    fn set_len(&mut self, len: usize, made_at: &'static Location<'static>) -> Result<()> {
        let bytes = byte_len::<T>(len)?;
        let store = &mut self.store;
        store.core.reactor().check()?;
        match &mut store.memory {
            memory if bytes == 0 => *memory = None,
            None => {
                let kind = Default::default();
                store.memory = Some(Pinned::new(&store.core, bytes, kind, made_at)?);
            }
            Some(memory) => {
                let kept = bytes.min(memory.tracked().bytes());
                let written = written(memory, kept);
                if bytes <= memory.room() {
                    memory.set_bytes(bytes, made_at);
                } else {
                    let mut larger = Pinned::new(&store.core, bytes, memory.kind(), made_at)?;
                    move_bytes(memory, &mut larger, kept, &**store.core.driver());
                    *memory = larger;
                }
                let mut record = memory.tracked().lock();
                for range in written {
                    record.written_by_host(&Region::of_bytes(range));
                }
            }
        }
        store.len = len;
        self.store.core.raise_race();
        Ok(())
    }
}

/// Which of the first `bytes` bytes something has written, in ascending order.
fn written(memory: &Pinned, bytes: usize) -> Vec<Range<usize>> {
    let all = Region::of_bytes(0..bytes);
    let mut unwritten = Vec::new();
    for region in memory.tracked().lock().undefined_around(&all) {
        all.each_common(&region, |range| unwritten.push(range));
    }
    unwritten.sort_unstable_by_key(|range| range.start);
    let mut written = Vec::new();
    let mut at = 0;
    for range in unwritten {
        if at < range.start {
            written.push(at..range.start);
        }
        at = at.max(range.end);
    }
    if at < bytes {
        written.push(at..bytes);
    }
    written
}

/// The future of [`HostBuffer::resize`].
///
/// # Errors
///
/// [`TooLarge`](crate::Error::TooLarge); as [`Device::alloc_host`](crate::Device::alloc_host); the device is lost. The buffer is
/// as it was then.
///
/// # Cancel safety
///
/// Dropped before it was ready, it leaves the buffer as it was.
#[must_use = "the buffer has its new length when it was awaited"]
pub struct Resize<'a, T> {
    /// Taken when ready.
    buffer: Option<&'a mut HostBuffer<T>>,
    len: usize,
    /// What touches the buffer. The borrow keeps others away.
    waits: SmallVec<[Completion; 2]>,
    made_at: &'static Location<'static>,
}

impl<T> Unpin for Resize<'_, T> {}

impl<T: Pod> Future for Resize<'_, T> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        while let Some(wait) = self.waits.last_mut() {
            ready!(Pin::new(wait).poll(cx))?;
            self.waits.pop();
        }
        let (len, made_at) = (self.len, self.made_at);
        match self.buffer.take() {
            Some(buffer) => Poll::Ready(buffer.set_len(len, made_at)),
            // Polled again after it was ready, which a future's contract forbids.
            None => Poll::Pending,
        }
    }
}

impl<T> fmt::Debug for Resize<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resize").field("len", &self.len).finish_non_exhaustive()
    }
}
