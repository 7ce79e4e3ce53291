//! One integration binary.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that meets an error fails")]

mod common;
mod kernels;
mod programs;
mod twins;
