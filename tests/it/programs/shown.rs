//! How programs read.

use std::fmt;

use super::names::{Name, Operand};
use super::program::{Deal, Does, End, Fate, How, Line, Old, Order, Place, Program, Work};

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Fill { x, value } => write!(f, "{x}.fill({value})"),
            Work::Increment { x } => write!(f, "increment(&mut {x})"),
            Work::CopyKernel { from, to } => write!(f, "copy_u32(&{from}, &mut {to})"),
            Work::Add { a, b, to } => write!(f, "add_u32(&{a}, &{b}, &mut {to})"),
            Work::SumRows { from, to } => write!(f, "sum_rows(&{from}, &mut {to})"),
            Work::Copy { from, to, by_source: true } => write!(f, "{from}.copy_to(&mut {to})"),
            Work::Copy { from, to, .. } => write!(f, "{to}.copy_from(&{from})"),
        }
    }
}

/// What there is in place of parts, by the name of the whole.
fn parts(x: Name) -> &'static str {
    match x {
        Name::Pinned(_) => "r",
        _ => "e",
    }
}

fn new(x: Name, len: usize, zeroed: bool) -> String {
    match (x, zeroed) {
        (Name::Pinned(_), _) => format!("device.alloc_host({len})?"),
        (_, true) => format!("device.zeros({len})?"),
        (_, false) => format!("device.alloc({len})?"),
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

fn read(f: &mut fmt::Formatter<'_>, p: &Operand, how: How) -> fmt::Result {
    match how {
        How::Await => write!(f, "{p}.read().await?;"),
        How::Block => write!(f, "{p}.blocking_read()?;"),
        How::Try => write!(f, "{p}.try_read();"),
        How::PollAndDrop => write!(f, "drop(poll_once({p}.read()));"),
    }
}

fn written(f: &mut fmt::Formatter<'_>, p: &Operand, value: u32, how: How) -> fmt::Result {
    let set = format!("copy_from_slice({value}..)");
    match how {
        How::Await => write!(f, "{p}.write().await?.{set};"),
        How::Block => write!(f, "{p}.blocking_write()?.{set};"),
        How::Try => write!(f, "if let Ok(it) = {p}.try_write() {{ it.{set}; }}"),
        How::PollAndDrop => {
            write!(f, "if let Ready(it) = poll_once({p}.write()) {{ it?.{set}; }}")
        }
    }
}

impl fmt::Display for Deal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Deal::Parts(parts) => write!(f, "into_parts({parts})?"),
            Deal::Chunks(len) => write!(f, "into_chunks({len})?"),
        }
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
            Does::Alloc { x, len, zeroed, old } => {
                let new = new(*x, *len, *zeroed);
                match old {
                    Old::DroppedBefore => write!(f, "drop({x}); {x} = {new};"),
                    Old::DroppedAfter => write!(f, "{x} = {new};"),
                }
            }
            Does::Upload { x, len, value, end } => {
                let (from, to) = (*value, u64::from(*value) + *len as u64);
                write!(f, "{x} = ")?;
                settled(f, &format!("device.upload({from}..{to})"), *end)
            }
            Does::ToVec { x, end } => settled(f, &format!("{x}.to_vec()"), *end),
            Does::Read { p, how } => read(f, p, *how),
            Does::Write { p, value, how } => written(f, p, *value, *how),
            Does::Rejoin { x, order, stranger, deal } => {
                let parts = parts(*x);
                let given = match order {
                    Order::AsDealt => parts.to_owned(),
                    Order::Reversed => format!("{parts} reversed"),
                    Order::Rotated => format!("{parts} rotated"),
                };
                let stranger = if *stranger { " and a part of another buffer" } else { "" };
                write!(f, "if let Ok(it) = rejoin({given}{stranger}) ")?;
                write!(f, "{{ ({x}, {parts}) = (it, {x}.{deal}); }}")
            }
            Does::Deal { x, len, deal } => {
                let (parts, new) = (parts(*x), new(*x, *len, false));
                write!(f, "drop({parts}); {parts} = {new}.{deal};")
            }
            Does::DropPart { part } => write!(f, "drop({part});"),
            Does::Own { part, value } => {
                write!(f, "let mut it = {part}; it.fill({value})?.await?; ")?;
                write!(f, "increment(&mut it)?; {part} = it;")
            }
            Does::Share { x, shared } => {
                write!(f, "if let Ok(it) = {shared}.try_into_buffer() ")?;
                write!(f, "{{ ({shared}, {x}) = ({x}.into_shared(), it); }}")
            }
            Does::CloneShared => {
                write!(f, "{} = {}.clone();", Name::Shared(1), Name::Shared(0))
            }
            Does::AllocShared { shared, len, zeroed } => {
                write!(f, "{shared} = {}.into_shared();", new(*shared, *len, *zeroed))
            }
            Does::Record { event } => write!(f, "event{event} = stream.record()?;"),
            Does::WaitFor { event } => write!(f, "stream.wait(&event{event})?;"),
            Does::AwaitEvent { event } => write!(f, "event{event}.await?;"),
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

const PREAMBLE: &str = "\
// s…: in the scope of that stream; t…: in that task; else in neither. x[1..5]: a slice of x;
// x[0..2, 1..3]: where rows 0..2 and columns 1..3 meet, of x as a matrix of 4 columns.
// At first a, b, c = device.zeros(16)?; d = device.alloc(16)?; [e0, e1] = device.zeros(16)?.into_parts(2)?;
// v, w = device.zeros(16)?.into_shared(); p, q = device.alloc_host(16)?, of which p is written: 0, 1, …;
// [r0, r1] = device.alloc_host(16)?.into_parts(2)?. A line without a part that it names is left out.
";

/// As a reader would have it, with what is not in the lines above them.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREAMBLE)?;
        for line in &self.lines {
            writeln!(f, "{line}")?;
        }
        write!(f, "// then everything that is written is read (dice {:#x})", self.dice)
    }
}

/// What proptest prints of a program that failed.
impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{self}\n")
    }
}
