//! One integration binary.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that meets an error fails")]

mod common;
mod cost;
mod dropped;
mod early;
mod host_memory;
mod kernels;
mod order;
mod programs;
mod queue;
mod twins;
