//! Counts the calls that cross the seam.
//!
//! A decorator, chosen when a device is built: where nobody counts there is nothing in the way.
//! Every call counts, whether it succeeded or not, and counts before it is made.

use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{
    DeviceInfo, DevicePtr, Driver, DriverResult, EventHandle, Fill, FunctionHandle, Launch,
    ModuleHandle, PtxError, StreamHandle,
};

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
        struct Counters {
            $($field: AtomicU64,)*
        }

        impl Counters {
            fn snapshot(&self) -> DriverCalls {
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
    /// `cuMemGetInfo`.
    memory_queries,
    /// `cuMemHostAlloc`.
    host_allocs,
    /// `cuMemFreeHost`.
    host_frees,
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

/// A driver that counts its calls and passes them on.
pub(crate) struct Counted {
    inner: Arc<dyn Driver>,
    counters: Counters,
}

impl Counted {
    pub(crate) fn new(inner: Arc<dyn Driver>) -> Arc<Self> {
        Arc::new(Counted { inner, counters: Counters::default() })
    }

    /// The counts so far. Relaxed: calls that other threads are making may be in it or not.
    pub(crate) fn calls(&self) -> DriverCalls {
        self.counters.snapshot()
    }
}

fn one(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

// SAFETY (all unsafe calls in here): the inner driver has the same contract, the caller keeps it,
// and every argument is passed on as it came.
#[allow(unsafe_code)]
impl Driver for Counted {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn stream_create(&self, priority: i32) -> DriverResult<StreamHandle> {
        one(&self.counters.stream_creates);
        self.inner.stream_create(priority)
    }

    fn stream_destroy(&self, stream: StreamHandle) -> DriverResult<()> {
        one(&self.counters.stream_destroys);
        self.inner.stream_destroy(stream)
    }

    fn stream_wait(&self, stream: &StreamHandle, event: &EventHandle) -> DriverResult<()> {
        one(&self.counters.stream_waits);
        self.inner.stream_wait(stream, event)
    }

    fn event_create(&self, timed: bool) -> DriverResult<EventHandle> {
        one(&self.counters.event_creates);
        self.inner.event_create(timed)
    }

    fn event_destroy(&self, event: EventHandle) -> DriverResult<()> {
        one(&self.counters.event_destroys);
        self.inner.event_destroy(event)
    }

    fn event_record(&self, event: &EventHandle, stream: &StreamHandle) -> DriverResult<()> {
        one(&self.counters.event_records);
        self.inner.event_record(event, stream)
    }

    fn event_query(&self, event: &EventHandle) -> DriverResult<bool> {
        one(&self.counters.event_queries);
        self.inner.event_query(event)
    }

    fn event_elapsed(&self, start: &EventHandle, end: &EventHandle) -> DriverResult<Duration> {
        one(&self.counters.event_elapsed);
        self.inner.event_elapsed(start, end)
    }

    fn relax_capture(&self) -> DriverResult<()> {
        self.inner.relax_capture()
    }

    fn alloc(&self, bytes: usize, stream: &StreamHandle) -> DriverResult<DevicePtr> {
        one(&self.counters.allocs);
        self.inner.alloc(bytes, stream)
    }

    unsafe fn free(&self, ptr: DevicePtr, stream: &StreamHandle) -> DriverResult<()> {
        one(&self.counters.frees);
        // SAFETY: as said at the impl.
        unsafe { self.inner.free(ptr, stream) }
    }

    fn memory_free(&self) -> DriverResult<u64> {
        one(&self.counters.memory_queries);
        self.inner.memory_free()
    }

    fn host_alloc(&self, bytes: usize) -> DriverResult<NonNull<u8>> {
        one(&self.counters.host_allocs);
        self.inner.host_alloc(bytes)
    }

    unsafe fn host_free(&self, ptr: NonNull<u8>) -> DriverResult<()> {
        one(&self.counters.host_frees);
        // SAFETY: as said at the impl.
        unsafe { self.inner.host_free(ptr) }
    }

    unsafe fn copy_h2d(
        &self,
        dst: DevicePtr,
        src: NonNull<u8>,
        bytes: usize,
        stream: &StreamHandle,
    ) -> DriverResult<()> {
        one(&self.counters.copies);
        // SAFETY: as said at the impl.
        unsafe { self.inner.copy_h2d(dst, src, bytes, stream) }
    }

    unsafe fn copy_d2h(
        &self,
        dst: NonNull<u8>,
        src: DevicePtr,
        bytes: usize,
        stream: &StreamHandle,
    ) -> DriverResult<()> {
        one(&self.counters.copies);
        // SAFETY: as said at the impl.
        unsafe { self.inner.copy_d2h(dst, src, bytes, stream) }
    }

    unsafe fn copy_d2d(
        &self,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
        stream: &StreamHandle,
    ) -> DriverResult<()> {
        one(&self.counters.copies);
        // SAFETY: as said at the impl.
        unsafe { self.inner.copy_d2d(dst, src, bytes, stream) }
    }

    unsafe fn fill(&self, fill: Fill, stream: &StreamHandle) -> DriverResult<()> {
        one(&self.counters.fills);
        // SAFETY: as said at the impl.
        unsafe { self.inner.fill(fill, stream) }
    }

    fn module_load(&self, ptx: &CStr) -> Result<ModuleHandle, PtxError> {
        one(&self.counters.module_loads);
        self.inner.module_load(ptx)
    }

    fn module_unload(&self, module: ModuleHandle) -> DriverResult<()> {
        one(&self.counters.module_unloads);
        self.inner.module_unload(module)
    }

    fn module_function(&self, module: &ModuleHandle, name: &CStr) -> DriverResult<FunctionHandle> {
        one(&self.counters.function_lookups);
        self.inner.module_function(module, name)
    }

    unsafe fn launch(&self, launch: &Launch<'_>, stream: &StreamHandle) -> DriverResult<()> {
        one(&self.counters.launches);
        // SAFETY: as said at the impl.
        unsafe { self.inner.launch(launch, stream) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::driver::sim::{SimOptions, open};

    #[test]
    fn every_call_counts_whether_it_succeeds_or_not() {
        let counted = Counted::new(open(SimOptions::new()).0);
        let stream = counted.stream_create(0).unwrap();
        let before = counted.calls();
        assert!(counted.alloc(0, &stream).is_err());
        let event = counted.event_create(false).unwrap();
        counted.event_record(&event, &stream).unwrap();
        counted.event_query(&event).unwrap();
        counted.event_query(&event).unwrap();
        let expected = DriverCalls {
            allocs: 1,
            event_creates: 1,
            event_records: 1,
            event_queries: 2,
            ..DriverCalls::default()
        };
        assert_eq!(counted.calls().since(&before), expected);
        assert_eq!(before.stream_creates, 1);
    }
}
