//! What a launch is made of.

use std::ffi::c_void;
use std::ptr::NonNull;

use super::{DevicePtr, FunctionHandle, MemAccess};

/// Device memory as a twin sees it while it runs: on the simulated device, nowhere else.
pub trait TwinMemory {
    /// Host address of `bytes` bytes at `ptr`, or `None` where they are not all inside one live
    /// allocation.
    fn resolve(&self, ptr: DevicePtr, bytes: usize) -> Option<NonNull<u8>>;
}

/// A kernel's Rust equivalent with its arguments captured, run once on the simulated device.
/// `Err` is an access outside live memory, the simulated form of an illegal address.
pub type TwinJob = Box<dyn FnOnce(&dyn TwinMemory) -> Result<(), TwinFault> + Send>;

/// A twin reached for memory that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TwinFault {
    /// First byte asked for.
    pub ptr: DevicePtr,
    /// How many.
    pub bytes: usize,
}

/// How long a kernel is declared to take, for the simulated device's virtual time only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KernelCost {
    /// Not declared: the bytes it touches decide.
    #[default]
    Unknown,
    /// Arithmetic operations of the whole launch; the simulated device's rate makes time of them.
    Arithmetic(u64),
    /// A time in nanoseconds, whatever the device.
    Nanoseconds(u64),
}

/// A kernel launch, as `cuLaunchKernel` takes it, and what a simulator needs beside.
pub(crate) struct Launch<'a> {
    pub(crate) function: &'a FunctionHandle,
    /// The kernel's name as declared.
    pub(crate) name: &'static str,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    /// Addresses of the parameter values, in the kernel's order; read during the call only.
    pub(crate) params: &'a [*const c_void],
    /// Device memory the kernel touches; may be left out where nobody [sees](super::Driver::sees_accesses) it.
    pub(crate) accesses: &'a [MemAccess],
    /// What the simulator's cost model goes by.
    pub(crate) cost: KernelCost,
    /// Captures the twin; called by simulators only, and only during the call.
    pub(crate) twin: Option<&'a dyn Fn() -> TwinJob>,
    /// On a simulated device, the gate that it waits at: see `Simulator::gate`. On a GPU the kernel
    /// itself waits, and this is not looked at.
    pub(crate) gate: Option<u64>,
}
