//! Tasks: which stream their work goes to, and how to run them. The only layer that knows tokio.

mod block_on;
mod run;
mod scope;
mod spawn;
mod watch;
mod yields;

pub use block_on::block_on;
pub(crate) use run::{Chooser, Ended, OUT_OF_BLOCK_ON, Stall, run};
pub use scope::Scope;
pub use spawn::spawn;

/// Has streams told apart by the runtime's tasks.
pub(crate) fn install() {
    crate::device::install_task_id(spawn::current_task);
}
