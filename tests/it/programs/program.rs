//! Programs as values.
//!
//! A program is a list of lines that run one after the other, each from some place: outside of any
//! scope, inside the scope of a stream, or in an async task. So the order of what conflicts is the
//! program's, while a task that awaits something stays behind as other places go on.

use super::names::{Name, Operand};

/// Streams that lines name in a scope.
pub(crate) const STREAMS: usize = 3;
/// Async tasks, each in a scope of its own.
pub(crate) const TASKS: usize = 3;
/// Completions that lines can hold, and events.
pub(crate) const HELD: usize = 3;

/// A program, with the numbers it needs that are no part of what it computes.
#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) lines: Vec<Line>,
    /// Decides what a stepped device runs when, and the seed of one that chooses by itself.
    pub(crate) dice: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) place: Place,
    pub(crate) does: Does,
}

/// Where a line runs, which decides its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Thread,
    Stream(usize),
    Task(usize),
}

/// What a line does: nothing, where it needs memory that is not there.
#[derive(Clone, Debug)]
pub(crate) enum Does {
    /// Enqueues work and does something with its completion.
    Work(Work, Fate),
    /// Replaces a buffer, on the device or pinned, by a new one; on the device zeroed or not.
    Alloc {
        x: Name,
        len: usize,
        zeroed: bool,
        old: Old,
    },
    /// Replaces a device buffer by one with these elements: `value`, `value + 1` and so on.
    Upload {
        x: Name,
        len: usize,
        value: u32,
        end: End,
    },
    ToVec {
        x: Operand,
        end: End,
    },
    Read {
        p: Operand,
        how: How,
    },
    /// As an upload has it.
    Write {
        p: Operand,
        value: u32,
        how: How,
    },
    /// Parts become a buffer, and the buffer that has this name is dealt out in their stead.
    Rejoin {
        x: Name,
        order: Order,
        /// Whether a part of another buffer is among them.
        stranger: bool,
        deal: Deal,
    },
    /// Deals out a new buffer, after the parts that there were are dropped.
    Deal {
        /// Whose kind of parts.
        x: Name,
        len: usize,
        deal: Deal,
    },
    DropPart {
        part: Name,
    },
    /// Works on a part that is its own, awaiting in between.
    Own {
        part: Name,
        value: u32,
    },
    /// A device buffer and a shared one change places, if that has one handle.
    Share {
        x: Name,
        shared: Name,
    },
    /// The second shared buffer becomes a handle to the first.
    CloneShared,
    /// Replaces a shared buffer, of which another handle may stay.
    AllocShared {
        shared: Name,
        len: usize,
        zeroed: bool,
    },
    Record {
        event: usize,
    },
    WaitFor {
        event: usize,
    },
    AwaitEvent {
        event: usize,
    },
    AwaitHeld {
        held: usize,
    },
    AskHeld {
        held: usize,
    },
    DropHeld {
        held: usize,
    },
    Synchronize,
    /// Polls a task that awaits something once, and does nothing else in any place.
    PollTask {
        task: usize,
    },
    /// Drops a task, with what it holds, and starts another one.
    AbortTask {
        task: usize,
    },
    /// So many calls of the driver from here on pass, and the next one is refused.
    Refuse {
        after: u64,
    },
}

/// What is enqueued. Two operands of one name have no element in common.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    Fill {
        x: Operand,
        value: u32,
    },
    /// By a kernel, of elements in one piece, as the next two.
    Increment {
        x: Operand,
    },
    CopyKernel {
        from: Operand,
        to: Operand,
    },
    Add {
        a: Operand,
        b: Operand,
        to: Operand,
    },
    /// By a kernel, of one tile into one column of another.
    SumRows {
        from: Operand,
        to: Operand,
    },
    /// By the driver; one side may be pinned; `by_source`: which of the two methods.
    Copy {
        from: Operand,
        to: Operand,
        by_source: bool,
    },
}

/// What becomes of a completion.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    Drop,
    Await,
    Hold(usize),
    Poll,
    PollAndHold(usize),
    Forget,
}

/// When the buffer that is replaced is dropped: freed memory can be had again at once.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Old {
    DroppedBefore,
    DroppedAfter,
}

/// What becomes of an upload or a download.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Await,
    Drop,
    PollAndDrop,
}

/// How the host asks for the bytes of a pinned buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    Await,
    Block,
    Try,
    /// Asks for them, and lets go before they come.
    PollAndDrop,
}

/// In which order parts are rejoined.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    AsDealt,
    Reversed,
    /// The first one last.
    Rotated,
}

/// How a buffer is dealt out, as [`PARTS`](super::names::PARTS) parts at most.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deal {
    Parts(usize),
    Chunks(usize),
}

impl Work {
    /// What it touches; what it writes is the last.
    pub(crate) fn operands(self) -> Vec<Operand> {
        match self {
            Work::Fill { x, .. } | Work::Increment { x } => vec![x],
            Work::CopyKernel { from, to }
            | Work::SumRows { from, to }
            | Work::Copy { from, to, .. } => vec![from, to],
            Work::Add { a, b, to } => vec![a, b, to],
        }
    }
}

impl Does {
    /// What it needs: where a task has taken that, the line comes after the task's.
    pub(crate) fn needs(&self) -> Vec<Name> {
        match self {
            Does::Work(work, _) => work.operands().iter().map(|operand| operand.of).collect(),
            Does::Alloc { x, .. } | Does::Upload { x, .. } => vec![*x],
            Does::ToVec { x, .. } => vec![x.of],
            Does::Read { p, .. } | Does::Write { p, .. } => vec![p.of],
            Does::Rejoin { x, .. } | Does::Deal { x, .. } => {
                let mut needed = x.parts();
                needed.push(*x);
                needed
            }
            Does::DropPart { part } | Does::Own { part, .. } => vec![*part],
            Does::Share { x, shared } => vec![*x, *shared],
            _ => Vec::new(),
        }
    }

    /// What a task keeps from others while it awaits something: what it replaces, owns or has
    /// borrowed.
    pub(crate) fn takes(&self) -> Vec<Name> {
        match self {
            Does::Upload { end: End::Await, .. }
            | Does::Own { .. }
            | Does::Read { how: How::Await, .. }
            | Does::Write { how: How::Await, .. } => self.needs(),
            _ => Vec::new(),
        }
    }
}
