//! The kernels loaded on a device.

use crate::driver::{FunctionHandle, ModuleHandle};
use crate::error::Result;

/// A kernel on this device, or why it cannot be launched here.
pub(crate) type LoadedFunction = Result<FunctionHandle>;

/// The kernels registered in this process, as loaded on one device.
#[derive(Default)]
pub(crate) struct FunctionTable {
    /// By the kernel's number in this process; `None` for one that was not registered.
    pub(crate) functions: Vec<Option<LoadedFunction>>,
    /// What the functions live in.
    pub(crate) modules: Vec<ModuleHandle>,
}
