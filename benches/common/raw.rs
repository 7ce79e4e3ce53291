//! The other side: the driver called directly, with the same kernel on the same context.
#![allow(unsafe_code, reason = "calls the driver")]

use std::ffi::c_uint;
use std::marker::PhantomData;
use std::ptr::{self, null_mut};

use cudarc::driver::sys::*;

use crate::Answer;

const PTX: &str = concat!(include_str!("../../kernels/probe.ptx"), "\0");
/// Elements of each buffer, threads of the one block.
pub(crate) const LEN: usize = 256;

/// A stream, an event and what `empty` takes. Never destroyed: it lives as long as the process.
pub(crate) struct Raw {
    context: CUcontext,
    stream: CUstream,
    event: CUevent,
    empty: CUfunction,
    buffers: [CUdeviceptr; 2],
}

// SAFETY: the driver's calls may be made from any thread, with handles made in any other.
unsafe impl Send for Raw {}
// SAFETY: as above; nothing in here changes.
unsafe impl Sync for Raw {}

/// Makes a call; its name and code if it fails. What it names is to outlive it.
macro_rules! call {
    ($call:ident($($arg:expr),* $(,)?)) => {
        // SAFETY: pointers are to locals or fields that outlive the call; handles were made by the
        // driver for this context and are never destroyed.
        match unsafe { $call($($arg),*) } {
            CUresult::CUDA_SUCCESS => Ok(()),
            code => Err(format!("{} returned {}", stringify!($call), code as u32)),
        }
    };
}

#[allow(unused_imports, reason = "whoever includes this file makes calls of its own, or none")]
pub(crate) use call;

/// The device and its primary context, which is current in this thread from here on.
pub(crate) fn primary_context(ordinal: usize) -> Answer<(CUdevice, CUcontext)> {
    let (mut device, mut context) = (0, null_mut());
    call!(cuInit(0))?;
    call!(cuDeviceGet(&mut device, i32::try_from(ordinal)?))?;
    call!(cuDevicePrimaryCtxRetain(&mut context, device))?;
    call!(cuCtxSetCurrent(context))?;
    Ok((device, context))
}

/// One that is not ordered with the default stream.
pub(crate) fn stream() -> Answer<CUstream> {
    let mut stream = null_mut();
    let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
    call!(cuStreamCreateWithPriority(&mut stream, flags, 0))?;
    Ok(stream)
}

impl Raw {
    /// On the primary context of device `ordinal`.
    pub(crate) fn new(ordinal: usize) -> Answer<Self> {
        let (_, context) = primary_context(ordinal)?;
        let (stream, mut event) = (stream()?, null_mut());
        call!(cuEventCreate(&mut event, CUevent_flags::CU_EVENT_DISABLE_TIMING as c_uint))?;
        let (mut module, mut empty) = (null_mut(), null_mut());
        call!(cuModuleLoadData(&mut module, PTX.as_ptr().cast()))?;
        call!(cuModuleGetFunction(&mut empty, module, c"empty".as_ptr()))?;
        let mut buffers = [0; 2];
        for buffer in &mut buffers {
            call!(cuMemAlloc_v2(buffer, LEN * size_of::<f32>()))?;
            call!(cuMemsetD8Async(*buffer, 0, LEN * size_of::<f32>(), stream))?;
        }
        call!(cuStreamSynchronize(stream))?;
        call!(cuCtxSetCurrent(null_mut()))?;
        Ok(Raw { context, stream, event, empty, buffers })
    }

    /// Has the context current in this thread while the guard lives, none afterwards: our own side
    /// is measured without one.
    pub(crate) fn enter(&self) -> Answer<Current> {
        call!(cuCtxSetCurrent(self.context))?;
        Ok(Current(PhantomData))
    }

    /// `cuLaunchKernel` of `empty` with two buffers and a number.
    #[inline]
    pub(crate) fn launch(&self) -> Answer<()> {
        let [mut a, mut b] = self.buffers;
        let mut n = LEN as u32;
        let mut params = [
            ptr::from_mut(&mut a).cast(),
            ptr::from_mut(&mut b).cast(),
            ptr::from_mut(&mut n).cast(),
        ];
        let (params, block) = (params.as_mut_ptr(), LEN as c_uint);
        call!(cuLaunchKernel(
            self.empty,
            1,
            1,
            1,
            block,
            1,
            1,
            0,
            self.stream,
            params,
            null_mut()
        ))?;
        Ok(())
    }

    /// `cuStreamSynchronize`
    #[inline]
    pub(crate) fn synchronize(&self) -> Answer<()> {
        call!(cuStreamSynchronize(self.stream))?;
        Ok(())
    }

    /// `cuEventRecord`, then `cuEventQuery` until it is reached.
    #[inline]
    pub(crate) fn record_and_spin(&self) -> Answer<()> {
        call!(cuEventRecord(self.event, self.stream))?;
        loop {
            // SAFETY: the event is never destroyed.
            match unsafe { cuEventQuery(self.event) } {
                CUresult::CUDA_SUCCESS => return Ok(()),
                CUresult::CUDA_ERROR_NOT_READY => std::hint::spin_loop(),
                code => return Err(format!("cuEventQuery returned {}", code as u32).into()),
            }
        }
    }
}

/// While it lives, the raw side's context is current in this thread.
pub(crate) struct Current(PhantomData<*mut ()>);

impl Drop for Current {
    fn drop(&mut self) {
        if let Err(why) = call!(cuCtxSetCurrent(null_mut())) {
            eprintln!("{why}");
        }
    }
}
