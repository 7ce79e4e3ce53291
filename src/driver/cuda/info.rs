//! What the device says of itself.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_int};

use cudarc::driver::sys::CUdevice_attribute as Attribute;

use super::api::Api;
use super::context::{Context, RARE};
use crate::driver::{DeviceInfo, DriverResult};

pub(super) fn device_count(api: &Api) -> DriverResult<usize> {
    let mut count = 0;
    // SAFETY: `count` outlives the call.
    unsafe { api.cuDeviceGetCount(&mut count) }?;
    Ok(usize::try_from(count).unwrap_or(0))
}

pub(super) fn query(context: &Context, ordinal: usize) -> DriverResult<DeviceInfo> {
    use Attribute::*;
    let attribute = |attribute| read_attribute(context, attribute);
    Ok(DeviceInfo {
        name: name(context)?,
        ordinal,
        simulated: false,
        compute_capability: (
            attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        total_memory: total_memory(context)?,
        copy_engines: attribute(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT)?,
        concurrent_kernels: attribute(CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS)? != 0,
        multiprocessors: attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        max_block_threads: attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        max_grid: [
            attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)?,
            attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y)?,
            attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)?,
        ],
        max_block: [
            attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)?,
            attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y)?,
            attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)?,
        ],
        max_shared_bytes: attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?,
        priorities: priorities(context)?,
        driver_version: driver_version(context)?,
    })
}

fn read_attribute(context: &Context, attribute: Attribute) -> DriverResult<u32> {
    let mut value = 0;
    // SAFETY: `value` outlives the call.
    unsafe { context.api().cuDeviceGetAttribute(&mut value, attribute, context.device()) }?;
    Ok(unsigned(value))
}

fn name(context: &Context) -> DriverResult<String> {
    let mut bytes = [0_u8; 256];
    // SAFETY: the call writes at most the length that it is told, which is the array's.
    unsafe {
        context.api().cuDeviceGetName(
            bytes.as_mut_ptr().cast(),
            bytes.len() as c_int,
            context.device(),
        )
    }?;
    Ok(CStr::from_bytes_until_nul(&bytes)
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default())
}

fn total_memory(context: &Context) -> DriverResult<u64> {
    let mut bytes = 0_usize;
    // SAFETY: `bytes` outlives the call.
    unsafe { context.api().cuDeviceTotalMem(&mut bytes, context.device()) }?;
    Ok(bytes as u64)
}

fn priorities(context: &Context) -> DriverResult<(i32, i32)> {
    let _current = context.enter(RARE)?;
    let (mut least, mut most) = (0, 0);
    // SAFETY: both locals outlive the call.
    unsafe { context.api().cuCtxGetStreamPriorityRange(&mut least, &mut most) }?;
    Ok((least, most))
}

fn driver_version(context: &Context) -> DriverResult<u32> {
    let mut version = 0;
    // SAFETY: `version` outlives the call.
    unsafe { context.api().cuDriverGetVersion(&mut version) }?;
    Ok(unsigned(version))
}

fn unsigned(value: c_int) -> u32 {
    u32::try_from(value).unwrap_or(0)
}
