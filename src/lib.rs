//! Await GPU work.
#![allow(dead_code)]

mod driver;

pub use driver::{
    DeviceInfo, DevicePtr, DriverCalls, DriverError, KernelCost, TwinFault, TwinJob, TwinMemory,
};

/// The simulated device: its options, its cost model, and the handle by which a test drives it.
pub mod sim {
    pub use crate::driver::sim::{
        CostModel, Schedule, SimEngine, SimOp, SimOpKind, SimOptions, SimSpan, Simulator, Violation,
    };
}
