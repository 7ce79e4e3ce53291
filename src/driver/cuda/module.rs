//! Loading PTX, with the compiler's words when it refuses.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_uint, c_void};
use std::ptr;

use cudarc::driver::sys::{CUjit_option, CUmodule};

use super::api::Api;
use crate::driver::PtxError;

/// Bytes of the JIT compiler's error log that are kept.
const LOG_BYTES: usize = 8 * 1024;

/// `cuModuleLoadDataEx`; wants the context current.
pub(super) fn load(api: &Api, ptx: &CStr) -> Result<CUmodule, PtxError> {
    let mut log = vec![0_u8; LOG_BYTES];
    let mut options =
        [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    // The size is passed in the pointer's place, not behind it.
    let mut values: [*mut c_void; 2] =
        [log.as_mut_ptr().cast(), ptr::without_provenance_mut(log.len())];
    let mut module = ptr::null_mut();
    // SAFETY: all locals outlive the call; the image ends in a NUL; the log is as long as said,
    // and CUDA keeps none of the pointers.
    let loaded = unsafe {
        api.cuModuleLoadDataEx(
            &mut module,
            ptx.as_ptr().cast(),
            options.len() as c_uint,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    };
    match loaded {
        Ok(()) => Ok(module),
        Err(error) => Err(PtxError { error, log: text(&log).to_owned() }),
    }
}

/// The log up to its NUL, without the white space around it.
pub(super) fn text(log: &[u8]) -> &str {
    let written = log.split(|byte| *byte == 0).next().unwrap_or_default();
    match std::str::from_utf8(written) {
        Ok(text) => text.trim(),
        // A buffer that was too small may end inside a character.
        Err(error) => str::from_utf8(&written[..error.valid_up_to()]).unwrap_or_default().trim(),
    }
}
