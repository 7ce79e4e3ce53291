//! The calls of the seam, by name.

macro_rules! calls {
    ($($call:ident = $name:literal,)*) => {
        /// A call of the driver, by what it does. [`DriverCalls`](crate::DriverCalls) counts them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum DriverCall {
            $(#[doc = concat!("`", $name, "`.")] $call,)*
        }

        impl DriverCall {
            /// Every call.
            pub const ALL: &[DriverCall] = &[$(DriverCall::$call,)*];

            /// CUDA's name of the function, as [`DriverError::call`](crate::DriverError::call)
            /// gives it.
            pub fn name(self) -> &'static str {
                match self {
                    $(DriverCall::$call => $name,)*
                }
            }
        }
    };
}

calls! {
    StreamCreate = "cuStreamCreateWithPriority",
    StreamDestroy = "cuStreamDestroy",
    StreamWait = "cuStreamWaitEvent",
    EventCreate = "cuEventCreate",
    EventDestroy = "cuEventDestroy",
    EventRecord = "cuEventRecord",
    EventQuery = "cuEventQuery",
    EventElapsed = "cuEventElapsedTime",
    RelaxCapture = "cuThreadExchangeStreamCaptureMode",
    Alloc = "cuMemAllocFromPoolAsync",
    Free = "cuMemFreeAsync",
    MemoryFree = "cuMemGetInfo",
    PoolTrim = "cuMemPoolTrimTo",
    PoolUsage = "cuMemPoolGetAttribute",
    HostAlloc = "cuMemHostAlloc",
    HostFree = "cuMemFreeHost",
    HostRegister = "cuMemHostRegister",
    HostUnregister = "cuMemHostUnregister",
    CopyH2D = "cuMemcpyHtoDAsync",
    CopyD2H = "cuMemcpyDtoHAsync",
    CopyD2D = "cuMemcpyDtoDAsync",
    CopyRows = "cuMemcpy2DAsync",
    CopyPlanes = "cuMemcpy3DAsync",
    CopyPeer = "cuMemcpyPeerAsync",
    Fill = "cuMemsetAsync",
    ModuleLoad = "cuModuleLoadData",
    ModuleUnload = "cuModuleUnload",
    ModuleFunction = "cuModuleGetFunction",
    Launch = "cuLaunchKernel",
}
