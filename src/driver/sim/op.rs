//! Operations as a test sees them, before and after they run.

use super::timeline::SimEngine;

/// What an operation of the simulated device does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SimOpKind {
    /// A copy from host to device.
    CopyH2D,
    /// A copy from device to host.
    CopyD2H,
    /// A copy within the device.
    CopyD2D,
    /// A copy from one device to another.
    CopyPeer,
    /// A fill.
    Fill,
    /// A kernel launch, for which its twin runs.
    Kernel,
}

/// An operation that has not run yet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimOp {
    /// Names the operation on this machine. Grows in the order enqueued.
    pub id: u64,
    /// Its device, by its ordinal on the machine.
    pub device: usize,
    /// Its stream, as [`Stream::as_raw`](crate::Stream::as_raw) has it.
    pub stream: u64,
    /// What it does.
    pub kind: SimOpKind,
    /// The kernel's name; of other operations, a word for their kind.
    pub name: &'static str,
    /// Bytes it copies or fills, or declares to touch.
    pub bytes: u64,
    /// Whether it is first in its stream: it could run now, as far as the device is concerned.
    pub runnable: bool,
}

/// An operation that has run, with its virtual times.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimSpan {
    /// As [`SimOp::id`].
    pub id: u64,
    /// As [`SimOp::device`].
    pub device: usize,
    /// As [`SimOp::stream`].
    pub stream: u64,
    /// What it did.
    pub kind: SimOpKind,
    /// As [`SimOp::name`].
    pub name: &'static str,
    /// As [`SimOp::bytes`].
    pub bytes: u64,
    /// Where it ran.
    pub engine: SimEngine,
    /// Virtual time of its beginning, in ns.
    pub start: u64,
    /// Virtual time of its end, in ns.
    pub end: u64,
}
