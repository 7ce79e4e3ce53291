//! [`Driver`], one driver call a method.
//!
//! Handles of this driver hold the driver's pointers, and exist exactly as long as what they
//! point to (see the seam): that is the invariant "the handle is alive" below.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};
use std::time::Duration;

use cudarc::driver::sys::{self, CUcontext, CUdeviceptr, CUevent, CUfunction, CUmodule, CUstream};

use super::Cuda;
use super::api::Api;
use super::context::{Current, DEFAULT_STREAM, ENQUEUE, RARE};
use super::module;
use crate::driver::CopyMemory::{Device, Host};
use crate::driver::{
    ContextHandle, CopyMemory, CopyRows, DefaultStream, DeviceInfo, DevicePtr, Driver, DriverCall,
    DriverError, DriverResult, EventHandle, Fill, FunctionHandle, HostKind, Launch, ModuleHandle,
    PoolUsage, PtxError, StreamHandle,
};

const NOT_READY: u32 = sys::CUresult::CUDA_ERROR_NOT_READY as u32;

fn to_raw<T>(pointer: *mut T) -> u64 {
    pointer.expose_provenance() as u64
}

fn stream(handle: &StreamHandle) -> CUstream {
    ptr::with_exposed_provenance_mut(handle.raw() as usize)
}

fn event(handle: &EventHandle) -> CUevent {
    ptr::with_exposed_provenance_mut(handle.raw() as usize)
}

fn module(handle: &ModuleHandle) -> CUmodule {
    ptr::with_exposed_provenance_mut(handle.raw() as usize)
}

fn function(handle: &FunctionHandle) -> CUfunction {
    ptr::with_exposed_provenance_mut(handle.raw() as usize)
}

fn context(handle: ContextHandle) -> CUcontext {
    ptr::with_exposed_provenance_mut(handle.raw() as usize)
}

fn invalid_handle(call: DriverCall) -> DriverError {
    DriverError::new(call.name(), DriverError::INVALID_HANDLE)
}

fn invalid_value(copy: &CopyRows) -> DriverError {
    DriverError::new(copy.call().name(), DriverError::INVALID_VALUE)
}

/// A copy of one plane, or of nothing.
fn in_rows(copy: &CopyRows) -> sys::CUDA_MEMCPY2D {
    let CopyRows { dst, src, row, rows, planes } = *copy;
    let (dst_type, dst_host, dst_device) = side(dst.memory);
    let (src_type, src_host, src_device) = side(src.memory);
    sys::CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: src_type,
        srcHost: src_host.cast_const(),
        srcDevice: src_device,
        srcArray: ptr::null_mut(),
        srcPitch: src.pitch,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: dst_type,
        dstHost: dst_host,
        dstDevice: dst_device,
        dstArray: ptr::null_mut(),
        dstPitch: dst.pitch,
        WidthInBytes: row,
        Height: rows.min(rows.saturating_mul(planes)),
    }
}

/// A copy of several planes, which is in order. A plane is as high as there are rows to the next one.
fn in_planes(copy: &CopyRows) -> sys::CUDA_MEMCPY3D {
    let CopyRows { dst, src, row, rows, planes } = *copy;
    let (dst_type, dst_host, dst_device) = side(dst.memory);
    let (src_type, src_host, src_device) = side(src.memory);
    sys::CUDA_MEMCPY3D {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: src_type,
        srcHost: src_host.cast_const(),
        srcDevice: src_device,
        srcArray: ptr::null_mut(),
        reserved0: ptr::null_mut(),
        srcPitch: src.pitch,
        srcHeight: src.plane_pitch / src.pitch,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: dst_type,
        dstHost: dst_host,
        dstDevice: dst_device,
        dstArray: ptr::null_mut(),
        reserved1: ptr::null_mut(),
        dstPitch: dst.pitch,
        dstHeight: dst.plane_pitch / dst.pitch,
        WidthInBytes: row,
        Height: rows,
        Depth: planes,
    }
}

/// One side of a copy of rows: what it is, and its address as the host's and as the device's.
fn side(memory: CopyMemory) -> (sys::CUmemorytype, *mut c_void, CUdeviceptr) {
    match memory {
        Device(ptr) => (sys::CUmemorytype::CU_MEMORYTYPE_DEVICE, ptr::null_mut(), ptr.0),
        Host(ptr) => (sys::CUmemorytype::CU_MEMORYTYPE_HOST, ptr.as_ptr().cast(), 0),
    }
}

