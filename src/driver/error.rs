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

macro_rules! codes {
    ($($name:ident = $code:literal $($sticky:ident)?,)*) => {
        impl DriverError {
            $(
                #[doc = concat!("`CUDA_ERROR_", stringify!($name), "`.")]
                pub const $name: u32 = $code;
            )*
        }

        /// (code, name, sticky). Kept here because `cuGetErrorName` is not to be had where the
        /// driver library is missing.
        const CODES: &[(u32, &str, bool)] =
            &[$(($code, stringify!($name), codes!(@sticky $($sticky)?))),*];
    };
    (@sticky sticky) => { true };
    (@sticky) => { false };
}

codes! {
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    DEINITIALIZED = 4,
    STUB_LIBRARY = 34,
    DEVICE_UNAVAILABLE = 46,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    ECC_UNCORRECTABLE = 214 sticky,
    INVALID_PTX = 218,
    NVLINK_UNCORRECTABLE = 220 sticky,
    JIT_COMPILER_NOT_FOUND = 221,
    UNSUPPORTED_PTX_VERSION = 222,
    JIT_COMPILATION_DISABLED = 223,
    UNSUPPORTED_EXEC_AFFINITY = 224,
    CONTAINED = 226 sticky,
    SHARED_OBJECT_SYMBOL_NOT_FOUND = 302,
    SHARED_OBJECT_INIT_FAILED = 303,
    OPERATING_SYSTEM = 304,
    INVALID_HANDLE = 400,
    ILLEGAL_STATE = 401,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700 sticky,
    LAUNCH_OUT_OF_RESOURCES = 701,
    LAUNCH_TIMEOUT = 702 sticky,
    CONTEXT_IS_DESTROYED = 709 sticky,
    ASSERT = 710 sticky,
    HOST_MEMORY_ALREADY_REGISTERED = 712,
    HOST_MEMORY_NOT_REGISTERED = 713,
    HARDWARE_STACK_ERROR = 714 sticky,
    ILLEGAL_INSTRUCTION = 715 sticky,
    MISALIGNED_ADDRESS = 716 sticky,
    INVALID_ADDRESS_SPACE = 717 sticky,
    INVALID_PC = 718 sticky,
    LAUNCH_FAILED = 719 sticky,
    TENSOR_MEMORY_LEAK = 721 sticky,
    NOT_PERMITTED = 800,
    NOT_SUPPORTED = 801,
    SYSTEM_NOT_READY = 802,
    SYSTEM_DRIVER_MISMATCH = 803,
    STREAM_CAPTURE_UNSUPPORTED = 900,
    UNKNOWN = 999 sticky,
}

impl DriverError {
    pub(crate) const fn new(call: &'static str, code: u32) -> Self {
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

    /// Whether it is of what a kernel did, and nothing else. A timeout (702) is of whatever does not
    /// end: on a simulated device that can be a copy.
    pub(crate) fn is_of_kernel(&self) -> bool {
        matches!(self.code, 700 | 710 | 714..=719 | 721)
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
