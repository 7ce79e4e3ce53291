//! Kernels as declared in a program: what the attribute macro writes down.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::reactor::Operation;

/// One kernel of a module.
#[derive(Debug)]
pub struct KernelDecl {
    pub(super) operation: Operation,
    pub(super) entry: &'static str,
    /// Bytes of each parameter, in order.
    pub(super) params: &'static [usize],
    /// Its number in this process, given when it is first asked for.
    number: OnceLock<usize>,
}

impl KernelDecl {
    /// A kernel called `name` in Rust and `entry` in the PTX, with parameters of these sizes.
    pub const fn new(name: &'static str, entry: &'static str, params: &'static [usize]) -> Self {
        let operation = Operation::kernel(name);
        KernelDecl { operation, entry, params, number: OnceLock::new() }
    }

    pub(super) const fn operation(&self) -> &Operation {
        &self.operation
    }

    pub(super) fn name(&self) -> &'static str {
        self.operation.name()
    }

    /// Small and unique: an index into a device's table.
    pub(super) fn number(&self) -> usize {
        static NUMBERS: AtomicUsize = AtomicUsize::new(0);
        *self.number.get_or_init(|| NUMBERS.fetch_add(1, Relaxed))
    }
}

/// One PTX text and the kernels declared of it.
#[derive(Debug)]
pub struct ModuleDecl {
    pub(super) path: &'static str,
    pub(super) ptx: &'static str,
    pub(super) kernels: &'static [&'static KernelDecl],
}

impl ModuleDecl {
    /// A module declared at `path`.
    pub const fn new(
        path: &'static str,
        ptx: &'static str,
        kernels: &'static [&'static KernelDecl],
    ) -> Self {
        ModuleDecl { path, ptx, kernels }
    }
}

/// A module that devices load when they are opened.
#[derive(Debug)]
pub struct Registration(pub(super) &'static ModuleDecl);

impl Registration {
    /// Registers `module`.
    pub const fn new(module: &'static ModuleDecl) -> Self {
        Registration(module)
    }
}

inventory::collect!(Registration);
