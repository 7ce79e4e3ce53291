//! Loading the registered modules when a device is opened.

use std::ffi::CString;
use std::sync::Arc;

use super::kernel::{KernelDecl, ModuleDecl, Registration};
use super::ptx::param_sizes;
use crate::device::{Device, FunctionTable, LoadedFunction};
use crate::driver::{Driver, ModuleHandle};

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
    let loaded = text_of(module).and_then(|ptx| {
        driver.module_load(&ptx).map_err(|error| {
            let why = format!("the module of {} did not load: {error}", module.path);
            Arc::<str>::from(why)
        })
    });
    for kernel in module.kernels {
        let function = match &loaded {
            Ok(handle) => function(driver, module, handle, kernel),
            Err(why) => Err(why.clone()),
        };
        if let Err(why) = &function {
            tracing::warn!(kernel = kernel.name, %why, "kernel cannot be launched");
        }
        put(&mut table.functions, kernel.number(), function);
    }
    table.modules.extend(loaded.ok());
}

fn text_of(module: &ModuleDecl) -> Result<CString, Arc<str>> {
    if !module.ptx.contains(".version") {
        let why = "what was given as the PTX of {} is none: it has no .version (include_str!?)";
        return Err(why.replace("{}", module.path).into());
    }
    CString::new(module.ptx)
        .map_err(|_| format!("the PTX of {} has a zero byte in it", module.path).into())
}

fn function(
    driver: &dyn Driver,
    module: &ModuleDecl,
    handle: &ModuleHandle,
    kernel: &KernelDecl,
) -> LoadedFunction {
    let KernelDecl { entry, params, .. } = kernel;
    match param_sizes(module.ptx, entry) {
        None => return Err(format!("the PTX of {} has no kernel {entry}", module.path).into()),
        Some(sizes) if sizes != *params => {
            let why = format!(
                "it is declared with parameters of {params:?} bytes, the PTX of {} has {sizes:?}",
                module.path
            );
            return Err(why.into());
        }
        Some(_) => {}
    }
    let name = CString::new(*entry).map_err(|_| Arc::from("its name has a zero byte in it"))?;
    driver.module_function(handle, &name).map_err(|error| error.to_string().into())
}

fn put(functions: &mut Vec<LoadedFunction>, at: usize, function: LoadedFunction) {
    while functions.len() <= at {
        functions.push(Err("its module was registered after the device was opened".into()));
    }
    functions[at] = function;
}
