//! The other side: copies and allocations by the driver alone.
#![allow(unsafe_code, reason = "calls the driver")]

use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr::{self, null_mut};
use std::time::Instant;

use cudarc::driver::sys::*;

use crate::raw::{call, primary_context, stream};
use crate::{Answer, micros};

/// A stream, device memory, page-locked memory and a pool with the settings of ours. Never destroyed: it
/// lives as long as the process.
pub(crate) struct RawCopies {
    context: CUcontext,
    stream: CUstream,
    pool: CUmemoryPool,
}

/// Memory to copy between.
pub(crate) struct Memory {
    device: CUdeviceptr,
    host: *mut c_void,
    bytes: usize,
}

impl RawCopies {
    /// On the primary context of device `ordinal`.
    pub(crate) fn new(ordinal: usize) -> Answer<Self> {
        let (device, context) = primary_context(ordinal)?;
        let stream = stream()?;
        // SAFETY: integers, a pointer and enums that have a zero variant.
        let mut props: CUmemPoolProps = unsafe { mem::zeroed() };
        props.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        props.location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        props.location.id = device;
        let mut pool = null_mut();
        call!(cuMemPoolCreate(&mut pool, &props))?;
        let (mut threshold, mut dependencies) = (u64::MAX, 0 as c_int);
        use CUmemPool_attribute as Attribute;
        let threshold = ptr::from_mut(&mut threshold).cast();
        call!(cuMemPoolSetAttribute(
            pool,
            Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
            threshold
        ))?;
        let attribute = Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
        call!(cuMemPoolSetAttribute(pool, attribute, ptr::from_mut(&mut dependencies).cast()))?;
        call!(cuCtxSetCurrent(null_mut()))?;
        Ok(RawCopies { context, stream, pool })
    }

    /// Does it with the context current, which is none outside.
    fn within<T>(&self, f: impl FnOnce() -> Answer<T>) -> Answer<T> {
        call!(cuCtxSetCurrent(self.context))?;
        let done = f();
        call!(cuCtxSetCurrent(null_mut()))?;
        done
    }

    pub(crate) fn memory(&self, bytes: usize) -> Answer<Memory> {
        self.within(|| {
            let (mut device, mut host) = (0, null_mut());
            call!(cuMemAlloc_v2(&mut device, bytes))?;
            call!(cuMemHostAlloc(&mut host, bytes, CU_MEMHOSTALLOC_PORTABLE))?;
            // SAFETY: the block was just made, and has the bytes.
            unsafe { host.cast::<u8>().write_bytes(1, bytes) };
            Ok(Memory { device, host, bytes })
        })
    }

    pub(crate) fn give_back(&self, memory: Memory) -> Answer<()> {
        self.within(|| {
            call!(cuMemFree_v2(memory.device))?;
            call!(cuMemFreeHost(memory.host))?;
            Ok(())
        })
    }

    /// Microseconds of `times` copies of all of it, one way, until the last is done.
    pub(crate) fn copies(&self, memory: &Memory, up: bool, times: usize) -> Answer<f64> {
        self.within(|| {
            let Memory { device, host, bytes } = *memory;
            let start = Instant::now();
            for _ in 0..times {
                match up {
                    true => call!(cuMemcpyHtoDAsync_v2(device, host, bytes, self.stream))?,
                    false => call!(cuMemcpyDtoHAsync_v2(host, device, bytes, self.stream))?,
                }
            }
            call!(cuStreamSynchronize(self.stream))?;
            Ok(micros(start))
        })
    }

    /// Microseconds of an allocation and its free, of so many in turn.
    pub(crate) fn allocations(&self, bytes: usize, times: usize) -> Answer<f64> {
        self.within(|| {
            let start = Instant::now();
            for _ in 0..times {
                let mut memory = 0;
                call!(cuMemAllocFromPoolAsync(&mut memory, bytes, self.pool, self.stream))?;
                call!(cuMemFreeAsync(memory, self.stream))?;
            }
            let each = micros(start) / times as f64;
            call!(cuStreamSynchronize(self.stream))?;
            Ok(each)
        })
    }
}
