//! One integration binary.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that meets an error fails")]

mod block_on;
mod common;
mod cost;
mod cost_model;
mod default_streams;
mod documents;
mod dropped;
mod early;
mod errors;
mod events;
mod executors;
#[cfg(feature = "cuda")]
mod exit;
mod explore_ends;
mod explore_report;
mod explore_threads;
mod faults;
#[cfg(feature = "cuda")]
mod foreign_context;
mod gpu;
mod host_memory;
mod implied;
mod kernels;
mod layers;
mod lost;
mod many_devices;
mod many_tasks;
mod operations;
mod oracle;
mod order;
mod overlaps;
mod parts;
mod programs;
mod public_faults;
mod queue;
mod races;
mod refused;
mod scopes;
mod shared;
mod streams;
mod stub_driver;
mod stuck;
mod suspects;
mod synchronize;
mod taken_back;
mod testing;
mod threads;
mod tiles;
mod transient;
mod twins;
mod types;
mod unreturned;
mod views;
mod visible;
mod waiters;