impl Cuda {
    fn api(&self) -> &'static Api {
        self.context.api()
    }

    /// For a call that names a stream. CUDA's default streams are those of the current context, and
    /// one of them is the calling thread's.
    #[inline]
    fn enter_on(&self, call: DriverCall, on: &StreamHandle) -> DriverResult<Current> {
        if !on.is_cuda_default() {
            return self.context.enter(ENQUEUE);
        }
        if on.is_another_threads() {
            return Err(invalid_handle(call));
        }
        self.context.enter(DEFAULT_STREAM)
    }
}

impl Driver for Cuda {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn sees_accesses(&self) -> bool {
        false
    }

    fn stream_create(&self, priority: i32) -> DriverResult<StreamHandle> {
        let _current = self.context.enter(RARE)?;
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        let mut stream = ptr::null_mut();
        // SAFETY: `stream` outlives the call.
        unsafe { self.api().cuStreamCreateWithPriority(&mut stream, flags, priority) }?;
        Ok(StreamHandle::new(to_raw(stream)))
    }

    fn default_stream(&self, which: DefaultStream) -> StreamHandle {
        StreamHandle::cuda_default(self.info.ordinal, which)
    }

    fn stream_destroy(&self, handle: StreamHandle) -> DriverResult<()> {
        if handle.is_cuda_default() {
            return Err(invalid_handle(DriverCall::StreamDestroy));
        }
        let _current = self.context.enter(RARE)?;
        // SAFETY: the handle is alive, and consumed here.
        unsafe { self.api().cuStreamDestroy(stream(&handle)) }
    }

    #[inline]
    fn stream_wait(&self, on: &StreamHandle, for_event: &EventHandle) -> DriverResult<()> {
        let _current = self.enter_on(DriverCall::StreamWait, on)?;
        // SAFETY: both handles are alive.
        unsafe { self.api().cuStreamWaitEvent(stream(on), event(for_event), 0) }
    }

    fn event_create(&self, timed: bool) -> DriverResult<EventHandle> {
        let _current = self.context.enter(RARE)?;
        // Never BLOCKING_SYNC: nobody synchronises with an event here.
        let flags = match timed {
            true => sys::CUevent_flags::CU_EVENT_DEFAULT as u32,
            false => sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32,
        };
        let mut event = ptr::null_mut();
        // SAFETY: `event` outlives the call.
        unsafe { self.api().cuEventCreate(&mut event, flags) }?;
        Ok(EventHandle::new(to_raw(event)))
    }

    fn event_destroy(&self, handle: EventHandle) -> DriverResult<()> {
        let _current = self.context.enter(RARE)?;
        // SAFETY: the handle is alive, and consumed here. CUDA keeps what pending work needs.
        unsafe { self.api().cuEventDestroy(event(&handle)) }
    }

    #[inline]
    fn event_record(&self, handle: &EventHandle, on: &StreamHandle) -> DriverResult<()> {
        let _current = self.enter_on(DriverCall::EventRecord, on)?;
        // SAFETY: both handles are alive.
        unsafe { self.api().cuEventRecord(event(handle), stream(on)) }
    }

    #[inline]
    fn event_query(&self, handle: &EventHandle) -> DriverResult<bool> {
        let _current = self.context.enter(ENQUEUE)?;
        // SAFETY: the handle is alive.
        match unsafe { self.api().cuEventQuery(event(handle)) } {
            Ok(()) => Ok(true),
            Err(error) if error.code() == NOT_READY => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn relax_capture(&self) -> DriverResult<()> {
        let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: `mode` outlives the call. What is written to it is the mode before, one that the
        // thread was given as a value of this type, or the default, which is one.
        unsafe { self.api().cuThreadExchangeStreamCaptureMode(&mut mode) }
    }

    fn event_elapsed(&self, start: &EventHandle, end: &EventHandle) -> DriverResult<Duration> {
        let _current = self.context.enter(RARE)?;
        let mut milliseconds = 0.0_f32;
        // SAFETY: `milliseconds` outlives the call and both handles are alive.
        unsafe { self.api().cuEventElapsedTime(&mut milliseconds, event(start), event(end)) }?;
        // Negative when `end` was reached first.
        let seconds = f64::from(milliseconds) / 1e3;
        Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO))
    }

    fn alloc(&self, bytes: usize, on: &StreamHandle) -> DriverResult<DevicePtr> {
        let _current = self.enter_on(DriverCall::Alloc, on)?;
        let mut ptr = 0;
        // SAFETY: `ptr` outlives the call; the pool lives as long as `self`, the handle is alive.
        unsafe {
            self.api().cuMemAllocFromPoolAsync(&mut ptr, bytes, self.pool.raw(), stream(on))
        }?;
        Ok(DevicePtr(ptr))
    }

    unsafe fn free(&self, ptr: DevicePtr, on: &StreamHandle) -> DriverResult<()> {
        let _current = self.enter_on(DriverCall::Free, on)?;
        // SAFETY: the caller answers for the memory; the handle is alive.
        unsafe { self.api().cuMemFreeAsync(ptr.0, stream(on)) }
    }

