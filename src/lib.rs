//! Await GPU work.
#![allow(dead_code)]

mod driver;
mod error;
mod reactor;
mod sync;

pub use error::{DeviceFailure, Error, Result};
