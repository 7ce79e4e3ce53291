//! The one error type of the crate.

use std::ops::Range;
use std::sync::Arc;

use crate::driver::DriverError;

mod failure;

pub use failure::{DeviceFailure, InFlight};

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

    /// The CUDA driver is older than this crate can do with.
    #[error(
        "the CUDA driver supports CUDA {}.{}, headwater needs {}.{} or newer: update the driver, or \
         set HEADWATER_DEVICE=sim to run on the simulated device",
        found / 1000, found % 1000 / 10, needed / 1000, needed % 1000 / 10
    )]
    DriverTooOld {
        /// CUDA version that the driver supports, as 1000 * major + 10 * minor.
        found: u32,
        /// The least that is needed.
        needed: u32,
    },

    /// What was found as the CUDA driver library is none that works.
    #[error(
        "the CUDA driver library cannot be used ({0}): it lacks a function, or is the toolkit's \
         stub; install a driver, and see that its libcuda is found first"
    )]
    DriverBroken(DriverError),

    /// The driver has no such device.
    #[error(
        "there is no CUDA device {ordinal}: {visible} visible, counted from 0; CUDA_VISIBLE_DEVICES \
         can hide some"
    )]
    NoDevice {
        /// Index asked for.
        ordinal: usize,
        /// How many there are.
        visible: usize,
    },

    /// A setting in the environment or of the builder that means nothing.
    #[error("{name} is {given:?}: it takes {allowed}")]
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
    #[error(
        "the driver refused {operation}, of which nothing was done: {source}{}",
        advice(source)
    )]
    Refused {
        /// What was to be done.
        operation: &'static str,
        /// What the driver said.
        source: DriverError,
    },

    /// The driver took a part of an operation that is several calls, and refused the rest: what
    /// the operation was to write is undefined, and reading it is
    /// [`Uninitialised`](Error::Uninitialised).
    #[error(
        "the driver refused a part of {operation}: {source}{}; what it was to write is undefined: \
         write it again before reading it",
        advice(source)
    )]
    PartlyRefused {
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
         fill or copy into them first, or use a kernel declared with `fills`"
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
        "{operation}: the source has {source_len} elements and the destination {destination_len}; \
         they must have as many"
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
    #[error(
        "{operation}: `{argument}` belongs to device {of}, the operation runs on device {on}: use \
         memory of one device, or go through pinned memory"
    )]
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
    #[error(
        "out of device memory: {requested} bytes asked for, {free} free ({source}); drop buffers, \
         or wait until those dropped are free"
    )]
    OutOfMemory {
        /// Bytes asked for.
        requested: usize,
        /// Bytes the driver says are free.
        free: u64,
        /// What the driver said.
        source: DriverError,
    },

    /// A size in bytes does not fit the address space.
    #[error(
        "{len} elements of {element_size} bytes cannot be addressed: ask for at most {}",
        isize::MAX as usize / (*element_size).max(1)
    )]
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
    #[error("kernel {kernel} requires {condition}{}", lengths(given))]
    Requirement {
        /// The kernel.
        kernel: &'static str,
        /// The condition as declared.
        condition: &'static str,
        /// Name and length in elements of each slice that was given.
        given: Vec<(&'static str, usize)>,
    },

    /// A launch geometry that the device does not take.
    #[error("kernel {kernel}: {what} is {given:?}; this device takes 1 to {allowed:?}")]
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

    /// What was declared as the PTX of a kernel's module is no PTX.
    #[error(
        "kernel {kernel}: what was declared as PTX in {module} is none, {why}: give its text, as \
         with `ptx = include_str!(…)`"
    )]
    NotPtx {
        /// The kernel.
        kernel: &'static str,
        /// Where its module is declared.
        module: &'static str,
        /// What it has or lacks.
        why: &'static str,
    },

    /// The driver did not take a module, or not this kernel of it.
    #[error(
        "kernel {kernel}: the driver did not take the PTX declared in {module}: {source}{}{}; compile it \
         again, for this GPU or an older one",
        if log.is_empty() { "" } else { ": " }, log
    )]
    PtxRejected {
        /// The kernel.
        kernel: &'static str,
        /// Where its module is declared.
        module: &'static str,
        /// What the driver said.
        source: DriverError,
        /// What its compiler said: up to 8 KiB.
        log: Arc<str>,
    },

    /// A module's PTX is of a newer version than the driver takes.
    #[error(
        "kernel {kernel}: the PTX declared in {module} is of version {version}, newer than a driver for CUDA \
         {}.{} takes ({source}): update the driver, or compile with an older NVRTC or nvcc",
        driver_version / 1000, driver_version % 1000 / 10
    )]
    PtxTooNew {
        /// The kernel.
        kernel: &'static str,
        /// Where its module is declared.
        module: &'static str,
        /// The PTX's `.version`.
        version: Arc<str>,
        /// As [`DeviceInfo::driver_version`](crate::DeviceInfo::driver_version).
        driver_version: u32,
        /// What the driver said.
        source: DriverError,
    },

    /// A module's PTX has no kernel of that name.
    #[error(
        "kernel {kernel}: the PTX declared in {module} has no kernel `{entry}`, it has {found:?}: name one of \
         them with `entry = \"…\"`, and compile C++ kernels as `extern \"C\"`"
    )]
    NoSuchKernel {
        /// The kernel.
        kernel: &'static str,
        /// Where its module is declared.
        module: &'static str,
        /// The name looked for.
        entry: &'static str,
        /// The names there are.
        found: Vec<String>,
    },

    /// A kernel was declared with other parameters than it has.
    #[error(
        "kernel {kernel}: it is declared with parameters of {declared:?} bytes, `{entry}` in the PTX \
         declared in {module} has {found:?}: have `#[args(…)]` say what the kernel takes"
    )]
    SignatureMismatch {
        /// The kernel.
        kernel: &'static str,
        /// Where its module is declared.
        module: &'static str,
        /// Its name in the PTX.
        entry: &'static str,
        /// Bytes of each parameter as declared.
        declared: Vec<usize>,
        /// Bytes of each parameter in the PTX.
        found: Vec<usize>,
    },

    /// A simulated device was to run a kernel that has no equivalent in Rust.
    #[error(
        "kernel {kernel} has no #[twin], which a simulated device runs in its place: declare one, or \
         launch it on a GPU"
    )]
    NoTwin {
        /// The kernel.
        kernel: &'static str,
    },

    /// A kernel whose module came into the process after the device was opened.
    #[error(
        "kernel {kernel}: its module came into the process after the device was opened, with a \
         library loaded since: open the device after that"
    )]
    NotLoaded {
        /// The kernel.
        kernel: &'static str,
    },

    /// A launch without a buffer, outside any scope: there is nothing to tell its device by.
    #[error(
        "{operation}: no argument and no scope says on which device this runs: launch it inside \
         `device.scope(…)` or `stream.in_scope(…)`"
    )]
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
    NotReleased {
        /// What it is.
        what: String,
        /// What went wrong.
        why: Box<Error>,
    },
}

/// What can be done about an error of the driver's, where that can be said.
fn advice(source: &DriverError) -> &'static str {
    match source.code() {
        2 => "; memory of this kind is used up: drop some first",
        701 => "; its blocks need more registers or shared memory than there are: use smaller ones",
        900..=908 => "; a graph capture under way forbids it: end that first",
        _ => "",
    }
}

/// What was given, for a message.
fn lengths(given: &[(&'static str, usize)]) -> String {
    let each = |(name, len): &(&str, usize)| format!("{name}.len() = {len}");
    match given {
        [] => String::new(),
        given => format!("; given {}", given.iter().map(each).collect::<Vec<_>>().join(", ")),
    }
}
