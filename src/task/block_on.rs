//! Running a future without a runtime.

use std::future::Future;

use crate::reactor::block_on_thread;

/// Runs a future to its end on the calling thread, blocking it.
///
/// The thread looks after its GPU work itself, asking for events as the reactor's thread would: it
/// needs neither a runtime nor that thread, takes less CPU, and resumes sooner after the device is
/// done. Futures of other libraries work as far as they need no runtime of their own. Do not call
/// it on an async worker, nor in a waker.
pub fn block_on<F: Future>(future: F) -> F::Output {
    block_on_thread(future)
}
