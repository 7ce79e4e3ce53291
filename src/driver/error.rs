//! What a driver call answers when it does not answer `Ok`.

use std::fmt;

/// A `CUresult` other than success, with the call that returned it.
///
/// The simulated device answers with CUDA's own codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DriverError {
    call: &'static str,
    code: u32,
}

/// (code, name, sticky). Names are CUDA's, less the `CUDA_ERROR_` in front. Kept here because
/// `cuGetErrorName` is not to be had where the driver library is missing.
const CODES: &[(u32, &str, bool)] = &[
    (1, "INVALID_VALUE", false),
    (2, "OUT_OF_MEMORY", false),
    (3, "NOT_INITIALIZED", false),
    (4, "DEINITIALIZED", false),
    (34, "STUB_LIBRARY", false),
    (46, "DEVICE_UNAVAILABLE", false),
    (100, "NO_DEVICE", false),
    (101, "INVALID_DEVICE", false),
    (200, "INVALID_IMAGE", false),
    (201, "INVALID_CONTEXT", false),
    (209, "NO_BINARY_FOR_GPU", false),
    (214, "ECC_UNCORRECTABLE", true),
    (220, "NVLINK_UNCORRECTABLE", true),
    (226, "CONTAINED", true),
    (218, "INVALID_PTX", false),
    (222, "UNSUPPORTED_PTX_VERSION", false),
    (302, "SHARED_OBJECT_SYMBOL_NOT_FOUND", false),
    (303, "SHARED_OBJECT_INIT_FAILED", false),
    (304, "OPERATING_SYSTEM", false),
    (400, "INVALID_HANDLE", false),
    (401, "ILLEGAL_STATE", false),
    (500, "NOT_FOUND", false),
    (600, "NOT_READY", false),
    (700, "ILLEGAL_ADDRESS", true),
    (701, "LAUNCH_OUT_OF_RESOURCES", false),
    (702, "LAUNCH_TIMEOUT", true),
    (709, "CONTEXT_IS_DESTROYED", true),
    (710, "ASSERT", true),
    (714, "HARDWARE_STACK_ERROR", true),
    (715, "ILLEGAL_INSTRUCTION", true),
    (716, "MISALIGNED_ADDRESS", true),
    (717, "INVALID_ADDRESS_SPACE", true),
    (718, "INVALID_PC", true),
    (719, "LAUNCH_FAILED", true),
    (721, "TENSOR_MEMORY_LEAK", true),
    (800, "NOT_PERMITTED", false),
    (801, "NOT_SUPPORTED", false),
    (802, "SYSTEM_NOT_READY", false),
    (803, "SYSTEM_DRIVER_MISMATCH", false),
    (900, "STREAM_CAPTURE_UNSUPPORTED", false),
    (999, "UNKNOWN", true),
];

impl DriverError {
    pub(crate) const INVALID_VALUE: u32 = 1;
    pub(crate) const OUT_OF_MEMORY: u32 = 2;
    pub(crate) const NO_DEVICE: u32 = 100;
    pub(crate) const INVALID_DEVICE: u32 = 101;
    /// The library of the toolkit, made to link with and not to run.
    pub(crate) const STUB_LIBRARY: u32 = 34;
    pub(crate) const UNSUPPORTED_PTX_VERSION: u32 = 222;
    /// What this crate answers for a driver that is too old.
    pub(crate) const TOO_OLD: u32 = 803;
    /// What this crate answers for a symbol that the installed driver lacks.
    pub(crate) const SYMBOL_NOT_FOUND: u32 = 302;
    /// What this crate answers when there is no driver library.
    pub(crate) const NO_LIBRARY: u32 = 303;

    pub(crate) fn new(call: &'static str, code: u32) -> Self {
        DriverError { call, code }
    }

    /// The driver call, such as `cuLaunchKernel`.
    pub fn call(&self) -> &'static str {
        self.call
    }

    /// The `CUresult`.
    pub fn code(&self) -> u32 {
        self.code
    }

    /// CUDA's name of the code without `CUDA_ERROR_`; `"?"` for one this crate does not know.
    pub fn name(&self) -> &'static str {
        self.entry().map_or("?", |e| e.1)
    }

    /// Whether the error ends the use of the device in this process: every later call on it fails.
    pub fn is_sticky(&self) -> bool {
        self.entry().is_some_and(|e| e.2)
    }

    /// Whether it is of what a kernel did, and nothing else.
    pub(crate) fn is_of_kernel(&self) -> bool {
        matches!(self.code, 700 | 702 | 710 | 714..=719 | 721)
    }

    /// Whether a graph capture forbade the call.
    pub(crate) fn is_of_capture(&self) -> bool {
        (900..=908).contains(&self.code)
    }

    fn entry(&self) -> Option<&'static (u32, &'static str, bool)> {
        CODES.iter().find(|e| e.0 == self.code)
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} returned {} (CUDA_ERROR_{})", self.call, self.code, self.name())
    }
}

impl std::error::Error for DriverError {}
