//! CUDA: the driver library, loaded when the first device is opened.
//!
//! - `api`: the library's entry points, looked up once
//! - `context`: the primary context, and which calls need it current
//! - `pool`: the memory pool; `module`: loading PTX; `info`: a device's properties
//! - `calls`: [`Driver`] itself
//!
//! cudarc gives the types and finds the library. Its safe layer's `CudaContext` is not held here:
//! who wants one makes it for the same device and retains the same primary context.

use std::sync::Arc;

use self::api::Api;
pub(crate) use self::api::{MINIMUM_VERSION, installed_version};
use self::context::Context;
use self::pool::Pool;
use super::{DeviceInfo, Driver, DriverError, DriverResult};
use crate::foreign::contained;

mod api;
mod calls;
mod context;
mod info;
mod module;
mod pool;
#[cfg(test)]
mod tests;

/// How many devices the process can see. No device at all is `Err`, with code 100 from `cuInit`.
pub(crate) fn device_count() -> DriverResult<usize> {
    info::device_count(Api::get()?)
}

/// What each visible device says of itself, without a context on any. Nothing where there is none.
pub(crate) fn visible() -> DriverResult<Vec<DeviceInfo>> {
    let api = match Api::get() {
        Err(error) if error.code() == DriverError::NO_DEVICE => return Ok(Vec::new()),
        api => api?,
    };
    let answer = |ordinal| {
        info::query(api, ordinal).inspect_err(|error| {
            contained(|| tracing::error!(ordinal, %error, "a CUDA device does not answer"));
        })
    };
    (0..info::device_count(api)?).map(answer).collect()
}

/// Opens a device: retains its primary context and makes a memory pool.
///
/// `Err` where the library, a symbol, a new enough driver or the device is missing.
pub(crate) fn open(ordinal: usize) -> DriverResult<Arc<dyn Driver>> {
    let api = Api::get()?;
    let context = Context::retain(api, info::device(api, ordinal)?)?;
    let mut info = info::query(api, ordinal)?;
    info.priorities = Some(info::priorities(&context)?);
    let pool = {
        let _current = context.enter(context::RARE)?;
        Pool::create(context.api(), context.device())?
    };
    Ok(Arc::new(Cuda { info, pool, context }))
}

/// One CUDA device. Dropped by who has dropped all its handles; dropping it does not wait.
struct Cuda {
    info: DeviceInfo,
    pool: Pool,
    context: Context,
}
