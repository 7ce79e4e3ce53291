//! The operations: everything that is enqueued on a stream, through one submit path.

mod alloc;
mod copy;
mod copy_within;
mod fill;
mod gate;
mod geometry;
mod kernel;
mod launch;
#[cfg(all(test, headwater_loom))]
#[allow(clippy::unwrap_used)]
mod models;
mod modules;
mod prefetch;
mod ptx;
mod staging;
mod submit;
mod twin;

pub use alloc::AllocWait;
pub use copy::{CopySource, CopyTarget, OnDevice};
pub use gate::Gate;
pub use geometry::Geometry;
pub use kernel::{KernelDecl, ModuleDecl, Registration};
pub use launch::{
    Argument, KernelMemory, LaunchCall, argument, launch, param, pointer, requirement, twin,
};
pub(crate) use modules::load_registered;
pub use prefetch::Prefetch;
pub use staging::{Progress, Refill, Source, ToVec, Upload};
pub use twin::{TwinSlice, TwinSliceMut, TwinTile, TwinTileMut};
