//! The one error type of the crate.

use std::ops::Range;
use std::sync::Arc;

use crate::driver::DriverError;

/// What every fallible call of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call was refused, or how awaited work ended.
///
/// Where an operation returns `Err`, it was not enqueued and changed no memory, unless its
/// documentation says otherwise.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This machine has no CUDA driver library.
    #[error(
        "no CUDA driver on this machine ({0}): install one, or set HEADWATER_DEVICE=sim to run on \
         the simulated device"
    )]
    NoDriver(DriverError),

    /// The driver has no such device.
    #[error(
        "there is no CUDA device {ordinal}: {visible} visible (CUDA_VISIBLE_DEVICES narrows that)"
    )]
    NoDevice {
        /// Index asked for.
        ordinal: usize,
        /// How many there are.
        visible: usize,
    },

    /// A setting in the environment or of the builder that means nothing.
    #[error("{name}={given:?} is not valid: {allowed}")]
    BadSetting {
        /// Variable or builder method.
        name: &'static str,
        /// What it was set to.
        given: String,
        /// What it can be set to.
        allowed: &'static str,
    },

    /// The crate was built without what the call needs.
    #[error("headwater was built without its `{0}` feature, which this call needs")]
    FeatureMissing(&'static str),

    /// The driver refused a call; nothing was enqueued.
    #[error("{operation}: {source}")]
    Refused {
        /// What was to be done.
        operation: &'static str,
        /// What the driver said.
        source: DriverError,
    },

    /// The device failed and cannot be used again in this process.
    #[error("{0}")]
    DeviceLost(Arc<DeviceFailure>),

    /// The stream holds as many unfinished operations as it may.
    #[error(
        "stream {stream} holds {in_flight} unfinished operations and takes {limit}: no room for \
         {needed} more; await `Stream::ready`, then try again"
    )]
    QueueFull {
        /// The stream's number in its device, and its role.
        stream: String,
        /// Operations enqueued and not known to be finished.
        in_flight: u64,
        /// How many the operation would have added: one for each driver call it makes.
        needed: u64,
        /// Where headwater stops, below the point where the driver would block.
        limit: u64,
    },

    /// Bytes were to be read that nothing wrote, or whose writer was refused.
    #[error(
        "{operation} reads bytes {range:?} of `{argument}` ({buffer}), which nothing has written: \
         fill or copy into them first"
    )]
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
        "{operation}: the source has {source_len} elements and the destination {destination_len}"
    )]
    LengthMismatch {
        /// What was to be done.
        operation: &'static str,
        /// Elements of the source.
        source_len: usize,
        /// Elements of the destination.
        destination_len: usize,
    },

    /// An element that [`DeviceBuffer::fill`](crate::DeviceBuffer::fill) does not take.
    #[error(
        "filling with elements of {element_size} bytes takes too many driver calls: such elements \
         have at most {most} bytes, or repeat after 4, 2 or 1; upload them instead"
    )]
    FillTooWide {
        /// Bytes of an element.
        element_size: usize,
        /// The most allowed for elements of no more alignment than these, where nothing repeats.
        most: usize,
    },

    /// A buffer, stream or event of one device was used with another.
    #[error("{operation}: `{argument}` belongs to device {of}, the operation runs on device {on}")]
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

    /// The device has not enough memory.
    #[error("out of device memory: {requested} bytes asked for, {free} free ({source})")]
    OutOfMemory {
        /// Bytes asked for.
        requested: usize,
        /// Bytes the driver says are free.
        free: u64,
        /// What the driver said.
        source: DriverError,
    },

    /// A size in bytes does not fit the address space.
    #[error("{len} elements of {element_size} bytes are more than can be addressed")]
    TooLarge {
        /// Elements asked for.
        len: usize,
        /// Bytes each.
        element_size: usize,
    },

    /// The device still works on the buffer (`try_read`, `try_write`).
    #[error("{buffer} is still in flight: await `read` or `write` instead")]
    InFlight {
        /// Which buffer.
        buffer: String,
    },

    /// The condition that a kernel's declaration requires of its arguments does not hold.
    #[error("kernel {kernel} requires {condition}")]
    Requirement {
        /// The kernel.
        kernel: &'static str,
        /// The condition as declared.
        condition: &'static str,
    },

    /// A launch geometry that the device does not take.
    #[error("kernel {kernel}: {what} is {given:?}, the device takes {allowed:?}")]
    Geometry {
        /// The kernel.
        kernel: &'static str,
        /// Grid, block or shared memory.
        what: &'static str,
        /// What was given, in x, y, z.
        given: [u64; 3],
        /// The most allowed, in x, y, z.
        allowed: [u64; 3],
    },

    /// A kernel that cannot be launched on this device, and why.
    #[error("kernel {kernel} cannot be launched: {why}")]
    KernelUnavailable {
        /// The kernel.
        kernel: &'static str,
        /// Its module did not load, lacks it, or disagrees with the declaration.
        why: Arc<str>,
    },

    /// A launch without a buffer, outside any scope: there is nothing to tell its device by.
    #[error("{operation}: no argument and no scope says on which device this runs")]
    NoCurrentDevice {
        /// What was to be done.
        operation: &'static str,
    },

    /// A helper thread could not be started.
    #[error("could not start a thread: {0}")]
    Thread(Arc<std::io::Error>),
}

/// How a device came to be lost.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "device {device} is lost: {source}{}; CUDA does not let this process use it again: restart \
     the process, or go on with other devices",
    self.operation.map(|o| format!(" during {o}")).unwrap_or_default()
)]
pub struct DeviceFailure {
    /// Number of the device among those this process opened.
    pub device: u32,
    /// The operation, where it is known.
    pub operation: Option<&'static str>,
    /// What the driver said first.
    pub source: DriverError,
}
