//! Launching a declared kernel.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::sync::Arc;

use bytemuck::{NoUninit, Pod};
use smallvec::SmallVec;

use super::geometry::Geometry;
use super::kernel::KernelDecl;
use super::submit::{Operand, submit};
use super::twin::{TwinSlice, TwinSliceMut, TwinTile, TwinTileMut};
use crate::buffer::{Access, DeviceSlice, DeviceSliceMut, DeviceTile, DeviceTileMut, Mode};
use crate::device::{DeviceCore, FunctionTable, current_frame};
use crate::driver::{DevicePtr, FunctionHandle, KernelCost, Launch, MemAccess, TwinJob};
use crate::error::{Error, KernelError, Result};
use crate::reactor::{Completion, OpKey};

/// Device memory that a launch takes.
#[derive(Debug)]
pub struct Argument<'a> {
    core: &'a Arc<DeviceCore>,
    ptr: DevicePtr,
    operand: Operand<'a>,
}

/// A view of device memory as a kernel's parameter.
pub trait KernelMemory<'a> {
    /// What the kernel's twin resolves.
    type Twin;

    /// The memory; `fills`: a kernel that writes it writes every byte, without reading any.
    fn argument(&self, name: &'static str, fills: bool) -> Argument<'_>;

    /// Address of the first element.
    fn pointer(&self) -> DevicePtr;

    /// Where it lies, for the twin.
    fn twin(&self) -> Self::Twin;
}

macro_rules! kernel_memory {
    ($($view:ident as $twin:ident, $mode:expr;)+) => {$(
        impl<'a, T: Pod> KernelMemory<'a> for $view<'a, T> {
            type Twin = $twin<T>;

            fn argument(&self, name: &'static str, fills: bool) -> Argument<'_> {
                let (place, mode): (_, fn(bool) -> Mode) = (self.place(), $mode);
                let operand = Operand::new(name, place.access(mode(fills)));
                Argument { core: place.core(), ptr: place.ptr(), operand }
            }

            fn pointer(&self) -> DevicePtr {
                self.place().ptr()
            }

            fn twin(&self) -> $twin<T> {
                $twin::new(self.pointer(), self.place().shape())
            }
        }
    )+};
}

/// How a kernel that writes touches memory.
fn writing(fills: bool) -> Mode {
    if fills { Mode::Overwrite } else { Mode::Update }
}

kernel_memory! {
    DeviceSlice as TwinSlice, |_| Mode::Read;
    DeviceSliceMut as TwinSliceMut, writing;
    DeviceTile as TwinTile, |_| Mode::Read;
    DeviceTileMut as TwinTileMut, writing;
}

/// As [`KernelMemory::argument`].
pub fn argument<'v, 'a: 'v>(
    name: &'static str,
    view: &'v impl KernelMemory<'a>,
    fills: bool,
) -> Argument<'v> {
    view.argument(name, fills)
}

/// The device address that a kernel gets.
pub fn pointer<'a>(view: &impl KernelMemory<'a>) -> DevicePtr {
    view.pointer()
}

/// Captures where memory lies, for a kernel's twin.
pub fn twin<'a, V: KernelMemory<'a>>(view: &V) -> V::Twin {
    view.twin()
}

impl<'a> AsRef<Operand<'a>> for Argument<'a> {
    fn as_ref(&self) -> &Operand<'a> {
        &self.operand
    }
}

/// The address of a parameter's value, which has no padding that would be read.
pub fn param<T: Parameter>(value: &T) -> *const c_void {
    std::ptr::from_ref(value).cast()
}

/// What a kernel can get by value.
pub trait Parameter: Copy + 'static {}
impl<T: NoUninit> Parameter for T {}

// SAFETY: a transparent wrapper of u64, which has no padding and is plain data.
unsafe impl NoUninit for DevicePtr {}

