//! Ordinary memory to the device and back, through pinned memory.
//!
//! What is small is copied to pinned memory and enqueued inside the call; so is what is borrowed, in
//! pieces. The rest is made by threads of the device while the future is awaited, dropped or forgotten
//! (`transfer`), under an access that stays open until all of its copies are enqueued (`submit`).

mod bytes;
mod futures;
mod progress;
mod source;
mod submit;
mod transfer;

use std::sync::Arc;

use bytemuck::Pod;
use smallvec::SmallVec;

use self::bytes::{Filling, OwnedBytes};
use self::futures::{Copying, Reading};
use self::progress::Counts;
use self::source::SourceMemory;
use self::submit::{Direction, Opened, Piece, Refused};
use self::transfer::{Host, Transfer};
use crate::buffer::{
    Allocation, DeviceBuffer, DevicePart, DeviceSlice, DeviceSliceMut, DeviceTile, DeviceTileMut,
    HostBuffer, Place, SharedBuffer, for_device_slices, for_device_slices_mut, for_device_tiles,
    for_device_tiles_mut,
};
use crate::device::{Device, DeviceCore, Frame, FrameGuard, Stream, StreamOptions, budget};
use crate::error::{Error, Result};
use crate::reactor::Completion;

pub use self::futures::{Refill, ToVec, Upload};
pub use self::progress::Progress;
pub use self::source::Source;

/// What is no larger goes through pinned memory at once: it takes no longer than to have a thread do it.
const AT_ONCE: usize = 256 << 10;

impl Device {
    /// Copies elements into a new device buffer: of ordinary memory of any kind, see [`Source`].
    ///
    /// A `Vec`, or something else that is owned, of more than 256 KiB goes through pinned memory piece by
    /// piece, on threads of the device and a stream of its own
    /// ([`StagingOptions`](crate::StagingOptions)): the call returns at once, and the transfer goes on
    /// whether the future is polled or not. What is smaller or borrowed is copied to pinned
    /// memory inside this call, which takes about 0.1 ms a MiB, and is enqueued on the current stream when
    /// it returns. Either way the copies are `cuMemcpyHtoDAsync`s. Inside
    /// [`testing::explore`](crate::testing::explore) everything is copied inside the call.
    ///
    /// The future is ready when all of it is on the device; what is refused is told by the future. To
    /// enqueue work on the buffer without awaiting the copy, use a [`HostBuffer`] and
    /// [`DeviceBuffer::copy_from`].
    #[track_caller]
    pub fn upload<'a, T: Pod>(&self, source: impl Into<Source<'a, T>>) -> Upload<T> {
        let source = source.into();
        let bytes = (source.len() * size_of::<T>()) as u64;
        Upload::new(start_upload(self.core(), source), bytes)
    }
}

macro_rules! refill {
    ($([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> $type {
            /// Writes it with elements of ordinary memory, in place; as [`Device::upload`] makes a new
            /// buffer of them.
            ///
            /// Ordered after everything enqueued before that touches what is written. It is borrowed until
            /// the future is dropped; the transfer goes on after that.
            #[track_caller]
            pub fn refill<'s>(&mut self, source: impl Into<Source<'s, T>>) -> Refill<$borrow, T> {
                let source = source.into();
                let mut target = self.as_slice_mut();
                let bytes = target.place().bytes() as u64;
                Refill::new(start_refill(&mut target, source), bytes)
            }
        }
    )+};
}

macro_rules! refill_tile {
    ($([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> $type {
            /// Writes it with elements of ordinary memory, row after row.
            ///
            /// All of them are copied to pinned memory inside this call, which takes about 0.1 ms a MiB,
            /// and from there in one copy on the current stream (`cuMemcpy2DAsync`).
            #[track_caller]
            pub fn refill<'s>(&mut self, source: impl Into<Source<'s, T>>) -> Refill<$borrow, T> {
                let (place, source) = (self.place(), source.into());
                let (core, bytes) = (place.core().clone(), place.bytes() as u64);
                let started = check_len(&source, place.shape().len())
                    .and_then(|()| pinned(&core, source))
                    .and_then(|pinned| self.copy_from(&pinned));
                Refill::new(started.map(Copying::Enqueued), bytes)
            }
        }
    )+};
}

