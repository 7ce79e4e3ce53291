//! Loading the registered modules when a device is opened.

use std::ffi::CString;

use super::kernel::{KernelDecl, ModuleDecl, Registration};
use super::ptx::{entries, param_sizes, version};
use crate::device::{Device, FunctionTable, LoadedFunction};
use crate::driver::{DriverError, FunctionHandle, ModuleHandle, PtxError, wait_at_exit};
use crate::error::{Error, KernelError, Result};
use crate::foreign::contained;
use crate::reactor::Reactor;

const LOADING: &str = "loading a module of kernels";

/// Loads every module that is registered in this process (`cuModuleLoadData`, which waits for
/// running kernels). One that does not load, or does not have what is declared of it, leaves only
/// its own kernels without a function.
///
/// # Errors
///
/// The device was lost meanwhile.
pub(crate) fn load_registered(device: &Device) -> Result<()> {
    let reactor = device.core().reactor();
    let mut table = FunctionTable::default();
    for Registration(module) in inventory::iter::<Registration> {
        load(reactor, module, &mut table);
    }
    // A device is opened once.
    let _ = device.core().functions().set(table);
    if !reactor.driver().info().simulated {
        // The driver has loaded all of its parts by now.
        wait_at_exit();
    }
    reactor.announce();
    reactor.check()
}

pub(super) fn load(reactor: &Reactor, module: &'static ModuleDecl, table: &mut FunctionTable) {
    let loaded = text_of(module)
        .map_err(Trouble::NotPtx)
        .and_then(|ptx| reactor.driver().module_load(&ptx).map_err(Trouble::Refused));
    for kernel in module.kernels {
        let function = match &loaded {
            Ok(handle) => function(reactor, module, handle, kernel),
            Err(trouble) => Err(trouble.error(reactor, module, kernel)),
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
    fn error(&self, reactor: &Reactor, module: &ModuleDecl, kernel: &KernelDecl) -> Error {
        let (kernel, path) = (kernel.name(), module.path);
        let PtxError { error: cause, log } = match self {
            Trouble::NotPtx(why) => {
                return Error::Kernel(KernelError::NotPtx { kernel, module: path, why });
            }
            Trouble::Refused(refused) => refused,
        };
        let cause = *cause;
        match cause.code() {
            DriverError::UNSUPPORTED_PTX_VERSION => Error::Kernel(KernelError::PtxTooNew {
                kernel,
                module: path,
                version: version(module.ptx).unwrap_or("?").into(),
                driver_version: reactor.driver().info().driver_version,
                cause,
            }),
            DriverError::INVALID_IMAGE
            | DriverError::NO_BINARY_FOR_GPU
            | DriverError::INVALID_PTX
            | DriverError::JIT_COMPILER_NOT_FOUND
            | DriverError::JIT_COMPILATION_DISABLED
            | DriverError::UNSUPPORTED_EXEC_AFFINITY => Error::Kernel(KernelError::PtxRejected {
                kernel,
                module: path,
                cause,
                log: log[..].into(),
            }),
            // Not the text's fault.
            _ => reactor.refused(LOADING, cause),
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
    reactor: &Reactor,
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
            return Error::Kernel(KernelError::NotPtx { kernel, module: path, why });
        }
        let found = found.into_iter().map(str::to_owned).collect();
        Error::Kernel(KernelError::NoSuchKernel { kernel, module: path, entry, found })
    };
    let found = param_sizes(module.ptx, entry).ok_or_else(missing)?;
    if found != params {
        let (declared, found) = (params.into(), found.into());
        return Err(Error::Kernel(KernelError::SignatureMismatch {
            kernel,
            module: path,
            entry,
            declared,
            found,
        }));
    }
    let name = CString::new(entry).map_err(|_| missing())?;
    let found = reactor.driver().module_function(handle, &name);
    found.map_err(|cause| reactor.refused(LOADING, cause))
}

fn put(functions: &mut Vec<Option<LoadedFunction>>, at: usize, function: LoadedFunction) {
    if functions.len() <= at {
        functions.resize_with(at + 1, || None);
    }
    functions[at] = Some(function);
}
