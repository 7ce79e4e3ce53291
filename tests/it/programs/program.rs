//! Programs as values, and how they read.
//!
//! A program is a list of lines that run one after the other, each from some place: outside of any
//! scope, inside the scope of a stream, or in an async task. So the order of what conflicts is the
//! program's, while a task that awaits something stays behind as other places go on.

use std::fmt;

/// Streams that lines name in a scope.
pub(crate) const STREAMS: usize = 3;
/// Async tasks, each in a scope of its own.
pub(crate) const TASKS: usize = 3;
/// Device buffers, always there.
pub(crate) const BUFFERS: usize = 4;
/// Pinned buffers, always there.
pub(crate) const PINNED: usize = 2;
/// Completions that lines can hold, and events.
pub(crate) const HELD: usize = 3;
/// Elements that a buffer has: one of these.
pub(crate) const LENGTHS: [usize; 2] = [8, 5];

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

/// A device buffer's number, and a pinned buffer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Buffer(pub(crate) usize);
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pinned(pub(crate) usize);

#[derive(Clone, Debug)]
pub(crate) enum Does {
    /// Enqueues work and does something with its completion.
    Work(Work, Fate),
    /// Replaces a device buffer by a new one, zeroed or not.
    Alloc {
        x: Buffer,
        len: usize,
        zeroed: bool,
        old: Old,
    },
    /// Replaces a pinned buffer by a new one.
    AllocHost {
        p: Pinned,
        len: usize,
        old: Old,
    },
    /// Replaces a device buffer by one with these elements: `value`, `value + 1` and so on.
    Upload {
        x: Buffer,
        len: usize,
        value: u32,
        end: End,
    },
    ToVec {
        x: Buffer,
        end: End,
    },
    Read {
        p: Pinned,
        how: How,
    },
    /// As an upload has it.
    Write {
        p: Pinned,
        value: u32,
        how: How,
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

/// What is enqueued.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    Fill {
        x: Buffer,
        value: u32,
    },
    Increment {
        x: Buffer,
    },
    /// By a kernel.
    CopyKernel {
        from: Buffer,
        to: Buffer,
    },
    Add {
        a: Buffer,
        b: Buffer,
        to: Buffer,
    },
    /// By the driver; `by_source`: which of the two methods.
    Copy {
        from: Buffer,
        to: Buffer,
        by_source: bool,
    },
    Up {
        from: Pinned,
        to: Buffer,
        by_source: bool,
    },
    Down {
        from: Buffer,
        to: Pinned,
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

impl Work {
    /// The device buffers it touches.
    pub(crate) fn buffers(self) -> Vec<Buffer> {
        match self {
            Work::Fill { x, .. } | Work::Increment { x } => vec![x],
            Work::CopyKernel { from, to } | Work::Copy { from, to, .. } => vec![from, to],
            Work::Add { a, b, to } => vec![a, b, to],
            Work::Up { to, .. } => vec![to],
            Work::Down { from, .. } => vec![from],
        }
    }

    /// The pinned buffer it touches.
    pub(crate) fn pinned(self) -> Vec<Pinned> {
        match self {
            Work::Up { from, .. } => vec![from],
            Work::Down { to, .. } => vec![to],
            _ => Vec::new(),
        }
    }
}

impl Does {
    /// What it needs: where a task has taken that, the line comes after the task's.
    pub(crate) fn needs(&self) -> (Vec<Buffer>, Vec<Pinned>) {
        match self {
            Does::Work(work, _) => (work.buffers(), work.pinned()),
            Does::Alloc { x, .. } | Does::Upload { x, .. } | Does::ToVec { x, .. } => {
                (vec![*x], Vec::new())
            }
            Does::AllocHost { p, .. } | Does::Read { p, .. } | Does::Write { p, .. } => {
                (Vec::new(), vec![*p])
            }
            _ => (Vec::new(), Vec::new()),
        }
    }

    /// What a task keeps from others while it awaits something: what it replaces or has borrowed.
    pub(crate) fn takes(&self) -> (Vec<Buffer>, Vec<Pinned>) {
        match self {
            Does::Upload { end: End::Await, .. }
            | Does::Read { how: How::Await, .. }
            | Does::Write { how: How::Await, .. } => self.needs(),
            _ => (Vec::new(), Vec::new()),
        }
    }
}

impl fmt::Display for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(["a", "b", "c", "d"][self.0])
    }
}

impl fmt::Display for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(["p", "q"][self.0])
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Fill { x, value } => write!(f, "{x}.fill({value})"),
            Work::Increment { x } => write!(f, "increment(&mut {x})"),
            Work::CopyKernel { from, to } => write!(f, "copy_u32(&{from}, &mut {to})"),
            Work::Add { a, b, to } => write!(f, "add_u32(&{a}, &{b}, &mut {to})"),
            Work::Copy { from, to, by_source: true } => write!(f, "{from}.copy_to(&mut {to})"),
            Work::Copy { from, to, .. } => write!(f, "{to}.copy_from(&{from})"),
            Work::Up { from, to, by_source: true } => write!(f, "{from}.copy_to(&mut {to})"),
            Work::Up { from, to, .. } => write!(f, "{to}.copy_from(&{from})"),
            Work::Down { from, to, by_source: true } => write!(f, "{from}.copy_to(&mut {to})"),
            Work::Down { from, to, .. } => write!(f, "{to}.copy_from(&{from})"),
        }
    }
}

