//! What is tried: a row for each driver call.

use std::ptr::null_mut;

use cudarc::driver::sys::*;

use super::*;

/// A call in three steps: what it needs is made with the right context current; the call itself
/// is made with whatever is current; its effect is looked at with the right context current.
pub(crate) struct Trial<'a> {
    pub(crate) bench: &'a Bench,
    /// Current during the call.
    pub(crate) during: CUcontext,
}

impl Trial<'_> {
    fn call(&self, call: impl FnOnce() -> CUresult) -> Answer<CUresult> {
        enter(self.during)?;
        let code = call();
        enter(self.bench.context)?;
        Ok(code)
    }
}

/// What a call returned, and what is to be said of its effect if it succeeded.
pub(crate) type Outcome = Answer<(CUresult, String)>;

fn verdict(code: CUresult, right: impl FnOnce() -> Answer<bool>) -> Outcome {
    if code != CUresult::CUDA_SUCCESS {
        return Ok((code, String::new()));
    }
    Ok((code, if right()? { "right".into() } else { "WRONG DATA".into() }))
}

fn said(code: CUresult, what: impl FnOnce() -> Answer<String>) -> Outcome {
    let what = if code == CUresult::CUDA_SUCCESS { what()? } else { String::new() };
    Ok((code, what))
}

pub(crate) type Row = (&'static str, fn(&Trial<'_>) -> Outcome);