macro_rules! to_vec {
    ($([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> $type {
            /// Copies it into ordinary memory.
            ///
            /// Up to 256 KiB go through pinned memory at once, enqueued on the current stream when this
            /// returns (`cuMemcpyDtoHAsync`). More goes through it piece by piece, on threads of the device
            /// and a stream of its own ([`StagingOptions`](crate::StagingOptions)), whether the future
            /// is polled or not; until all copies are enqueued, what writes the memory is
            /// [`Busy`](Error::Busy), if the borrow does not forbid it anyway. What is refused is told by
            /// the future.
            #[track_caller]
            pub fn to_vec(&self) -> ToVec<$borrow, T> {
                self.to_vec_in(Vec::new())
            }

            /// The same into the memory of `vec`, whose elements go: no memory is allocated where it has
            /// the capacity.
            #[track_caller]
            pub fn to_vec_in(&self, vec: Vec<T>) -> ToVec<$borrow, T> {
                let place = self.place();
                let bytes = place.bytes();
                let started = match goes_in_pieces(place.core(), bytes) {
                    true => start_reading(place, vec),
                    false => at_once(place.core(), place.shape().len(), vec, |staged| {
                        self.copy_to(staged)
                    }),
                };
                ToVec::new(started, bytes as u64)
            }
        }
    )+};
}

macro_rules! to_vec_of_tile {
    ($([$($generics:tt)*] $type:ty, $borrow:lifetime;)+) => {$(
        impl<$($generics)*> $type {
            /// Copies it into ordinary memory, row after row.
            ///
            /// The copy to pinned memory, which has to have room for all of it, is enqueued on the current
            /// stream when this returns (`cuMemcpy2DAsync`); the future awaits it and copies from there to
            /// the `Vec`. What is refused is told by the future.
            #[track_caller]
            pub fn to_vec(&self) -> ToVec<$borrow, T> {
                self.to_vec_in(Vec::new())
            }

            /// The same into the memory of `vec`, whose elements go.
            #[track_caller]
            pub fn to_vec_in(&self, vec: Vec<T>) -> ToVec<$borrow, T> {
                let place = self.place();
                let started = at_once(place.core(), place.shape().len(), vec, |staged| {
                    self.copy_to(staged)
                });
                ToVec::new(started, place.bytes() as u64)
            }
        }
    )+};
}

for_device_slices_mut!(refill! {});
for_device_tiles_mut!(refill_tile! {});
for_device_slices!(to_vec! {});
for_device_tiles!(to_vec_of_tile! {});

/// Whether it is for threads of the device. A device that is looked after by hand has none.
fn goes_in_pieces(core: &DeviceCore, bytes: usize) -> bool {
    bytes > AT_ONCE && !core.reactor().options().by_hand
}

#[track_caller]
fn start_upload<T: Pod>(
    core: &Arc<DeviceCore>,
    source: Source<'_, T>,
) -> Result<(DeviceBuffer<T>, Copying)> {
    let Source { memory, len, .. } = source;
    match memory {
        SourceMemory::Owned(owned) if goes_in_pieces(core, owned.as_bytes().len()) => {
            let stream = own_stream(core);
            let buffer = {
                // Nothing is there that the transfer would have to wait for.
                let _on = on_stream(&stream);
                DeviceBuffer::unwritten(core, len)?
            };
            let host = Host::Source(owned);
            let copying = begin(core, stream, Direction::Up, buffer.place(), host)?;
            Ok((buffer, copying))
        }
        memory => {
            let mut buffer = DeviceBuffer::unwritten(core, len)?;
            let copied = copy_in_call(&mut buffer.as_slice_mut(), memory, len)?;
            Ok((buffer, Copying::Enqueued(copied)))
        }
    }
}

#[track_caller]
fn start_refill<T: Pod>(
    target: &mut DeviceSliceMut<'_, T>,
    source: Source<'_, T>,
) -> Result<Copying> {
    check_len(&source, target.len())?;
    let core = target.place().core().clone();
    match source.memory {
        SourceMemory::Owned(owned) if goes_in_pieces(&core, owned.as_bytes().len()) => {
            let stream = own_stream(&core);
            begin(&core, stream, Direction::Up, target.place(), Host::Source(owned))
        }
        memory => copy_in_call(target, memory, source.len).map(Copying::Enqueued),
    }
}

fn start_reading<T: Pod>(place: Place<'_, Allocation>, vec: Vec<T>) -> Result<Reading<T>> {
    let core = place.core();
    let host = Host::Target(Filling::new(vec, place.shape().len())?);
    let copying = begin(core, own_stream(core), Direction::Down, place, host)?;
    Ok((copying, None))
}

/// Reads through pinned memory that has room for all of it.
#[track_caller]
fn at_once<T: Pod>(
    core: &Arc<DeviceCore>,
    len: usize,
    vec: Vec<T>,
    copy: impl FnOnce(&mut HostBuffer<T>) -> Result<Completion>,
) -> Result<Reading<T>> {
    let mut staged = HostBuffer::unwritten(core, len)?.staged();
    let copied = copy(&mut staged)?;
    Ok((Copying::Enqueued(copied), Some((staged, vec))))
}

/// A stream for a transfer alone: it waits for nothing else, and holds nothing else up.
pub(super) fn own_stream(core: &Arc<DeviceCore>) -> Stream {
    let device = Device::from_core(core.clone());
    let priority = device.current_stream().priority();
    device.stream_with(StreamOptions::new().priority(priority))
}

/// Makes it current until the guard is dropped.
pub(super) fn on_stream(stream: &Stream) -> FrameGuard {
    let (stream, budget) = (stream.clone(), budget(stream.device_number()));
    FrameGuard::enter([Frame { stream, budget, task: false }])
}

fn begin(
    core: &Arc<DeviceCore>,
    stream: Stream,
    direction: Direction,
    place: Place<'_, Allocation>,
    host: Host,
) -> Result<Copying> {
    let opened = Opened::new(core, stream.lane(), direction, place)?;
    let counts = Arc::<Counts>::default();
    let transfer = Transfer::begin(opened, stream, host, counts.clone());
    let (outcome, transfer) = (transfer.outcome().clone(), Arc::downgrade(&transfer));
    Ok(Copying::Staged { outcome, counts, transfer })
}

fn check_len<T: Pod>(source: &Source<'_, T>, destination_len: usize) -> Result<()> {
    let (operation, source_len) = ("copying to the device", source.len());
    match source_len == destination_len {
        true => Ok(()),
        false => Err(Error::LengthMismatch { operation, source_len, destination_len }),
    }
}

/// Pinned memory with the elements.
#[track_caller]
fn pinned<T: Pod>(core: &Arc<DeviceCore>, source: Source<'_, T>) -> Result<HostBuffer<T>> {
    let Source { memory, len, .. } = source;
    let staged = match memory {
        SourceMemory::Pinned(bytes) => bytes,
        SourceMemory::Owned(owned) => HostBuffer::from_slice(core, owned.as_bytes())?.staged(),
        SourceMemory::Borrowed(bytes) => HostBuffer::from_slice(core, bytes)?.staged(),
    };
    Ok(HostBuffer::of_bytes(staged, len))
}

/// Copies inside the call, on the current stream.
#[track_caller]
fn copy_in_call<T: Pod>(
    target: &mut DeviceSliceMut<'_, T>,
    memory: SourceMemory<'_>,
    len: usize,
) -> Result<Completion> {
    let core = target.place().core().clone();
    let at_once = AT_ONCE.max(core.staging().chunk());
    let owned: OwnedBytes;
    let bytes = match memory {
        SourceMemory::Pinned(bytes) => {
            return target.copy_from(&HostBuffer::of_bytes(bytes, len));
        }
        SourceMemory::Borrowed(bytes) => bytes,
        SourceMemory::Owned(given) => {
            owned = given;
            owned.as_bytes()
        }
    };
    if bytes.len() <= at_once {
        let staged = HostBuffer::from_slice(&core, bytes)?.staged();
        return target.copy_from(&HostBuffer::of_bytes(staged, len));
    }
    let copied = copy_in_pieces(&core, target.place(), bytes);
    core.raise_race();
    copied
}

/// Copies inside the call, through as many chunks of pinned memory as that takes.
fn copy_in_pieces(
    core: &Arc<DeviceCore>,
    place: Place<'_, Allocation>,
    bytes: &[u8],
) -> Result<Completion> {
    let lane = core.current_lane();
    let opened = Opened::new(core, &lane, Direction::Up, place)?;
    let chunk = core.staging().chunk();
    let mut pieces = (0..bytes.len()).step_by(chunk);
    let copied = pieces.try_for_each(|at| {
        let piece = &bytes[at..bytes.len().min(at + chunk)];
        let mut chunk = opened.make_chunk(piece.len()).map_err(|error| match error {
            Error::OutOfPinnedMemory { .. } => {
                Error::TooMuchBorrowed { bytes: bytes.len(), staged: at }
            }
            error => error,
        })?;
        opened.fill(&mut chunk, piece);
        match opened.submit(Piece { chunk, at, bytes: piece.len() }) {
            Ok(in_flight) => in_flight.retire(core),
            Err((piece, refused)) => {
                core.pinned().retire(core, piece.chunk, SmallVec::new());
                return match refused {
                    Refused::For(error) | Refused::Full(error) => Err(error),
                    Refused::Ended => Ok(()), // not before the end of this call
                };
            }
        }
        Ok(())
    });
    opened.end(copied.is_err());
    copied?;
    Ok(opened.last().map_or_else(Completion::ready, |last| lane.completion(last)))
}