/// The error of a declaration's condition that does not hold, with the sizes of the memory given.
pub fn requirement(
    kernel: &'static str,
    condition: &'static str,
    given: &[(&'static str, usize)],
) -> Error {
    Error::Kernel(KernelError::Requirement { kernel, condition, given: given.to_vec() })
}

/// A launch as the attribute macro writes it.
#[expect(missing_debug_implementations, reason = "exists for a call; its twin is a closure")]
pub struct LaunchCall<'a> {
    /// Which kernel.
    pub kernel: &'static KernelDecl,
    /// Blocks and threads.
    pub geometry: Geometry,
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
    /// For a simulated device's virtual time.
    pub cost: KernelCost,
    /// Addresses of the parameters' values, in the kernel's order.
    pub params: &'a [*const c_void],
    /// The buffers.
    pub arguments: &'a [Argument<'a>],
    /// Captures the twin.
    pub twin: Option<&'a dyn Fn() -> TwinJob>,
}

/// Enqueues a launch on the current stream of its buffers' device (`cuLaunchKernel`). A grid with
/// no blocks is nothing to do.
///
/// # Errors
///
/// The geometry is more than the device takes, the kernel has no function there, an argument is
/// not written or of another device, the queue is full, the driver refused, or the device is lost.
///
/// # Safety
///
/// `params` point to values of the kernel's parameter types, in its order. Launched so, the kernel
/// touches no device memory but that of `arguments`, and writes only those that are of views to be
/// written, wholly where it `fills` them. The twin does what the kernel does.
pub unsafe fn launch(call: LaunchCall<'_>) -> Result<Completion> {
    let LaunchCall { kernel, geometry, .. } = call;
    let scoped;
    let touched = || call.arguments.iter().filter(|argument| argument.operand.tracked.is_some());
    let core = match touched().next().or(call.arguments.first()) {
        Some(argument) => argument.core,
        None => {
            let frame =
                current_frame().ok_or(Error::NoCurrentDevice { operation: kernel.name() })?;
            scoped = frame.stream.device().core().clone();
            &scoped
        }
    };
    core.reactor().check()?;
    let function = function_of(core, kernel)?;
    if geometry.is_empty() {
        return Ok(Completion::ready());
    }
    if call.twin.is_none() && core.driver().info().simulated {
        return Err(Error::Kernel(KernelError::NoTwin { kernel: kernel.name() }));
    }
    let (grid, block) = geometry.checked(kernel.name(), call.shared_bytes, core.driver().info())?;
    let access = |argument: &Argument<'_>| {
        let Access { region, mode } = argument.operand.access;
        let (row, rows, pitch) = (region.row(), region.rows(), region.pitch());
        MemAccess { ptr: argument.ptr, row, rows, pitch, writes: mode.writes() }
    };
    let mut accesses = SmallVec::<[MemAccess; 8]>::new();
    if core.driver().sees_accesses() {
        accesses.extend(touched().map(access));
    }
    let launch = Launch {
        function,
        name: kernel.name(),
        grid,
        block,
        shared_bytes: call.shared_bytes,
        params: call.params,
        accesses: &accesses,
        cost: call.cost,
        twin: call.twin,
        gate: None,
    };
    let key = (kernel.number() as u32) << 20 ^ grid[0] ^ grid[1] << 8 ^ grid[2] << 16;
    let op = OpKey { operation: &kernel.operation, key };
    submit(core, op, call.arguments, 1, |driver, stream| {
        // SAFETY: the caller answers for the parameters and for what the kernel touches; those
        // buffers are freed after this operation in stream order, and `submit` has ordered it with
        // all that conflicts. The function's module stays loaded while the device is open.
        Ok(unsafe { driver.launch(&launch, stream) }?)
    })
}

fn function_of<'a>(
    core: &'a DeviceCore,
    kernel: &'static KernelDecl,
) -> Result<&'a FunctionHandle> {
    let functions = core.functions().get().map(|table: &FunctionTable| &table.functions);
    match functions.and_then(|functions| functions.get(kernel.number())) {
        Some(Some(Ok(function))) => Ok(function),
        Some(Some(Err(why))) => Err(why.clone()),
        Some(None) | None => Err(Error::Kernel(KernelError::NotLoaded { kernel: kernel.name() })),
    }
}