pub(crate) const ROWS: &[Row] = &[
    ("cuLaunchKernel", |t| {
        let b = t.bench;
        b.fill_all(0)?;
        let code = t.call(|| b.launch(b.store, b.stream, 7, 0))?;
        verdict(code, || b.device_holds(b.device[0], 1, 7))
    }),
    ("cuEventRecord", |t| {
        let b = t.bench;
        // Recorded behind a long kernel, so pending right after and finished in the end.
        must_ok("cuLaunchKernel", b.launch(b.store, b.stream, 1, LONG))?;
        let code = t.call(|| unsafe { cuEventRecord(b.event, b.stream) })?;
        let pending = unsafe { cuEventQuery(b.event) } == CUresult::CUDA_ERROR_NOT_READY;
        must!(cuCtxSynchronize())?;
        verdict(code, || Ok(pending && must!(cuEventQuery(b.event)).is_ok()))
    }),
    ("cuEventQuery, finished", |t| {
        let b = t.bench;
        must!(cuEventRecord(b.event, b.stream))?;
        must!(cuCtxSynchronize())?;
        verdict(t.call(|| unsafe { cuEventQuery(b.event) })?, || Ok(true))
    }),
    ("cuEventQuery, pending (600)", |t| {
        let b = t.bench;
        must_ok("cuLaunchKernel", b.launch(b.store, b.stream, 1, LONG))?;
        must!(cuEventRecord(b.event, b.stream))?;
        let code = t.call(|| unsafe { cuEventQuery(b.event) })?;
        must!(cuCtxSynchronize())?;
        Ok((code, String::new()))
    }),
    ("cuStreamWaitEvent", |t| {
        let b = t.bench;
        b.fill_all(0)?;
        must_ok("cuLaunchKernel", b.launch(b.store, b.stream, 9, LONG))?;
        must!(cuEventRecord(b.event, b.stream))?;
        let code = t.call(|| unsafe { cuStreamWaitEvent(b.other_stream, b.event, 0) })?;
        must!(cuMemcpyDtoHAsync_v2(b.pinned.cast(), b.device[0], 4, b.other_stream))?;
        must!(cuCtxSynchronize())?;
        verdict(code, || Ok(b.host_holds(1, 9)))
    }),
    ("cuMemcpyHtoDAsync", |t| {
        let b = t.bench;
        b.fill_all(1)?;
        b.fill_host(2);
        let (dst, src) = (b.device[0], b.pinned.cast_const().cast());
        let code = t.call(|| unsafe { cuMemcpyHtoDAsync_v2(dst, src, BYTES, b.stream) })?;
        verdict(code, || b.device_holds(b.device[0], WORDS, 2))
    }),
    ("cuMemcpyDtoHAsync", |t| {
        let b = t.bench;
        b.fill_all(3)?;
        b.fill_host(0);
        let (dst, src) = (b.pinned.cast(), b.device[0]);
        let code = t.call(|| unsafe { cuMemcpyDtoHAsync_v2(dst, src, BYTES, b.stream) })?;
        must!(cuCtxSynchronize())?;
        verdict(code, || Ok(b.host_holds(WORDS, 3)))
    }),
    ("cuMemcpyDtoDAsync", |t| {
        let b = t.bench;
        b.fill_all(0)?;
        must!(cuMemsetD32Async(b.device[1], 4, WORDS, b.stream))?;
        let [dst, src] = b.device;
        let code = t.call(|| unsafe { cuMemcpyDtoDAsync_v2(dst, src, BYTES, b.stream) })?;
        verdict(code, || b.device_holds(b.device[0], WORDS, 4))
    }),
    ("cuMemsetD32Async", |t| {
        let b = t.bench;
        b.fill_all(0)?;
        let code = t.call(|| unsafe { cuMemsetD32Async(b.device[0], 5, WORDS, b.stream) })?;
        verdict(code, || b.device_holds(b.device[0], WORDS, 5))
    }),
    ("cuMemsetD2D32Async", |t| {
        let b = t.bench;
        b.fill_all(0)?;
        let (dst, rows) = (b.device[0], WORDS / 16);
        let code = t.call(|| unsafe { cuMemsetD2D32Async(dst, 64, 6, 16, rows, b.stream) })?;
        verdict(code, || b.device_holds(dst, WORDS, 6))
    }),
    ("cuMemAllocFromPoolAsync", |t| {
        let b = t.bench;
        let mut ptr = 0;
        let code =
            t.call(|| unsafe { cuMemAllocFromPoolAsync(&mut ptr, BYTES, b.pool, b.stream) })?;
        said(code, || {
            let whose = b.pointer_belongs(ptr);
            must!(cuMemsetD32Async(ptr, 8, WORDS, b.stream))?;
            let usable = b.device_holds(ptr, WORDS, 8)?;
            must!(cuMemFreeAsync(ptr, b.stream))?;
            Ok(format!("{whose}, {}", if usable { "usable" } else { "WRONG DATA" }))
        })
    }),
    ("cuMemFreeAsync", |t| {
        let b = t.bench;
        let ptr = alloc(b.pool, b.stream)?;
        let code = t.call(|| unsafe { cuMemFreeAsync(ptr, b.stream) })?;
        must!(cuCtxSynchronize())?;
        if code != CUresult::CUDA_SUCCESS {
            must!(cuMemFreeAsync(ptr, b.stream))?;
        }
        verdict(code, || Ok(true))
    }),
    ("cuEventCreate", |t| {
        let b = t.bench;
        let mut event = null_mut();
        let code = t.call(|| unsafe { cuEventCreate(&mut event, 2) })?;
        // An event has no way to ask for its context, but can be recorded in its own only.
        said(code, || {
            let recorded = unsafe { cuEventRecord(event, b.stream) };
            must!(cuCtxSynchronize())?;
            must!(cuEventDestroy_v2(event))?;
            Ok(match recorded {
                CUresult::CUDA_SUCCESS => "right context".into(),
                code => format!("OTHER CONTEXT ({})", code as u32),
            })
        })
    }),
    ("cuEventDestroy", |t| {
        let event = event(false)?;
        let code = t.call(|| unsafe { cuEventDestroy_v2(event) })?;
        verdict(code, || Ok(true))
    }),
    ("cuEventElapsedTime", |t| {
        let [start, end] = t.bench.timed;
        let mut milliseconds = -1.0_f32;
        let code = t.call(|| unsafe { cuEventElapsedTime(&mut milliseconds, start, end) })?;
        verdict(code, || Ok(milliseconds >= 0.0))
    }),
    ("cuStreamCreateWithPriority", |t| {
        let mut stream = null_mut();
        let code = t.call(|| unsafe { cuStreamCreateWithPriority(&mut stream, 1, 0) })?;
        said(code, || {
            let mut context = null_mut();
            let answer = unsafe { cuStreamGetCtx(stream, &mut context) };
            must!(cuStreamDestroy_v2(stream))?;
            Ok(t.bench.belongs(answer, context).into())
        })
    }),
    ("cuStreamDestroy", |t| {
        let stream = stream()?;
        let code = t.call(|| unsafe { cuStreamDestroy_v2(stream) })?;
        verdict(code, || Ok(true))
    }),
    ("cuMemHostAlloc", |t| {
        let mut ptr = null_mut();
        let code = t.call(|| unsafe { cuMemHostAlloc(&mut ptr, BYTES, 1) })?;
        said(code, || {
            let whose = t.bench.pointer_belongs(ptr.expose_provenance() as CUdeviceptr);
            must!(cuMemFreeHost(ptr))?;
            Ok(whose.into())
        })
    }),
    ("cuMemFreeHost", |t| {
        let ptr = pinned()?;
        let code = t.call(|| unsafe { cuMemFreeHost(ptr.cast()) })?;
        verdict(code, || Ok(true))
    }),
    ("cuMemPoolCreate", |t| {
        let mut pool = null_mut();
        let code = t.call(|| unsafe { cuMemPoolCreate(&mut pool, &pool_props()) })?;
        verdict(code, || {
            let ptr = alloc(pool, t.bench.stream)?;
            must!(cuMemFreeAsync(ptr, t.bench.stream))?;
            must!(cuCtxSynchronize())?;
            must!(cuMemPoolDestroy(pool)).map(|()| true)
        })
    }),
    ("cuMemPoolDestroy", |t| {
        let pool = pool()?;
        let code = t.call(|| unsafe { cuMemPoolDestroy(pool) })?;
        verdict(code, || Ok(true))
    }),
    ("cuMemGetInfo", |t| {
        let (mut free, mut total) = (0, 0);
        let code = t.call(|| unsafe { cuMemGetInfo_v2(&mut free, &mut total) })?;
        said(code, || Ok(format!("{} MiB in all", total >> 20)))
    }),
    ("cuCtxGetStreamPriorityRange", |t| {
        let (mut least, mut most) = (0, 0);
        let code = t.call(|| unsafe { cuCtxGetStreamPriorityRange(&mut least, &mut most) })?;
        said(code, || Ok(format!("{least} to {most}")))
    }),
    ("cuModuleLoadData", |t| {
        let b = t.bench;
        let mut module = null_mut();
        let code = t.call(|| unsafe { cuModuleLoadData(&mut module, PTX.as_ptr().cast()) })?;
        said(code, || {
            let mut function = null_mut();
            must!(cuModuleGetFunction(&mut function, module, c"store".as_ptr()))?;
            let launched = b.launch(function, b.stream, 1, 0);
            must!(cuCtxSynchronize())?;
            must!(cuModuleUnload(module))?;
            Ok(match launched {
                CUresult::CUDA_SUCCESS => "right context".into(),
                code => format!("OTHER CONTEXT ({})", code as u32),
            })
        })
    }),
    ("cuModuleGetFunction", |t| {
        let b = t.bench;
        b.fill_all(0)?;
        let mut function = null_mut();
        let name = c"store".as_ptr();
        let code = t.call(|| unsafe { cuModuleGetFunction(&mut function, b.module, name) })?;
        verdict(code, || {
            must_ok("cuLaunchKernel", b.launch(function, b.stream, 10, 0))?;
            b.device_holds(b.device[0], 1, 10)
        })
    }),
    ("cuModuleUnload", |t| {
        let (module, _) = module()?;
        let code = t.call(|| unsafe { cuModuleUnload(module) })?;
        verdict(code, || Ok(true))
    }),
];