/// Around an expression, what is done with the future that it is.
fn settled(f: &mut fmt::Formatter<'_>, what: &str, end: End) -> fmt::Result {
    match end {
        End::Await => write!(f, "{what}.await?;"),
        End::Drop => write!(f, "drop({what});"),
        End::PollAndDrop => write!(f, "drop(poll_once({what}));"),
    }
}

fn replaced(f: &mut fmt::Formatter<'_>, x: impl fmt::Display, by: &str, old: Old) -> fmt::Result {
    match old {
        Old::DroppedBefore => write!(f, "drop({x}); {x} = {by}?;"),
        Old::DroppedAfter => write!(f, "{x} = {by}?;"),
    }
}

impl fmt::Display for Does {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Does::Work(work, fate) => match fate {
                Fate::Drop => write!(f, "{work}?;"),
                Fate::Await => write!(f, "{work}?.await?;"),
                Fate::Hold(held) => write!(f, "h{held} = {work}?;"),
                Fate::Poll => write!(f, "drop(poll_once({work}?));"),
                Fate::PollAndHold(held) => write!(f, "h{held} = {work}?; poll_once(&mut h{held});"),
                Fate::Forget => write!(f, "forget({work}?);"),
            },
            Does::Alloc { x, len, zeroed: false, old } => {
                replaced(f, x, &format!("device.alloc({len})"), *old)
            }
            Does::Alloc { x, len, old, .. } => {
                replaced(f, x, &format!("device.zeros({len})"), *old)
            }
            Does::AllocHost { p, len, old } => {
                replaced(f, p, &format!("device.alloc_host({len})"), *old)
            }
            Does::Upload { x, len, value, end } => {
                let (from, to) = (*value, u64::from(*value) + *len as u64);
                write!(f, "{x} = ")?;
                settled(f, &format!("device.upload({from}..{to})"), *end)
            }
            Does::ToVec { x, end } => settled(f, &format!("{x}.to_vec()"), *end),
            Does::Read { p, how } => match how {
                How::Await => write!(f, "{p}.read().await?;"),
                How::Block => write!(f, "{p}.blocking_read()?;"),
                How::Try => write!(f, "{p}.try_read();"),
                How::PollAndDrop => write!(f, "drop(poll_once({p}.read()));"),
            },
            Does::Write { p, value, how } => {
                let set = format!("copy_from_slice({value}..)");
                match how {
                    How::Await => write!(f, "{p}.write().await?.{set};"),
                    How::Block => write!(f, "{p}.blocking_write()?.{set};"),
                    How::Try => write!(f, "if let Ok(mut {p}) = {p}.try_write() {{ {p}.{set}; }}"),
                    How::PollAndDrop => write!(f, "drop(poll_once({p}.write()));"),
                }
            }
            Does::Record { event } => write!(f, "e{event} = stream.record()?;"),
            Does::WaitFor { event } => write!(f, "stream.wait(&e{event})?;"),
            Does::AwaitEvent { event } => write!(f, "e{event}.await?;"),
            Does::AwaitHeld { held } => write!(f, "h{held}.await?;"),
            Does::AskHeld { held } => write!(f, "h{held}.is_finished()?;"),
            Does::DropHeld { held } => write!(f, "drop(h{held});"),
            Does::Synchronize => write!(f, "stream.synchronize().await?;"),
            Does::PollTask { task } => write!(f, "poll_once(&mut t{task});"),
            Does::AbortTask { task } => write!(f, "t{task}.abort();"),
            Does::Refuse { after } => write!(f, "// the driver refuses a call after {after} more"),
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let anywhere = matches!(
            self.does,
            Does::PollTask { .. } | Does::AbortTask { .. } | Does::Refuse { .. }
        );
        match self.place {
            Place::Stream(s) if !anywhere => write!(f, "s{s}: {}", self.does),
            Place::Task(t) if !anywhere => write!(f, "t{t}: {}", self.does),
            _ => write!(f, "    {}", self.does),
        }
    }
}

/// As a reader would have it, with what is not in the lines above them.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "// s…: in the scope of that stream; t…: in that task; else in neither.")?;
        writeln!(f, "// At first a, b, c, d = device.alloc(8)?, p, q = device.alloc_host(8)?.")?;
        for line in &self.lines {
            writeln!(f, "{line}")?;
        }
        write!(f, "// then all of a, b, c, d, p, q is read (dice {:#x})", self.dice)
    }
}

/// What proptest prints of a program that failed.
impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{self}\n")
    }
}
