//! The driver library's entry points, looked up once.
//!
//! A table of our own instead of cudarc's wrappers, for three reasons. A symbol that the library
//! lacks is an `Err` when the table is made; cudarc's wrappers look theirs up at the first call
//! and panic. Codes come back as `u32`: cudarc returns a Rust enum of the codes that CUDA 12.0
//! knew, and a newer driver's code in it would be undefined behaviour. And a call is one indirect
//! jump. Types are cudarc's, and every signature is checked against cudarc's when compiled.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ushort, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys::{self, CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction};
use cudarc::driver::sys::{CUmemoryPool, CUmodule, CUstream};

use super::Unavailable;
use crate::driver::{DriverError, DriverResult};

/// CUDA 12.0, the oldest driver this crate works with.
pub(crate) const MINIMUM_VERSION: u32 = 12_000;

macro_rules! api {
    ($($call:ident = $symbol:ident($($arg:ident: $ty:ty),*);)*) => {
        /// One field and one method for each driver call that this crate makes, named as the call.
        #[allow(non_snake_case)]
        pub(super) struct Api {
            $($call: unsafe extern "C" fn($($ty),*) -> u32,)*
        }

        #[allow(non_snake_case, clippy::too_many_arguments)]
        impl Api {
            /// Answers the first symbol that is missing.
            ///
            /// # Safety
            /// The driver library can be loaded.
            unsafe fn look_up() -> DriverResult<Self> {
                // SAFETY: the library is there, and each field's type is that of the C function:
                // the constants below hold it against cudarc's declaration.
                unsafe { Ok(Api { $($call: symbol(stringify!($symbol))?,)* }) }
            }

            $(
                /// # Safety
                /// What CUDA's reference asks of this call's arguments.
                #[inline]
                pub(super) unsafe fn $call(&self, $($arg: $ty),*) -> DriverResult<()> {
                    // SAFETY: the function is the driver's own; the caller answers for the rest.
                    check(stringify!($call), unsafe { (self.$call)($($arg),*) })
                }
            )*
        }

        $(const _: unsafe fn($($ty),*) -> sys::CUresult = sys::$symbol;)*
    };
}

api! {
    cuInit = cuInit(flags: c_uint);
    cuDriverGetVersion = cuDriverGetVersion(version: *mut c_int);
    cuDeviceGetCount = cuDeviceGetCount(count: *mut c_int);
    cuDeviceGet = cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    cuDeviceGetName = cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice);
    cuDeviceTotalMem = cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
    cuDeviceGetAttribute = cuDeviceGetAttribute(
        value: *mut c_int, attribute: sys::CUdevice_attribute, device: CUdevice
    );
    cuDeviceCanAccessPeer = cuDeviceCanAccessPeer(
        can: *mut c_int, device: CUdevice, peer: CUdevice
    );

    cuDevicePrimaryCtxRetain = cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    cuCtxGetCurrent = cuCtxGetCurrent(context: *mut CUcontext);
    cuCtxPushCurrent = cuCtxPushCurrent_v2(context: CUcontext);
    cuCtxPopCurrent = cuCtxPopCurrent_v2(context: *mut CUcontext);
    cuCtxGetStreamPriorityRange = cuCtxGetStreamPriorityRange(least: *mut c_int, most: *mut c_int);

    cuThreadExchangeStreamCaptureMode = cuThreadExchangeStreamCaptureMode(
        mode: *mut sys::CUstreamCaptureMode
    );

    cuStreamCreateWithPriority = cuStreamCreateWithPriority(
        stream: *mut CUstream, flags: c_uint, priority: c_int
    );
    cuStreamDestroy = cuStreamDestroy_v2(stream: CUstream);
    cuStreamWaitEvent = cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
    cuEventCreate = cuEventCreate(event: *mut CUevent, flags: c_uint);
    cuEventDestroy = cuEventDestroy_v2(event: CUevent);
    cuEventRecord = cuEventRecord(event: CUevent, stream: CUstream);
    cuEventQuery = cuEventQuery(event: CUevent);
    cuEventSynchronize = cuEventSynchronize(event: CUevent);
    cuEventElapsedTime = cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent);

    cuMemPoolCreate = cuMemPoolCreate(pool: *mut CUmemoryPool, props: *const sys::CUmemPoolProps);
    cuMemPoolSetAttribute = cuMemPoolSetAttribute(
        pool: CUmemoryPool, attribute: sys::CUmemPool_attribute, value: *mut c_void
    );
    cuMemPoolGetAttribute = cuMemPoolGetAttribute(
        pool: CUmemoryPool, attribute: sys::CUmemPool_attribute, value: *mut c_void
    );
    cuMemPoolTrimTo = cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize);
    cuMemPoolDestroy = cuMemPoolDestroy(pool: CUmemoryPool);
    cuMemAllocFromPoolAsync = cuMemAllocFromPoolAsync(
        ptr: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream
    );
    cuMemFreeAsync = cuMemFreeAsync(ptr: CUdeviceptr, stream: CUstream);
    cuMemGetInfo = cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    cuMemHostAlloc = cuMemHostAlloc(ptr: *mut *mut c_void, bytes: usize, flags: c_uint);
    cuMemFreeHost = cuMemFreeHost(ptr: *mut c_void);
    cuMemHostRegister = cuMemHostRegister_v2(ptr: *mut c_void, bytes: usize, flags: c_uint);
    cuMemHostUnregister = cuMemHostUnregister(ptr: *mut c_void);

    cuMemcpyHtoDAsync = cuMemcpyHtoDAsync_v2(
        dst: CUdeviceptr, src: *const c_void, bytes: usize, stream: CUstream
    );
    cuMemcpyDtoHAsync = cuMemcpyDtoHAsync_v2(
        dst: *mut c_void, src: CUdeviceptr, bytes: usize, stream: CUstream
    );
    cuMemcpyDtoDAsync = cuMemcpyDtoDAsync_v2(
        dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: CUstream
    );
    cuMemcpy2DAsync = cuMemcpy2DAsync_v2(copy: *const sys::CUDA_MEMCPY2D, stream: CUstream);
    cuMemcpy3DAsync = cuMemcpy3DAsync_v2(copy: *const sys::CUDA_MEMCPY3D, stream: CUstream);
    cuMemcpyPeerAsync = cuMemcpyPeerAsync(
        dst: CUdeviceptr, dst_context: CUcontext, src: CUdeviceptr, src_context: CUcontext,
        bytes: usize, stream: CUstream
    );
    cuMemsetD8Async = cuMemsetD8Async(
        dst: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream
    );
    cuMemsetD16Async = cuMemsetD16Async(
        dst: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream
    );
    cuMemsetD32Async = cuMemsetD32Async(
        dst: CUdeviceptr, value: c_uint, count: usize, stream: CUstream
    );
    cuMemsetD2D8Async = cuMemsetD2D8Async(
        dst: CUdeviceptr, pitch: usize, value: c_uchar, width: usize, height: usize,
        stream: CUstream
    );
    cuMemsetD2D16Async = cuMemsetD2D16Async(
        dst: CUdeviceptr, pitch: usize, value: c_ushort, width: usize, height: usize,
        stream: CUstream
    );
    cuMemsetD2D32Async = cuMemsetD2D32Async(
        dst: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize,
        stream: CUstream
    );

    cuModuleLoadDataEx = cuModuleLoadDataEx(
        module: *mut CUmodule, image: *const c_void, count: c_uint,
        options: *mut sys::CUjit_option, values: *mut *mut c_void
    );
    cuModuleUnload = cuModuleUnload(module: CUmodule);
    cuModuleGetFunction = cuModuleGetFunction(
        function: *mut CUfunction, module: CUmodule, name: *const c_char
    );
    cuLaunchKernel = cuLaunchKernel(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint, shared_bytes: c_uint,
        stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void
    );
}

