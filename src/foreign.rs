//! Code of others that runs inside of ours: wakers, log subscribers, error hooks.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs foreign code where its panic must stop nothing of ours. False where it panicked.
pub(crate) fn contained(foreign: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(foreign)) {
        Ok(()) => true,
        Err(payload) => {
            std::mem::forget(payload); // foreign as well: its drop could panic
            false
        }
    }
}
