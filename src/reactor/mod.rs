//! What turns finished events into wake-ups.
//!
//! A [`Lane`] is the reactor's side of one stream: the order of its operations, the events recorded
//! in it, the frontier up to which it is known to be done, and who waits. A [`Completion`] is the
//! future of one operation. The [`Reactor`] owns a device's events, its thread and its fate.

mod backoff;
mod by_hand;
mod clock;
mod completion;
mod event_pool;
mod fate;
mod frontier;
mod hook;
mod in_flight;
mod lane;
mod local;
#[cfg(all(test, headwater_loom))]
#[allow(clippy::unwrap_used)]
mod models;
mod of_thread;
mod probe;
mod record;
mod refusals;
mod submit;
mod thread;
mod timer_slack;
mod trouble;
mod waiters;
mod waits;

pub(crate) use by_hand::{Hand, hold};
pub(crate) use clock::Clock;
pub use completion::Completion;
pub(crate) use event_pool::EventRef;
pub(crate) use fate::LossKey;
pub(crate) use hook::ErrorHook;
pub(crate) use in_flight::Operation;
pub use lane::StreamRole;
pub(crate) use lane::{Lane, LaneId, LaneOptions};
pub(crate) use local::{Woken, block_on_thread};
pub(crate) use submit::{Enqueue, Held, OpKey, Recording};
pub(crate) use thread::{Reactor, ReactorOptions, Turned};
pub(crate) use waits::{Latest, Waits};

/// The name of an operation: the `seq`-th of its lane, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ticket {
    pub(crate) lane: LaneId,
    pub(crate) seq: u64,
}
