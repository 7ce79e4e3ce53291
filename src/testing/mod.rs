//! Testing GPU code without a GPU.

mod explore;
mod failure;
mod panics;
mod shrink;
mod trial;

pub use explore::{Explore, Outcome, explore};
pub use failure::{Cause, Failure};
