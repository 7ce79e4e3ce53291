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
pub(crate) use self::api::MINIMUM_VERSION;
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

/// Why there is no CUDA to work with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unavailable {
    /// There is no driver library.
    NoLibrary,
    /// It is for an older CUDA, as 1000 * major + 10 * minor, than [`MINIMUM_VERSION`].
    TooOld { found: u32 },
    /// It lacks a function, or is the toolkit's, which is there to link with.
    Broken(DriverError),
    /// It refused a call.
    Refused(DriverError),
}

impl From<DriverError> for Unavailable {
    fn from(error: DriverError) -> Self {
        match error.code() {
            DriverError::SHARED_OBJECT_SYMBOL_NOT_FOUND | DriverError::STUB_LIBRARY => {
                Unavailable::Broken(error)
            }
            _ => Unavailable::Refused(error),
        }
    }
}

/// How many devices the process can see.
pub(crate) fn device_count() -> Result<usize, Unavailable> {
    match Api::get() {
        Err(Unavailable::Refused(error)) if error.code() == DriverError::NO_DEVICE => Ok(0),
        api => Ok(info::device_count(api?)?),
    }
}

/// What each visible device says of itself, without a context on any. Nothing where there is none.
pub(crate) fn visible() -> Result<Vec<DeviceInfo>, Unavailable> {
    let count = device_count()?;
    if count == 0 {
        return Ok(Vec::new());
    }
    let api = Api::get()?;
    let answer = |ordinal| {
        info::query(api, ordinal).inspect_err(|error| {
            contained(|| tracing::error!(ordinal, %error, "a CUDA device does not answer"));
        })
    };
    Ok((0..count).map(answer).collect::<DriverResult<_>>()?)
}

/// Opens a device: retains its primary context and makes a memory pool.
///
/// `Err` where the library, a symbol, a new enough driver or the device is missing.
pub(crate) fn open(ordinal: usize) -> Result<Arc<dyn Driver>, Unavailable> {
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
