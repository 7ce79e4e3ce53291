//! The operations: everything that is enqueued on a stream, through one submit path.

mod alloc;
mod copy;
mod fill;
mod gate;
mod geometry;
mod kernel;
mod launch;
mod modules;
mod ptx;
mod staged;
mod submit;
mod twin;

pub use copy::{CopySource, CopyTarget, OnDevice};
pub use gate::Gate;
pub use geometry::Geometry;
pub use kernel::{KernelDecl, ModuleDecl, Registration};
pub use launch::{
    Argument, LaunchCall, argument, argument_mut, launch, param, pointer, pointer_mut, requirement,
};
pub(crate) use modules::load_registered;
pub use staged::{ToVec, Upload};
pub use twin::{TwinSlice, TwinSliceMut, twin_slice, twin_slice_mut};
