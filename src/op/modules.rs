//! Loading the registered modules when a device is opened.

use std::ffi::CString;
use std::sync::Arc;

use super::kernel::{KernelDecl, ModuleDecl, Registration};
use super::ptx::{entries, param_sizes, version};
use crate::device::{Device, FunctionTable, LoadedFunction};
use crate::driver::{Driver, DriverError, FunctionHandle, ModuleHandle, PtxError};
use crate::error::{Error, Result};
use crate::foreign::contained;

/// Loads every module that is registered in this process (`cuModuleLoadData`, which waits for
/// running kernels). One that does not load, or does not have what is declared of it, leaves only
/// its own kernels without a function.
pub(crate) fn load_registered(device: &Device) {
    let driver = &**device.core().driver();
    let mut table = FunctionTable::default();
    for Registration(module) in inventory::iter::<Registration> {
        load(driver, module, &mut table);
    }
    // A device is opened once.
    let _ = device.core().functions().set(table);
}

fn load(driver: &dyn Driver, module: &'static ModuleDecl, table: &mut FunctionTable) {
    let loaded = text_of(module)
        .map_err(Trouble::NotPtx)
        .and_then(|ptx| driver.module_load(&ptx).map_err(Trouble::Refused));
    for kernel in module.kernels {
        let function = match &loaded {
            Ok(handle) => function(driver, module, handle, kernel),
            Err(trouble) => Err(trouble.error(driver, module, kernel)),
        };
        if let Err(error) = &function {
            contained(|| tracing::warn!(%error, "a kernel cannot be launched"));
        }
        put(&mut table.functions, kernel.number(), function);
    }
    table.modules.extend(loaded.ok());
}

/// Why a module did not load.
enum Trouble {
    NotPtx(&'static str),
    Refused(PtxError),
}

impl Trouble {
    /// What a launch of `kernel` is answered.
    fn error(&self, driver: &dyn Driver, module: &ModuleDecl, kernel: &KernelDecl) -> Error {
        let (kernel, path) = (kernel.name(), module.path);
        match self {
            Trouble::NotPtx(why) => Error::NotPtx { kernel, module: path, why },
            Trouble::Refused(PtxError { error, .. })
                if error.code() == DriverError::UNSUPPORTED_PTX_VERSION =>
            {
                Error::PtxTooNew {
                    kernel,
                    module: path,
                    version: version(module.ptx).unwrap_or("?").into(),
                    driver_version: driver.info().driver_version,
                    source: *error,
                }
            }
            Trouble::Refused(PtxError { error, log }) => {
                Error::PtxRejected { kernel, module: path, source: *error, log: log[..].into() }
            }
        }
    }
}

fn text_of(module: &ModuleDecl) -> Result<CString, &'static str> {
    match version(module.ptx) {
        None => Err("it has no .version"),
        Some(_) => CString::new(module.ptx).map_err(|_| "it has a zero byte in it"),
    }
}

fn function(
    driver: &dyn Driver,
    module: &ModuleDecl,
    handle: &ModuleHandle,
    kernel: &'static KernelDecl,
) -> Result<FunctionHandle> {
    let KernelDecl { entry, params, .. } = *kernel;
    let (kernel, path) = (kernel.name(), module.path);
    let missing = || {
        let found = entries(module.ptx);
        if found.contains(&entry) {
            let why = "what it says of the kernel's parameters cannot be read";
            return Error::NotPtx { kernel, module: path, why };
        }
        let found = found.into_iter().map(str::to_owned).collect();
        Error::NoSuchKernel { kernel, module: path, entry, found }
    };
    let found = param_sizes(module.ptx, entry).ok_or_else(missing)?;
    if found != params {
        let declared = params.to_vec();
        return Err(Error::SignatureMismatch { kernel, module: path, entry, declared, found });
    }
    let name = CString::new(entry).map_err(|_| missing())?;
    driver.module_function(handle, &name).map_err(|source| {
        let log = Arc::from("");
        Error::PtxRejected { kernel, module: path, source, log }
    })
}

fn put(functions: &mut Vec<Option<LoadedFunction>>, at: usize, function: LoadedFunction) {
    if functions.len() <= at {
        functions.resize_with(at + 1, || None);
    }
    functions[at] = Some(function);
}
