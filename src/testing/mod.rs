#![doc = include_str!("guide.md")]

mod assertions;
mod explore;
mod failure;
mod panics;
mod shrink;
mod trial;
mod wait_count;

pub use assertions::{
    assert_all_freed, assert_no_overlap, assert_no_races, assert_no_violations, assert_overlap,
    device, device_with, waits,
};
pub use explore::{Explore, Outcome, explore};
pub use failure::{Cause, Failure};
pub use wait_count::{WaitCount, wait_count};

pub use crate::driver::{LoggedStep, Step, Touched};
pub use crate::op::Gate;
