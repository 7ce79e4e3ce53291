//! What the device says of itself.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_int};

use cudarc::driver::sys::{CUdevice, CUdevice_attribute as Attribute};

use super::api::Api;
use super::context::{Context, RARE};
use crate::driver::{DeviceInfo, DriverError, DriverResult};

/// The environment variable by which CUDA decides how many hardware queues a device has.
const QUEUES: &str = "CUDA_DEVICE_MAX_CONNECTIONS";
/// As many as there are where it is not set, and the most there can be.
const QUEUES_DEFAULT: u32 = 8;
const QUEUES_MOST: u32 = 32;

pub(super) fn device_count(api: &Api) -> DriverResult<usize> {
    let mut count = 0;
    // SAFETY: `count` outlives the call.
    unsafe { api.cuDeviceGetCount(&mut count) }?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// `cuDeviceGet`
pub(super) fn device(api: &Api, ordinal: usize) -> DriverResult<CUdevice> {
    let ordinal = c_int::try_from(ordinal)
        .map_err(|_| DriverError::new("cuDeviceGet", DriverError::INVALID_DEVICE))?;
    let mut device = 0;
    // SAFETY: `device` outlives the call.
    unsafe { api.cuDeviceGet(&mut device, ordinal) }?;
    Ok(device)
}

/// All that can be had without a context, which takes hundreds of megabytes of the device: that is,
/// all but the priorities.
pub(super) fn query(api: &Api, ordinal: usize) -> DriverResult<DeviceInfo> {
    use Attribute::*;
    let device = device(api, ordinal)?;
    let attribute = |attribute| read_attribute(api, device, attribute);
    Ok(DeviceInfo {
        name: name(api, device)?,
        ordinal,
        simulated: false,
        compute_capability: (
            attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        total_memory: total_memory(api, device)?,
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
        priorities: None,
        peers: peers(api, ordinal)?,
        hardware_queues: hardware_queues(std::env::var(QUEUES).ok().as_deref()),
        driver_version: driver_version(api)?,
    })
}

fn read_attribute(api: &Api, device: CUdevice, attribute: Attribute) -> DriverResult<u32> {
    let mut value = 0;
    // SAFETY: `value` outlives the call.
    unsafe { api.cuDeviceGetAttribute(&mut value, attribute, device) }?;
    Ok(unsigned(value))
}

fn name(api: &Api, device: CUdevice) -> DriverResult<String> {
    let mut bytes = [0_u8; 256];
    // SAFETY: the call writes at most the length that it is told, which is the array's.
    unsafe { api.cuDeviceGetName(bytes.as_mut_ptr().cast(), bytes.len() as c_int, device) }?;
    Ok(CStr::from_bytes_until_nul(&bytes)
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default())
}

fn total_memory(api: &Api, device: CUdevice) -> DriverResult<u64> {
    let mut bytes = 0_usize;
    // SAFETY: `bytes` outlives the call.
    unsafe { api.cuDeviceTotalMem(&mut bytes, device) }?;
    Ok(bytes as u64)
}

fn peers(api: &Api, ordinal: usize) -> DriverResult<Vec<usize>> {
    // Another device that does not answer is no peer, and no reason not to open this one.
    let reaches =
        |&other: &usize| other != ordinal && can_access_peer(api, ordinal, other).unwrap_or(false);
    Ok((0..device_count(api)?).filter(reaches).collect())
}

fn can_access_peer(api: &Api, ordinal: usize, other: usize) -> DriverResult<bool> {
    let (own, peer) = (device(api, ordinal)?, device(api, other)?);
    let mut can = 0;
    // SAFETY: `can` outlives the call.
    unsafe { api.cuDeviceCanAccessPeer(&mut can, own, peer) }?;
    Ok(can != 0)
}

/// What CUDA makes of the variable.
pub(super) fn hardware_queues(asked: Option<&str>) -> u32 {
    match asked.and_then(|asked| asked.trim().parse().ok()) {
        None | Some(0) => QUEUES_DEFAULT,
        Some(asked) => QUEUES_MOST.min(asked),
    }
}

pub(super) fn priorities(context: &Context) -> DriverResult<(i32, i32)> {
    let _current = context.enter(RARE)?;
    let (mut least, mut most) = (0, 0);
    // SAFETY: both locals outlive the call.
    unsafe { context.api().cuCtxGetStreamPriorityRange(&mut least, &mut most) }?;
    Ok((least, most))
}

fn driver_version(api: &Api) -> DriverResult<u32> {
    let mut version = 0;
    // SAFETY: `version` outlives the call.
    unsafe { api.cuDriverGetVersion(&mut version) }?;
    Ok(unsigned(version))
}

fn unsigned(value: c_int) -> u32 {
    u32::try_from(value).unwrap_or(0)
}
