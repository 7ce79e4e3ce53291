//! A simulated device: the driver's contract kept without a GPU, as harshly as it allows.
//!
//! It is honestly asynchronous. Nothing runs on the enqueuing thread or before the call returned; a
//! stream is a queue, an event's recording is reached when its stream comes to it, and memory is
//! freed and handed out again in the order of streams. What a GPU may do, this one does: memory
//! nobody wrote holds `0xCB`, freed addresses are reused at once, and a missing wait lets an
//! operation run too early. Operations run one at a time, and none touches page-locked memory that
//! the host has, so such a mistake makes wrong bytes or a reported [`Violation`], never undefined
//! behaviour.
//!
//! When something runs is the [`Schedule`]'s to say. Under a schedule in lock-step the device moves
//! only inside calls, each of which has a turn first: the same calls make the same run.
//!
//! Time is virtual: each operation gets a start and an end by a [`CostModel`] when it runs, exact
//! and repeatable, however long its twin took.
//!
//! From pure to impure:
//!
//! - `cost`, `steps`, `link`, `compute`, `timeline`, `schedule`, `random`, `module`, `fault`,
//!   `armed`, `facts`: arithmetic, no lock or thread;
//! - `memory`, `bytes`: the address space; the raw storage behind it (all of the `unsafe`);
//! - `work`, `queue`: one operation; what streams are made of; `op`, `violation`: what a test is told
//!   of them;
//! - `state`: streams, events and everything else under the lock; more of it in `run` (what becomes of
//!   streams), `turn` (what lock-step lets run), `stuck` (who waits for whom), `loss` (how devices end)
//!   and `host` (what the host has to itself);
//! - `machine`, `entered`, `executor`: the lock and its waits; a call that holds it; the thread;
//! - `device`: [`Driver`](crate::driver::Driver) on top; `many`: a machine's devices and opening one;
//!   `control`: the test's handle; `options`.

mod armed;
mod bytes;
mod compute;
mod control;
mod copy_rows;
mod cost;
mod device;
mod entered;
mod executor;
mod facts;
mod fault;
mod host;
mod link;
mod loss;
mod machine;
mod many;
mod memory;
mod module;
mod op;
mod options;
mod queue;
mod random;
mod reach;
mod run;
mod schedule;
mod state;
mod steps;
mod stuck;
#[cfg(test)]
mod tests;
mod timeline;
mod turn;
mod violation;
mod work;

pub use control::Simulator;
pub use cost::CostModel;
pub use fault::{Fault, Injected};
pub use many::SimMachine;
pub(crate) use many::open;
pub use op::{SimOp, SimOpKind, SimSpan};
pub use options::{Pageable, SimOptions};
pub use schedule::Schedule;
pub use stuck::{Stuck, StuckStream, WaitsFor};
pub use timeline::SimEngine;
pub use violation::Violation;
