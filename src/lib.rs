//! Await GPU work.

mod buffer;
mod builder;
mod device;
mod driver;
mod error;
mod op;
mod reactor;
mod sync;
mod task;

pub use buffer::{
    DeviceBuffer, DeviceSlice, DeviceSliceMut, HostBuffer, HostMut, HostRef, Read, Write,
};
pub use builder::DeviceBuilder;
pub use bytemuck::Pod;
pub use device::{Device, Elapsed, Event, Priority, Ready, Stream, StreamOptions};
pub use driver::{
    DeviceInfo, DevicePtr, DriverCalls, DriverError, KernelCost, TwinFault, TwinJob, TwinMemory,
};
pub use error::{DeviceFailure, Error, Result};
pub use headwater_macros::kernels;
pub use op::{CopySource, CopyTarget, ToVec, Upload};
pub use reactor::Completion;
pub use task::{Scope, block_on, spawn};

/// The simulated device: its options, its cost model, and the handle by which a test drives it.
pub mod sim {
    pub use crate::driver::sim::{
        CostModel, Schedule, SimEngine, SimOp, SimOpKind, SimOptions, SimSpan, Simulator, Violation,
    };
}

/// What the `kernels` attribute expands to. Not for use by hand.
#[doc(hidden)]
pub mod __private {
    pub use inventory;

    pub use crate::driver::{KernelCost, TwinJob, TwinMemory};
    pub use crate::op::{
        Argument, Geometry, KernelDecl, LaunchCall, ModuleDecl, Registration, TwinSlice,
        TwinSliceMut, argument, argument_mut, launch, param, pointer, pointer_mut, requirement,
        twin_slice, twin_slice_mut,
    };
}
