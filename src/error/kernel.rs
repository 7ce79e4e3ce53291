//! Why a kernel is not launched.

use std::sync::Arc;

use super::shown::sizes;
use crate::driver::DriverError;

/// Why a kernel cannot be launched with what it was given, or not at all. As an [`Error`](crate::Error) it is
/// [`Error::Kernel`](crate::Error::Kernel).
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The condition that a kernel's declaration requires of its arguments does not hold.
    #[error("kernel {kernel} requires {condition}{}", sizes(given))]
    #[non_exhaustive]
    Requirement {
        /// The kernel.
        kernel: &'static str,
        /// The condition as declared.
        condition: &'static str,
        /// What was given: the length of each slice as `name.len()`, and `rows()`, `columns()` and
        /// `stride()` of each tile.
        given: Vec<(&'static str, usize)>,
    },

    /// A launch geometry that the device does not take.
    #[error("kernel {kernel}: {what} is {given:?}; this device takes 1 to {allowed:?}")]
    #[non_exhaustive]
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
    #[non_exhaustive]
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
        "kernel {kernel}: the driver did not take the PTX declared in {module}: {cause}{}{}; compile it \
         again, for this GPU or an older one",
        if log.is_empty() { "" } else { ": " }, log
    )]
    #[non_exhaustive]
    PtxRejected {
        /// The kernel.
        kernel: &'static str,
        /// Where its module is declared.
        module: &'static str,
        /// What the driver said.
        cause: DriverError,
        /// What its compiler said: up to 8 KiB.
        log: Arc<str>,
    },

    /// A module's PTX is of a newer version than the driver takes.
    #[error(
        "kernel {kernel}: the PTX declared in {module} is of version {version}, newer than a driver for CUDA \
         {}.{} takes ({cause}): update the driver, or compile with an older NVRTC or nvcc",
        driver_version / 1000, driver_version % 1000 / 10
    )]
    #[non_exhaustive]
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
        cause: DriverError,
    },

    /// A module's PTX has no kernel of that name.
    #[error(
        "kernel {kernel}: the PTX declared in {module} has no kernel `{entry}`, it has {found:?}: name one of \
         them with `entry = \"…\"`, and compile C++ kernels as `extern \"C\"`"
    )]
    #[non_exhaustive]
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
    #[non_exhaustive]
    SignatureMismatch {
        /// The kernel.
        kernel: &'static str,
        /// Where its module is declared.
        module: &'static str,
        /// Its name in the PTX.
        entry: &'static str,
        /// Bytes of each parameter as declared.
        declared: Arc<[usize]>,
        /// Bytes of each parameter in the PTX.
        found: Arc<[usize]>,
    },

    /// A simulated device was to run a kernel that has no equivalent in Rust.
    #[error(
        "kernel {kernel} has no #[twin], which a simulated device runs in its place: declare one, or \
         launch it on a GPU"
    )]
    #[non_exhaustive]
    NoTwin {
        /// The kernel.
        kernel: &'static str,
    },

    /// A kernel whose module came into the process after the device was opened.
    #[error(
        "kernel {kernel}: its module came into the process after the device was opened, with a \
         library loaded since: open the device after that"
    )]
    #[non_exhaustive]
    NotLoaded {
        /// The kernel.
        kernel: &'static str,
    },
}
