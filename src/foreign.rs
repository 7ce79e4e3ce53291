//! Code of others that runs inside of ours: wakers and log subscribers.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs foreign code where its panic must stop nothing of ours. False where it panicked.
pub(crate) fn contained(foreign: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(foreign)).is_ok()
}
