//! Code of others that runs inside of ours: wakers, log subscribers, error hooks.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs foreign code where its panic must stop nothing of ours. False where it panicked.
pub(crate) fn contained(foreign: impl FnOnce()) -> bool {
    let Err(mut payload) = catch_unwind(AssertUnwindSafe(foreign)) else { return true };
    // What it panicked with is foreign as well: to drop it can panic.
    for _ in 0..3 {
        match catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            Ok(()) => return false,
            Err(again) => payload = again,
        }
    }
    std::mem::forget(payload);
    false
}
