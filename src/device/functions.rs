//! The kernels loaded on a device.

use std::sync::Arc;

use crate::driver::{FunctionHandle, ModuleHandle};

/// A kernel on this device, or why it cannot be launched here.
pub(crate) type LoadedFunction = Result<FunctionHandle, Arc<str>>;

/// The kernels registered in this process, as loaded on one device.
#[derive(Default)]
pub(crate) struct FunctionTable {
    /// By the kernel's number in this process.
    pub(crate) functions: Vec<LoadedFunction>,
    /// What the functions live in.
    pub(crate) modules: Vec<ModuleHandle>,
}