    fn memory_free(&self) -> DriverResult<u64> {
        let _current = self.context.enter(RARE)?;
        let (mut free, mut total) = (0_usize, 0_usize);
        // SAFETY: both locals outlive the call.
        unsafe { self.api().cuMemGetInfo(&mut free, &mut total) }?;
        Ok(free as u64)
    }

    fn pool_trim(&self, keep: u64, freed: Option<&EventHandle>) -> DriverResult<()> {
        let _current = self.context.enter(RARE)?;
        if let Some(freed) = freed {
            // SAFETY: the handle is alive.
            unsafe { self.api().cuEventSynchronize(event(freed)) }?;
        }
        self.pool.trim(keep)
    }

    fn pool_usage(&self) -> DriverResult<PoolUsage> {
        let _current = self.context.enter(RARE)?;
        self.pool.usage()
    }

    fn host_alloc(&self, bytes: usize, kind: HostKind) -> DriverResult<NonNull<u8>> {
        let _current = self.context.enter(RARE)?;
        let mut ptr = ptr::null_mut();
        // Portable: page-locked for every device's context.
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE
            | match kind {
                HostKind::Cacheable => 0,
                HostKind::WriteCombined => sys::CU_MEMHOSTALLOC_WRITECOMBINED,
            };
        // SAFETY: `ptr` outlives the call.
        unsafe { self.api().cuMemHostAlloc(&mut ptr, bytes, flags) }?;
        NonNull::new(ptr.cast())
            .ok_or(DriverError::new("cuMemHostAlloc", DriverError::OUT_OF_MEMORY))
    }

    unsafe fn host_free(&self, ptr: NonNull<u8>) -> DriverResult<()> {
        let _current = self.context.enter(RARE)?;
        // SAFETY: the caller answers for the memory.
        unsafe { self.api().cuMemFreeHost(ptr.as_ptr().cast()) }
    }

    unsafe fn host_register(&self, ptr: NonNull<u8>, bytes: usize) -> DriverResult<()> {
        let _current = self.context.enter(RARE)?;
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE;
        // SAFETY: the caller answers for the memory.
        unsafe { self.api().cuMemHostRegister(ptr.as_ptr().cast(), bytes, flags) }
    }

    unsafe fn host_unregister(&self, ptr: NonNull<u8>) -> DriverResult<()> {
        let _current = self.context.enter(RARE)?;
        // SAFETY: the caller answers for the memory.
        unsafe { self.api().cuMemHostUnregister(ptr.as_ptr().cast()) }
    }

    unsafe fn copy_h2d(
        &self,
        dst: DevicePtr,
        src: NonNull<u8>,
        bytes: usize,
        on: &StreamHandle,
    ) -> DriverResult<()> {
        let _current = self.enter_on(DriverCall::CopyH2D, on)?;
        // SAFETY: the caller answers for both ranges; the handle is alive.
        unsafe {
            self.api().cuMemcpyHtoDAsync(dst.0, src.as_ptr().cast_const().cast(), bytes, stream(on))
        }
    }

    unsafe fn copy_d2h(
        &self,
        dst: NonNull<u8>,
        src: DevicePtr,
        bytes: usize,
        on: &StreamHandle,
    ) -> DriverResult<()> {
        let _current = self.enter_on(DriverCall::CopyD2H, on)?;
        // SAFETY: the caller answers for both ranges; the handle is alive.
        unsafe { self.api().cuMemcpyDtoHAsync(dst.as_ptr().cast(), src.0, bytes, stream(on)) }
    }

    unsafe fn copy_d2d(
        &self,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
        on: &StreamHandle,
    ) -> DriverResult<()> {
        let _current = self.enter_on(DriverCall::CopyD2D, on)?;
        // SAFETY: the caller answers for both ranges; the handle is alive.
        unsafe { self.api().cuMemcpyDtoDAsync(dst.0, src.0, bytes, stream(on)) }
    }

