//! The few kernels that the tests launch, on a GPU as they are and elsewhere by their twins.
#![allow(unsafe_code, clippy::unwrap_used)]

use std::ffi::{CStr, c_void};
use std::ptr;

use super::gate::GIVES_UP_AFTER;
use super::subject::Subject;
use crate::driver::{
    DevicePtr, Driver, DriverResult, FunctionHandle, KernelCost, Launch, MemAccess, ModuleHandle,
    StreamHandle, TwinFault, TwinJob, TwinMemory,
};

/// Threads of a block.
const BLOCK: u32 = 64;

/// `increment`, `copy_u32` and others.
pub(super) fn probe() -> &'static CStr {
    const PTX: &str = concat!(include_str!("../../../kernels/probe.ptx"), "\0");
    CStr::from_bytes_with_nul(PTX.as_bytes()).unwrap()
}

fn testing() -> &'static CStr {
    const PTX: &str = concat!(include_str!("../../../kernels/testing.ptx"), "\0");
    CStr::from_bytes_with_nul(PTX.as_bytes()).unwrap()
}

/// Functions of modules that stay loaded.
pub(super) struct Kernels {
    increment: FunctionHandle,
    copy: FunctionHandle,
    delay: FunctionHandle,
    out_of_bounds: FunctionHandle,
    gate: FunctionHandle,
    _modules: [ModuleHandle; 2],
}

impl Kernels {
    pub(super) fn load(driver: &dyn Driver) -> Self {
        let modules = [probe(), testing()].map(|ptx| driver.module_load(ptx).unwrap());
        let probe = |name| driver.module_function(&modules[0], name).unwrap();
        Kernels {
            increment: probe(c"increment"),
            copy: probe(c"copy_u32"),
            delay: probe(c"delay"),
            out_of_bounds: probe(c"out_of_bounds"),
            gate: driver.module_function(&modules[1], c"gate").unwrap(),
            _modules: modules,
        }
    }
}

/// How a kernel is launched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) shared_bytes: u32,
}

impl Shape {
    pub(super) const ONE_THREAD: Shape = Shape { grid: [1; 3], block: [1; 3], shared_bytes: 0 };

    /// A thread for each item.
    pub(super) fn of(items: u32) -> Self {
        let blocks = items.div_ceil(BLOCK).max(1);
        Shape { grid: [blocks, 1, 1], block: [BLOCK, 1, 1], shared_bytes: 0 }
    }
}

/// What a launch names beside its shape and its stream.
struct Kernel<'a> {
    function: &'a FunctionHandle,
    name: &'static str,
    accesses: &'a [MemAccess],
    cost: KernelCost,
    twin: &'a dyn Fn() -> TwinJob,
    gate: Option<u64>,
}

fn words(ptr: DevicePtr, n: u32, writes: bool) -> MemAccess {
    MemAccess::of_bytes(ptr, n as usize * 4, writes)
}

impl Subject {
    /// `x[i] += 1` for n words.
    pub(super) fn increment(&self, x: DevicePtr, n: u32, stream: &StreamHandle) {
        self.increment_by(&self.kernels.increment, x, n, stream);
    }

    /// By a function of another module, that does as this one's `increment`.
    pub(super) fn increment_by(
        &self,
        function: &FunctionHandle,
        x: DevicePtr,
        n: u32,
        stream: &StreamHandle,
    ) {
        self.try_increment(function, x, n, Shape::of(n), stream).unwrap();
    }

    pub(super) fn increment_as(
        &self,
        x: DevicePtr,
        n: u32,
        shape: Shape,
        stream: &StreamHandle,
    ) -> DriverResult<()> {
        self.try_increment(&self.kernels.increment, x, n, shape, stream)
    }

    fn try_increment(
        &self,
        function: &FunctionHandle,
        x: DevicePtr,
        n: u32,
        shape: Shape,
        stream: &StreamHandle,
    ) -> DriverResult<()> {
        let kernel = Kernel {
            function,
            name: "increment",
            accesses: &[words(x, n, true)],
            cost: KernelCost::Unknown,
            twin: &move || Box::new(move |memory| increment_on_host(memory, x, n)),
            gate: None,
        };
        self.launch(&kernel, shape, &mut [x.0, n.into()], stream)
    }

    /// `to[i] = from[i]` for n words.
    pub(super) fn copy_words(&self, to: DevicePtr, from: DevicePtr, n: u32, stream: &StreamHandle) {
        self.try_copy_words(to, from, n, stream).unwrap();
    }

