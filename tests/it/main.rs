//! One integration binary.

mod kernels;
mod twins;
