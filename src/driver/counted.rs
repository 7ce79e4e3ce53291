//! How often each call of the driver was made.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// How many driver calls of each kind a device has made.
        ///
        /// Counts grow only; the difference of two snapshots is what happened between them.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct DriverCalls {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl DriverCalls {
            /// What was counted after `earlier`, a snapshot of the same device.
            #[must_use]
            pub fn since(&self, earlier: &Self) -> Self {
                DriverCalls { $($field: self.$field.wrapping_sub(earlier.$field),)* }
            }
        }

        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub(super) $field: AtomicU64,)*
        }

        impl Counters {
            /// The counts so far. Relaxed: calls that other threads are making may be in it or not.
            pub(super) fn snapshot(&self) -> DriverCalls {
                DriverCalls { $($field: self.$field.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// `cuLaunchKernel`.
    launches,
    /// Copies in any direction.
    copies,
    /// Fills (`cuMemsetD…Async`).
    fills,
    /// `cuMemAllocFromPoolAsync`.
    allocs,
    /// `cuMemFreeAsync`.
    frees,
    /// `cuMemGetInfo`, `cuMemPoolGetAttribute`.
    memory_queries,
    /// `cuMemPoolTrimTo`.
    pool_trims,
    /// `cuMemHostAlloc`.
    host_allocs,
    /// `cuMemFreeHost`.
    host_frees,
    /// `cuMemHostRegister`.
    host_registers,
    /// `cuMemHostUnregister`.
    host_unregisters,
    /// `cuStreamCreateWithPriority`.
    stream_creates,
    /// `cuStreamDestroy`.
    stream_destroys,
    /// `cuStreamWaitEvent`.
    stream_waits,
    /// `cuEventCreate`.
    event_creates,
    /// `cuEventDestroy`.
    event_destroys,
    /// `cuEventRecord`.
    event_records,
    /// `cuEventQuery`.
    event_queries,
    /// `cuEventElapsedTime`.
    event_elapsed,
    /// `cuModuleLoadData`.
    module_loads,
    /// `cuModuleUnload`.
    module_unloads,
    /// `cuModuleGetFunction`.
    function_lookups,
}

/// Counts one.
pub(super) fn one(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