    unsafe fn copy_rows(&self, copy: &CopyRows, on: &StreamHandle) -> DriverResult<()> {
        let CopyRows { dst, src, row, rows, planes } = *copy;
        if (rows, planes) == (1, 1) {
            // SAFETY: the caller answers for both ranges; the handle is alive.
            return unsafe {
                match (dst.memory, src.memory) {
                    (Device(dst), Host(src)) => self.copy_h2d(dst, src, row, on),
                    (Host(dst), Device(src)) => self.copy_d2h(dst, src, row, on),
                    (Device(dst), Device(src)) => self.copy_d2d(dst, src, row, on),
                    (Host(_), Host(_)) => Err(invalid_value(copy)),
                }
            };
        }
        let between_hosts = matches!((dst.memory, src.memory), (Host(_), Host(_)));
        // Told here: CUDA would copy from host to host as well, and the driver makes a copy with a
        // pitch of `usize::MAX` (seen on an H200).
        if between_hosts || !copy.is_empty() && !copy.is_in_order() {
            return Err(invalid_value(copy));
        }
        let _current = self.enter_on(copy.call(), on)?;
        // SAFETY: the descriptions outlive the calls; the caller answers for the bytes of the rows; the
        // handle is alive.
        unsafe {
            match copy.is_empty() || planes == 1 {
                true => self.api().cuMemcpy2DAsync(&in_rows(copy), stream(on)),
                false => self.api().cuMemcpy3DAsync(&in_planes(copy), stream(on)),
            }
        }
    }

    fn context(&self) -> ContextHandle {
        ContextHandle::new(to_raw(self.context.raw()))
    }

    unsafe fn copy_peer(
        &self,
        dst: DevicePtr,
        dst_context: ContextHandle,
        src: DevicePtr,
        src_context: ContextHandle,
        bytes: usize,
        on: &StreamHandle,
    ) -> DriverResult<()> {
        let _current = self.enter_on(DriverCall::CopyPeer, on)?;
        let (dst_context, src_context) = (context(dst_context), context(src_context));
        // SAFETY: the caller answers for both ranges; the stream's handle is alive, and so are
        // contexts, which are never released.
        unsafe {
            self.api().cuMemcpyPeerAsync(dst.0, dst_context, src.0, src_context, bytes, stream(on))
        }
    }

    unsafe fn fill(&self, fill: Fill, on: &StreamHandle) -> DriverResult<()> {
        let _current = self.enter_on(DriverCall::Fill, on)?;
        let Fill { dst: DevicePtr(dst), unit, value, columns, rows, pitch } = fill;
        let (api, on) = (self.api(), stream(on));
        // The casts keep the low bytes of the value, as `Fill` says.
        // SAFETY: the caller answers for the bytes of the rows; the handle is alive.
        unsafe {
            match (unit, rows) {
                (1, 1) => api.cuMemsetD8Async(dst, value as u8, columns, on),
                (2, 1) => api.cuMemsetD16Async(dst, value as u16, columns, on),
                (4, 1) => api.cuMemsetD32Async(dst, value, columns, on),
                (1, _) => api.cuMemsetD2D8Async(dst, pitch, value as u8, columns, rows, on),
                (2, _) => api.cuMemsetD2D16Async(dst, pitch, value as u16, columns, rows, on),
                (4, _) => api.cuMemsetD2D32Async(dst, pitch, value, columns, rows, on),
                _ => Err(DriverError::new("cuMemsetAsync", DriverError::INVALID_VALUE)),
            }
        }
    }

    fn module_load(&self, ptx: &CStr) -> Result<ModuleHandle, PtxError> {
        let _current = self.context.enter(RARE)?;
        Ok(ModuleHandle::new(to_raw(module::load(self.api(), ptx)?)))
    }

    fn module_unload(&self, handle: ModuleHandle) -> DriverResult<()> {
        let _current = self.context.enter(RARE)?;
        // SAFETY: the handle is alive, and consumed here.
        unsafe { self.api().cuModuleUnload(module(&handle)) }
    }

    fn module_function(&self, handle: &ModuleHandle, name: &CStr) -> DriverResult<FunctionHandle> {
        let _current = self.context.enter(RARE)?;
        let mut function = ptr::null_mut();
        // SAFETY: `function` outlives the call, the name ends in a NUL, the handle is alive.
        unsafe { self.api().cuModuleGetFunction(&mut function, module(handle), name.as_ptr()) }?;
        Ok(FunctionHandle::new(to_raw(function)))
    }

    #[inline]
    unsafe fn launch(&self, launch: &Launch<'_>, on: &StreamHandle) -> DriverResult<()> {
        let _current = self.enter_on(DriverCall::Launch, on)?;
        let ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]) = (launch.grid, launch.block);
        // CUDA's prototype lacks a `const`: it reads the pointers and what they point to.
        let params = launch.params.as_ptr().cast_mut().cast::<*mut c_void>();
        // SAFETY: the caller answers for the parameters and the memory that the kernel touches,
        // and for the function's module being loaded; the stream's handle is alive.
        unsafe {
            self.api().cuLaunchKernel(
                function(launch.function),
                grid_x,
                grid_y,
                grid_z,
                block_x,
                block_y,
                block_z,
                launch.shared_bytes,
                stream(on),
                params,
                ptr::null_mut(),
            )
        }
    }
}
