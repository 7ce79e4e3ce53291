//! Await GPU work.
#![allow(dead_code)]

mod buffer;
mod device;
mod driver;
mod error;
mod reactor;
mod sync;

pub use buffer::{DeviceBuffer, DeviceSlice, DeviceSliceMut, HostBuffer, HostMut, HostRef, Read, Write};
pub use device::{Device, Elapsed, Event, Priority, Ready, Stream, StreamOptions};
pub use driver::{
    DeviceInfo, DevicePtr, DriverCalls, DriverError, KernelCost, TwinFault, TwinJob, TwinMemory,
};
pub use error::{DeviceFailure, Error, Result};
pub use reactor::Completion;

/// The simulated device: its options, its cost model, and the handle by which a test drives it.
pub mod sim {
    pub use crate::driver::sim::{
        CostModel, Schedule, SimEngine, SimOp, SimOpKind, SimOptions, SimSpan, Simulator, Violation,
    };
}
