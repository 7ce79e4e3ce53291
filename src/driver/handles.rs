//! Names of what a driver made.

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        /// The default names nothing: it is left behind in a `Drop`, and given to no driver.
        #[derive(Debug, Default, PartialEq, Eq, Hash)]
        pub(crate) struct $name(u64);
        impl $name {
            pub(in crate::driver) fn new(raw: u64) -> Self {
                $name(raw)
            }
            /// The driver's own value.
            pub(crate) fn raw(&self) -> u64 {
                self.0
            }
        }
    )*};
}

handles! {
    /// A `CUstream`, made non-blocking (not ordered with the legacy default stream).
    StreamHandle
    /// A `CUevent`.
    EventHandle
    /// A `CUmodule`.
    ModuleHandle
    /// A `CUfunction`; lives as long as its module.
    FunctionHandle
}

/// The context of a device, to say on which device memory is. It is there for as long as the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ContextHandle(u64);

impl ContextHandle {
    pub(in crate::driver) fn new(raw: u64) -> Self {
        ContextHandle(raw)
    }

    /// The driver's own value: a `CUcontext` on CUDA.
    pub(in crate::driver) fn raw(self) -> u64 {
        self.0
    }
}
