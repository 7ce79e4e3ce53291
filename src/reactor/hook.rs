//! Where errors go that no call returns.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;
use crate::foreign::contained;

/// The program's function for errors that no call returns; they go to the log as well.
///
/// It is foreign code: called with no lock held, and its panic stops nothing.
#[derive(Clone, Default)]
pub(crate) struct ErrorHook(Option<Arc<Hook>>);

type Hook = dyn Fn(&Error) + Send + Sync;

impl ErrorHook {
    pub(crate) fn new(hook: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        ErrorHook(Some(Arc::new(hook)))
    }

    pub(crate) fn tell(&self, error: &Error) {
        contained(|| tracing::error!("{error}"));
        if let Some(hook) = &self.0 {
            contained(|| hook(error));
        }
    }

    /// Tells that `what` was not given back. On a lost device nothing is, and that is told once.
    pub(crate) fn not_released(&self, what: impl FnOnce() -> String, why: Error) {
        if !matches!(why, Error::DeviceLost(_)) {
            self.tell(&Error::NotReleased { what: what(), why: Box::new(why) });
        }
    }
}

impl fmt::Debug for ErrorHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "ErrorHook" } else { "no ErrorHook" })
    }
}