    pub(super) fn try_copy_words(
        &self,
        to: DevicePtr,
        from: DevicePtr,
        n: u32,
        stream: &StreamHandle,
    ) -> DriverResult<()> {
        let kernel = Kernel {
            function: &self.kernels.copy,
            name: "copy_u32",
            accesses: &[words(from, n, false), words(to, n, true)],
            cost: KernelCost::Unknown,
            twin: &move || Box::new(move |memory| copy_on_host(memory, to, from, n)),
            gate: None,
        };
        self.launch(&kernel, Shape::of(n), &mut [from.0, to.0, n.into()], stream)
    }

    /// Takes so long, and touches nothing.
    pub(super) fn delay(&self, nanoseconds: u64, stream: &StreamHandle) {
        let kernel = Kernel {
            function: &self.kernels.delay,
            name: "delay",
            accesses: &[],
            cost: KernelCost::Nanoseconds(nanoseconds),
            twin: &|| Box::new(|_| Ok(())),
            gate: None,
        };
        self.launch(&kernel, Shape::ONE_THREAD, &mut [0, 0, nanoseconds], stream).unwrap();
    }

    /// Writes where there is no memory, which ends the device.
    pub(super) fn write_out_of_bounds(&self, x: DevicePtr, stream: &StreamHandle) {
        let kernel = Kernel {
            function: &self.kernels.out_of_bounds,
            name: "out_of_bounds",
            accesses: &[words(x, 1, true)],
            cost: KernelCost::Unknown,
            twin: &move || {
                Box::new(move |_| Err(TwinFault { ptr: DevicePtr(x.0 + (1 << 42)), bytes: 4 }))
            },
            gate: None,
        };
        self.launch(&kernel, Shape::ONE_THREAD, &mut [x.0, 1], stream).unwrap();
    }

    /// For [`Subject::hold`]: `words` is the address of the gate's words on a GPU, `gate` its number
    /// elsewhere.
    pub(super) fn launch_gate(&self, words: u64, gate: Option<u64>, stream: &StreamHandle) {
        let kernel = Kernel {
            function: &self.kernels.gate,
            name: "gate",
            accesses: &[],
            cost: KernelCost::Unknown,
            twin: &|| Box::new(|_| Ok(())),
            gate,
        };
        self.launch(&kernel, Shape::ONE_THREAD, &mut [words, GIVES_UP_AFTER], stream).unwrap();
    }

    /// Each parameter has eight bytes, of which the kernel takes as many as it has declared. They are
    /// overwritten after the call, as whoever made it may do.
    fn launch(
        &self,
        kernel: &Kernel<'_>,
        shape: Shape,
        params: &mut [u64],
        stream: &StreamHandle,
    ) -> DriverResult<()> {
        let addresses: Vec<*const c_void> =
            params.iter().map(|param| ptr::from_ref(param).cast()).collect();
        let launch = Launch {
            function: kernel.function,
            name: kernel.name,
            grid: shape.grid,
            block: shape.block,
            shared_bytes: shape.shared_bytes,
            params: &addresses,
            accesses: kernel.accesses,
            cost: kernel.cost,
            twin: Some(kernel.twin),
            gate: kernel.gate,
        };
        // SAFETY: the parameters are those of the kernel, whose module stays loaded, and the accesses
        // are what it touches: see `kernels/*.cu`. Tests keep memory alive and order what they do.
        let launched = unsafe { self.driver.launch(&launch, stream) };
        params.fill(u64::MAX);
        launched
    }
}

fn increment_on_host(memory: &dyn TwinMemory, x: DevicePtr, n: u32) -> Result<(), TwinFault> {
    let bytes = n as usize * 4;
    let at = memory.resolve(x, bytes).ok_or(TwinFault { ptr: x, bytes })?;
    // SAFETY: those bytes are live and aligned, and nothing else runs on the device.
    let x = unsafe { std::slice::from_raw_parts_mut(at.cast::<u32>().as_ptr(), n as usize) };
    x.iter_mut().for_each(|x| *x = x.wrapping_add(1));
    Ok(())
}

fn copy_on_host(
    memory: &dyn TwinMemory,
    to: DevicePtr,
    from: DevicePtr,
    n: u32,
) -> Result<(), TwinFault> {
    let bytes = n as usize * 4;
    let resolve = |ptr| memory.resolve(ptr, bytes).ok_or(TwinFault { ptr, bytes });
    let (to, from) = (resolve(to)?, resolve(from)?);
    // SAFETY: those bytes are live, and nothing else runs on the device.
    unsafe { ptr::copy(from.as_ptr(), to.as_ptr(), bytes) };
    Ok(())
}
