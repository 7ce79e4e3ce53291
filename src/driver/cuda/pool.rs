//! A memory pool of our own, so that its settings are ours and others' pools stay theirs.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::mem;
use std::ptr;

use cudarc::driver::sys::{self, CUdevice, CUmemoryPool};

use super::api::Api;
use crate::driver::{DriverResult, PoolUsage};
use crate::foreign::contained;

/// A `CUmemoryPool` of device memory.
pub(super) struct Pool {
    api: &'static Api,
    /// Alive until drop.
    raw: CUmemoryPool,
}

// SAFETY: the driver API may be called from any thread, with the same pool too.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    pub(super) fn create(api: &'static Api, device: CUdevice) -> DriverResult<Self> {
        // SAFETY: integers, a pointer and enums that have a zero variant; CUDA wants what is not
        // used to be zero.
        let mut props: sys::CUmemPoolProps = unsafe { mem::zeroed() };
        props.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        props.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        props.location.id = device;
        let mut raw = ptr::null_mut();
        // SAFETY: both pointers are to locals that outlive the call.
        unsafe { api.cuMemPoolCreate(&mut raw, &props) }?;
        let pool = Pool { api, raw };

        // Freed memory stays in the pool when the device goes idle; giving it back is explicit.
        let mut threshold = u64::MAX;
        // By reusing a block that another stream has freed but not finished with, the driver
        // would make this stream wait for that one: order that nobody asked for. (Reuse across
        // streams that are ordered already, or known finished, stays on, as is the default.)
        let mut internal_dependencies: c_int = 0;
        use sys::CUmemPool_attribute as Attribute;
        // SAFETY: the pool is alive; each value is of the type that its attribute has (cuuint64_t
        // and int) and outlives the call.
        unsafe {
            api.cuMemPoolSetAttribute(
                raw,
                Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                ptr::from_mut(&mut threshold).cast(),
            )?;
            api.cuMemPoolSetAttribute(
                raw,
                Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
                ptr::from_mut(&mut internal_dependencies).cast(),
            )?;
        }
        Ok(pool)
    }

    pub(super) fn trim(&self, keep: u64) -> DriverResult<()> {
        // SAFETY: the pool is alive.
        unsafe { self.api.cuMemPoolTrimTo(self.raw, usize::try_from(keep).unwrap_or(usize::MAX)) }
    }

    pub(super) fn usage(&self) -> DriverResult<PoolUsage> {
        use sys::CUmemPool_attribute as Attribute;
        let get = |attribute| {
            let mut bytes = 0_u64;
            let value = ptr::from_mut(&mut bytes).cast();
            // SAFETY: the pool is alive; the attributes asked for are cuuint64_t, which outlives the call.
            unsafe { self.api.cuMemPoolGetAttribute(self.raw, attribute, value) }.map(|()| bytes)
        };
        Ok(PoolUsage {
            reserved: get(Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?,
            used: get(Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?,
        })
    }

    pub(super) fn raw(&self) -> CUmemoryPool {
        self.raw
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the pool is alive and not used after this. Blocks still allocated from it stay
        // valid; the driver gives up the pool once they are freed.
        if let Err(error) = unsafe { self.api.cuMemPoolDestroy(self.raw) } {
            contained(|| tracing::debug!(%error, "could not destroy the memory pool"));
        }
    }
}
