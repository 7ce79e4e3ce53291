//! The one error type of the crate.

use std::ops::Range;
use std::sync::Arc;

use crate::driver::DriverError;

mod failure;
mod kernel;
mod shown;

use self::shown::{advice, sides};
pub use failure::{DeviceFailure, Suspect};
pub use kernel::KernelError;

/// What every fallible call of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call was refused, or how awaited work ended.
///
/// Where an operation returns `Err`, it was not enqueued and changed no memory, unless its
/// documentation says otherwise.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This machine has no CUDA driver library.
    #[error(
        "no CUDA driver on this machine: libcuda was not found; install a driver, or set \
         HEADWATER_DEVICE=sim to run on the simulated device"
    )]
    NoDriver,

    /// The CUDA driver is older than this crate can do with.
    #[error(
        "the CUDA driver supports CUDA {}.{}, headwater needs {}.{} or newer: update the driver, or \
         set HEADWATER_DEVICE=sim to run on the simulated device",
        found / 1000, found % 1000 / 10, needed / 1000, needed % 1000 / 10
    )]
    #[non_exhaustive]
    DriverTooOld {
        /// CUDA version that the driver supports, as 1000 * major + 10 * minor.
        found: u32,
        /// The least that is needed.
        needed: u32,
    },

    /// What was found as the CUDA driver library is none that works.
    #[error(
        "the CUDA driver library cannot be used ({cause}): it lacks a function, or is the toolkit's \
         stub; install a driver, and see that its libcuda is found first"
    )]
    #[non_exhaustive]
    DriverBroken {
        /// The function that is missing, or what it said.
        cause: DriverError,
    },

    /// The driver has no such device.
    #[error(
        "there is no CUDA device {ordinal}: {visible} visible, counted from 0; CUDA_VISIBLE_DEVICES \
         can hide some"
    )]
    #[non_exhaustive]
    NoDevice {
        /// Index asked for.
        ordinal: usize,
        /// How many there are.
        visible: usize,
    },

    /// A setting in the environment or of the builder that means nothing.
    #[error("{name} is {given:?}: it takes {allowed}")]
    #[non_exhaustive]
    BadSetting {
        /// Variable or builder method.
        name: &'static str,
        /// What it was set to.
        given: String,
        /// What it can be set to.
        allowed: &'static str,
    },

    /// The crate was built without what the call needs.
    #[error("headwater was built without its `{0}` feature, which this call needs: enable it")]
    FeatureMissing(&'static str),

    /// The driver refused a call; nothing was enqueued, and memory is as it was.
    #[error("the driver refused {operation}, of which nothing was done: {cause}{}", advice(cause))]
    #[non_exhaustive]
    Refused {
        /// What was to be done.
        operation: &'static str,
        /// What the driver said.
        cause: DriverError,
    },

    /// The driver took a part of an operation that is several calls, and refused the rest: what
    /// the operation was to write is undefined, and reading it is
    /// [`Uninitialised`](Error::Uninitialised).
    #[error(
        "the driver refused a part of {operation}: {cause}{}; what it was to write is undefined: \
         write it again before reading it",
        advice(cause)
    )]
    #[non_exhaustive]
    PartlyRefused {
        /// What was to be done.
        operation: &'static str,
        /// What the driver said.
        cause: DriverError,
    },

    /// The device failed and cannot be used again in this process.
    #[error("{0}")]
    DeviceLost(Arc<DeviceFailure>),

    /// The stream holds as many unfinished operations as it may. Where a program comes near that:
    ///
    /// ```
    /// # use headwater::{Completion, DeviceBuffer, Error, Result};
    /// /// Enqueues, as soon as there is room.
    /// async fn zero(x: &mut DeviceBuffer<f32>) -> Result<Completion> {
    ///     loop {
    ///         match x.fill(0.0) {
    ///             Err(Error::QueueFull { .. }) => x.device().current_stream().ready().await?,
    ///             done => return done,
    ///         }
    ///     }
    /// }
    /// ```
    #[error(
        "stream {stream} holds {in_flight} unfinished operations and takes {limit}: no room for \
         {needed} more; await `ready()` of it (`device.current_stream()`), then try again"
    )]
    #[non_exhaustive]
    QueueFull {
        /// The stream's number in its device, as [`Stream::number`](crate::Stream::number).
        stream: usize,
        /// Operations enqueued and not known to be finished.
        in_flight: u64,
        /// How many the operation would have added: one for each driver call it makes.
        needed: u64,
        /// Where headwater stops, below the point where the driver would block.
        limit: u64,
    },

    /// The device has as much in flight as it was opened for. Where a program comes near that, it awaits
    /// [`Device::ready`](crate::Device::ready) and tries again, in a loop as for [`QueueFull`](Error::QueueFull): others may have taken the room.
    #[error(
        "{operation}: {in_flight} {what} are in flight on the device, which takes {limit}: no room for {needed} \
         more; await `ready()` of the device, then try again"
    )]
    #[non_exhaustive]
    TooMuchInFlight {
        /// What was to be done.
        operation: &'static str,
        /// Bytes or operations.
        what: &'static str,
        /// How many are in flight, as far as is known.
        in_flight: u64,
        /// How many the operation would have added.
        needed: u64,
        /// How many there may be.
        limit: u64,
    },

    /// Bytes were to be read that nothing wrote, or whose writer was refused.
    #[error(
        "{operation} reads bytes {range:?} of `{argument}` ({buffer}), which nothing has written: \
         write them first, device memory by a fill, a copy or a kernel declared with `fills`, pinned \
         memory by `write()` or a copy"
    )]
    #[non_exhaustive]
    Uninitialised {
        /// What was to read.
        operation: &'static str,
        /// Name of the argument.
        argument: &'static str,
        /// Which buffer.
        buffer: String,
        /// Byte range within the buffer.
        range: Range<usize>,
    },

    /// Two lengths that must be equal are not.
    #[error(
        "{operation}: the source has {source_len} elements and the destination {destination_len}; \
         they must have as many"
    )]
    #[non_exhaustive]
    LengthMismatch {
        /// What was to be done.
        operation: &'static str,
        /// Elements of the source.
        source_len: usize,
        /// Elements of the destination.
        destination_len: usize,
    },

    /// A range that is not within the view, or ends before it starts.
    #[error(
        "{what} {}..{} of a view that has {len}: give a range that starts no later than it ends, and \
         ends at {len} at the latest", range.start, range.end
    )]
    #[non_exhaustive]
    OutOfRange {
        /// Elements, planes, rows or columns.
        what: &'static str,
        /// What was asked for.
        range: Range<usize>,
        /// How many there are.
        len: usize,
    },

    /// Memory was to be cut into pieces, or parts, without elements.
    #[error(
        "nothing can be cut into 0 pieces, or into pieces of 0 elements, rows or columns: ask for at least 1"
    )]
    EmptyPieces,

    /// Memory was to be a matrix with a number of columns that leaves a row unfinished.
    #[error(
        "{len} elements are not a matrix of {columns} columns: take a slice whose length is a multiple of \
         a number of columns that is not 0"
    )]
    #[non_exhaustive]
    NotRows {
        /// Elements there are.
        len: usize,
        /// Columns asked for.
        columns: usize,
    },

    /// Memory was to be a volume with planes of a size that leaves one unfinished.
    #[error(
        "{len} elements are not planes of {rows} rows of {columns} columns: take a slice whose length is a \
         multiple of rows times columns, neither of them 0"
    )]
    #[non_exhaustive]
    NotPlanes {
        /// Elements there are.
        len: usize,
        /// Rows of a plane asked for.
        rows: usize,
        /// Columns asked for.
        columns: usize,
    },

    /// Bytes were to be elements of another type, of which they are no whole number.
    #[error(
        "{bytes} bytes are not a whole number of elements of {element_size} bytes: cast a slice whose bytes \
         are a multiple of the size of an element that is not 0"
    )]
    #[non_exhaustive]
    NotElements {
        /// Bytes there are.
        bytes: usize,
        /// Bytes of an element asked for.
        element_size: usize,
    },

    /// Bytes were to be elements of another type, which cannot be where they begin.
    #[error(
        "the elements would begin at byte {offset} of their buffer, an address that is {beyond} more than a \
         multiple of {align} bytes, to which they are aligned: cast a slice that begins {} bytes later", align - beyond
    )]
    #[non_exhaustive]
    Misaligned {
        /// Where the bytes begin, from the start of the buffer.
        offset: usize,
        /// What addresses of the elements are multiples of.
        align: usize,
        /// Bytes from the last such address.
        beyond: usize,
    },

    /// Two matrices or volumes that must have as many planes, rows and columns have not.
    #[error(
        "{operation}: the source has {} elements and the destination {}; they must have the same shape",
        sides(source_shape),
        sides(destination_shape)
    )]
    #[non_exhaustive]
    ShapeMismatch {
        /// What was to be done.
        operation: &'static str,
        /// Planes, rows and columns of the source. A matrix is one plane.
        source_shape: [usize; 3],
        /// Planes, rows and columns of the destination.
        destination_shape: [usize; 3],
    },

    /// Rows that are further apart than the driver copies or fills in one call.
    #[error(
        "{operation}: the rows are {pitch} bytes apart, a driver takes up to {most}: take one `row` or \
         `plane` at a time"
    )]
    #[non_exhaustive]
    RowsTooFarApart {
        /// What was to be done.
        operation: &'static str,
        /// Bytes from row to row.
        pitch: usize,
        /// The most there may be.
        most: usize,
    },

    /// No parts were given to be rejoined.
    #[error(
        "no parts were given: a buffer is rejoined from all its parts, of which there is at least one"
    )]
    NoParts,

    /// Parts of more than one buffer were to be rejoined.
    #[error(
        "parts of {} and of {} were given: rejoin those of one buffer at a time", buffers[0], buffers[1]
    )]
    #[non_exhaustive]
    PartsOfSeveral {
        /// Two of them.
        buffers: [String; 2],
    },

    /// Not all parts of a buffer were given to be rejoined.
    #[error(
        "none of the parts given has elements {}..{} of {buffer}, which has {len}: give all parts, also \
         those without elements; one that was dropped cannot come back, and the others stay usable, with \
         the memory, until the last is dropped", elements.start, elements.end
    )]
    #[non_exhaustive]
    PartsMissing {
        /// Of which buffer.
        buffer: String,
        /// The first ones that are missing; none where a part without elements is.
        elements: Range<usize>,
        /// How many the buffer has.
        len: usize,
    },

    /// A value that [`DeviceBuffer::fill`](crate::DeviceBuffer::fill) does not take, there.
    #[error(
        "filling with a value of {element_size} bytes that does not repeat after 4, 2 or 1 would take \
         {calls} driver calls here, of {most} at most: upload the elements instead"
    )]
    #[non_exhaustive]
    FillTooWide {
        /// Bytes of an element.
        element_size: usize,
        /// Calls it would take.
        calls: usize,
        /// The most there may be.
        most: usize,
    },

    /// A buffer, stream or event of one device was used with another.
    #[error(
        "{operation}: `{argument}` belongs to device {of}, the operation runs on device {on}: use \
         memory of one device, or go through pinned memory"
    )]
    #[non_exhaustive]
    WrongDevice {
        /// What was to be done.
        operation: &'static str,
        /// Name of the argument.
        argument: &'static str,
        /// The buffer's device.
        of: u32,
        /// The operation's device.
        on: u32,
    },

    /// The default stream of a thread was used on another thread: a scope of it moved there.
    #[error(
        "stream {stream} is the default stream of another thread, and no call can be made on it from \
         this one: use it on its thread alone, or a stream of `device.stream()`"
    )]
    #[non_exhaustive]
    WrongThread {
        /// The stream's number in its device, as [`Stream::number`](crate::Stream::number).
        stream: usize,
    },

    /// A device has as many streams of this process as it may: those it was opened with and the
    /// default streams of threads that live, or whose work is not done, or that someone still has.
    #[error(
        "the device has {limit} streams, as many as it may: let threads end that asked for their default \
         stream, drop what belongs to it, and share streams instead"
    )]
    #[non_exhaustive]
    TooManyStreams {
        /// How many it may have.
        limit: usize,
    },

    /// The device has not enough memory, or not as much is left within the `Device`'s
    /// [limit](crate::DeviceBuilder::memory_limit): after what can be reused was looked for, and what is kept was
    /// given back to the driver.
    #[error(
        "out of device memory: {requested} bytes asked for, {} free on the device, {cached} kept and {in_flight} \
         in flight of at most {limit}; {}",
        free.map_or("an unknown number".into(), |free| free.to_string()),
        if requested > limit { "ask for less" } else {
            "drop buffers, or wait for others to be dropped with `alloc_wait`"
        }
    )]
    #[non_exhaustive]
    OutOfMemory {
        /// Bytes asked for.
        requested: u64,
        /// Bytes that nobody has, of any process, where the driver says how many.
        free: Option<u64>,
        /// Bytes of buffers that were dropped, which operations may still touch.
        in_flight: u64,
        /// Bytes kept for reuse.
        cached: u64,
        /// Bytes that the `Device` may have. The driver is not asked for more.
        limit: u64,
    },

    /// A tenant was to have more device memory than its budget.
    #[error(
        "{requested} bytes were to be taken of a budget of {budget}, of which {in_use} are taken; {}",
        if requested > budget { "ask for less" } else {
            "drop buffers of this tenant, or wait for that with `alloc_wait`"
        }
    )]
    #[non_exhaustive]
    OverBudget {
        /// Bytes asked for.
        requested: u64,
        /// Bytes of the tenant's buffers.
        in_use: u64,
        /// Bytes that these may be.
        budget: u64,
    },

    /// There is no more memory to lock for copies, by the system or by
    /// [`pinned_limit`](crate::DeviceBuilder::pinned_limit): what [`alloc_host`], [`upload`] and
    /// [`to_vec`] use. Blocks given back are used again, and where freeing idle ones would make room that
    /// has been begun: it may pass.
    ///
    /// [`alloc_host`]: crate::Device::alloc_host
    /// [`upload`]: crate::Device::upload
    /// [`to_vec`]: crate::DeviceBuffer::to_vec
    #[error(
        "out of pinned memory: {requested} bytes asked for{}{}; {in_use} are in use, {in_flight} in flight and \
         {idle} idle: drop host buffers, wait for copies in flight, or await `trim_pinned`, then try again",
        limit.map_or(String::new(), |limit| format!(", {limit} allowed in all")),
        cause.map_or(String::new(), |cause| format!(" ({cause})"))
    )]
    #[non_exhaustive]
    OutOfPinnedMemory {
        /// Bytes asked for.
        requested: usize,
        /// Bytes of buffers.
        in_use: usize,
        /// Bytes of buffers that were dropped, which operations may still touch.
        in_flight: usize,
        /// Bytes kept for reuse, in blocks that are too small or of the other kind.
        idle: usize,
        /// What all may be together, if anything was said.
        limit: Option<usize>,
        /// What the driver said; `None` where it is the limit that was reached.
        cause: Option<DriverError>,
    },

    /// A size in bytes does not fit the address space.
    #[error(
        "{len} elements of {element_size} bytes cannot be addressed: ask for at most {}",
        isize::MAX as usize / (*element_size).max(1)
    )]
    #[non_exhaustive]
    TooLarge {
        /// Elements asked for.
        len: usize,
        /// Bytes each.
        element_size: usize,
    },

    /// The device still works on the buffer (`try_read`, `try_write`).
    #[error("{buffer} is still in flight: await `read` or `write` instead")]
    #[non_exhaustive]
    InFlight {
        /// Which buffer.
        buffer: String,
    },

    /// A transfer of ordinary memory that conflicts has not enqueued all of its copies yet: a
    /// [`refill`](crate::DeviceBuffer::refill) that was dropped, or a future that was forgotten.
    #[error(
        "{operation}: `{argument}` ({buffer}) is in the middle of a transfer: await it, or try again later"
    )]
    #[non_exhaustive]
    Busy {
        /// What was to be done.
        operation: &'static str,
        /// Name of the argument.
        argument: &'static str,
        /// Which buffer.
        buffer: String,
    },

    /// Bytes that are no whole number of elements.
    #[error("{bytes} bytes are no whole number of elements of {element_size}: give a multiple")]
    #[non_exhaustive]
    UnfinishedElement {
        /// Bytes given.
        bytes: usize,
        /// Bytes of an element.
        element_size: usize,
    },

    /// A borrowed slice did not fit the pinned memory that there was: it is copied inside the call.
    #[error(
        "a borrowed slice of {bytes} bytes found pinned memory for {staged} of them: pass an owned `Vec`"
    )]
    #[non_exhaustive]
    TooMuchBorrowed {
        /// Bytes of the slice.
        bytes: usize,
        /// How many were copied.
        staged: usize,
    },

    /// Staging was to use less pinned memory than one of its chunks takes.
    #[error("staging with a limit of {limit} bytes and chunks of {chunk}: it has to hold one")]
    #[non_exhaustive]
    StagingTooSmall {
        /// Bytes of pinned memory in all.
        limit: usize,
        /// Bytes of a chunk.
        chunk: usize,
    },

    /// A kernel cannot be launched so, or not at all.
    #[error("{0}")]
    Kernel(KernelError),

    /// A launch without a buffer, outside any scope: there is nothing to tell its device by.
    #[error(
        "{operation}: no argument and no scope says on which device this runs: launch it inside \
         `device.scope(…)` or `stream.in_scope(…)`"
    )]
    #[non_exhaustive]
    NoCurrentDevice {
        /// What was to be done.
        operation: &'static str,
    },

    /// A helper thread could not be started.
    #[error(
        "could not start a thread: {0}; the limits of the process or of the machine on threads and \
         memory are reached"
    )]
    Thread(Arc<std::io::Error>),

    /// Something could not be given back to the driver, and stays allocated. Told to
    /// [`DeviceBuilder::on_error`](crate::DeviceBuilder::on_error), since the last handle was
    /// dropped; no call returns it.
    #[error("{what} could not be given back and stays allocated, unused: {why}")]
    #[non_exhaustive]
    NotReleased {
        /// What it is.
        what: String,
        /// What went wrong.
        why: Box<Error>,
    },
}