impl Api {
    /// The table, of a library that is new enough and initialised (`cuInit`).
    pub(super) fn get() -> Result<&'static Api, Unavailable> {
        let api = Self::loaded()?;
        // SAFETY: takes no pointers and may be called any number of times, from any thread.
        unsafe { api.cuInit(0) }?;
        Ok(api)
    }

    fn loaded() -> Result<&'static Api, Unavailable> {
        static LOADED: OnceLock<Api> = OnceLock::new();
        if let Some(api) = LOADED.get() {
            return Ok(api);
        }
        // SAFETY: opens the library by CUDA's names for it and closes it again; libcuda's
        // initialisers ask nothing of the process.
        if !unsafe { sys::is_culib_present() } {
            return Err(Unavailable::NoLibrary);
        }
        // Before the other symbols, since an old driver lacks some of them and should be called old.
        // SAFETY: the library is present.
        let found = unsafe { version() }?;
        if found < MINIMUM_VERSION {
            return Err(Unavailable::TooOld { found });
        }
        // SAFETY: the library is present.
        let api = unsafe { Api::look_up() }?;
        Ok(LOADED.get_or_init(|| api))
    }
}

/// The CUDA version that the library supports, as 1000 * major + 10 * minor, however old it is.
///
/// # Safety
/// The driver library can be loaded: cudarc panics if it cannot.
unsafe fn version() -> DriverResult<u32> {
    type GetVersion = unsafe extern "C" fn(*mut c_int) -> u32;
    const CALL: &str = "cuDriverGetVersion";
    let mut version = 0;
    // SAFETY: the function is of that type and needs no initialised driver; `version` outlives the
    // call; the caller answers for the library.
    check(CALL, unsafe { symbol::<GetVersion>(CALL)?(&mut version) })?;
    Ok(u32::try_from(version).unwrap_or(0))
}

#[inline]
fn check(call: &'static str, code: u32) -> DriverResult<()> {
    match code {
        0 => Ok(()),
        code => Err(DriverError::new(call, code)),
    }
}

/// # Safety
/// `F` is the type of the function called `name`, and the driver library can be loaded: cudarc
/// panics if it cannot.
unsafe fn symbol<F: Copy>(name: &'static str) -> DriverResult<F> {
    // SAFETY: the caller answers for `F`. The library is never closed, so the pointer stays good.
    match unsafe { sys::culib().get::<F>(name.as_bytes()) } {
        Ok(function) => Ok(*function),
        Err(_) => Err(DriverError::new(name, DriverError::SHARED_OBJECT_SYMBOL_NOT_FOUND)),
    }
}
