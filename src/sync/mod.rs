//! The locks, atomics and fences of this crate, in one place so that a model checker can stand in for
//! them: they are the standard library's, and loom's in tests built with `--cfg headwater_loom`.
//!
//! A model is made and dropped thousands of times, so what lives as long as the process is no part of
//! one: statics take their locks from [`of_process`] and their atomics from the standard library. So
//! does what only tests and the simulated device have. `Arc` is the standard library's everywhere,
//! since loom's holds no trait objects; `OnceLock` is, except where a thread goes by whether
//! another one has set it.

#[cfg_attr(all(test, headwater_loom), allow(dead_code, reason = "of statics alone"))]
mod locks;
#[cfg(all(test, headwater_loom))]
#[allow(clippy::expect_used)]
mod modelled;

#[cfg(not(all(test, headwater_loom)))]
pub(crate) use std::sync::OnceLock;

#[cfg(not(all(test, headwater_loom)))]
pub(crate) use locks::{Condvar, Mutex, MutexGuard};
#[cfg(all(test, headwater_loom))]
pub(crate) use modelled::{Condvar, Mutex, MutexGuard, OnceLock, explore};

/// Whether this build is one for models: tables that are long because that is cheap are short there,
/// since a model makes them anew for every one of its runs.
pub(crate) const MODELLED: bool = cfg!(all(test, headwater_loom));

/// Locks of statics.
pub(crate) mod of_process {
    pub(crate) use super::locks::{Condvar, Mutex};
}

/// Atomics and fences.
pub(crate) mod atomic {
    #[cfg(not(all(test, headwater_loom)))]
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence,
    };

    #[cfg(all(test, headwater_loom))]
    pub(crate) use super::modelled::atomic::{
        AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence,
    };
}
