//! What the race checker finds, as values and as text to read.

use std::fmt;
use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;

use super::shadow::Access;
use super::streams::Stream;
use crate::driver::DevicePtr;

/// Two accesses to the same bytes, of which one writes, that nothing orders.
///
/// Found by what was called: the program has the race on every run that makes these calls, whichever
/// bytes came out of this one. Its `Display` is a report of several lines.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Race {
    /// The one enqueued first.
    pub first: RaceAccess,
    /// The one enqueued later, or made by the host.
    pub second: RaceAccess,
    /// Bytes of the memory that both touch, from its first byte: the first ones, where there are some
    /// here and some there.
    pub range: Range<u64>,
    /// Whose bytes.
    pub memory: RacedMemory,
    /// The first access is the free of the memory: the second uses what is not there any more.
    pub freed: bool,
    /// The wait that would have ordered them, if it was
    /// [lost](crate::DeviceBuilder::lose_wait) on purpose: which of the waits of the second one's
    /// device, from 0.
    pub lost_wait: Option<u64>,
}

/// One side of a [`Race`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RaceAccess {
    /// The kernel's name; of others, what was done.
    pub operation: &'static str,
    /// On which device, by [`Device::number`](crate::Device::number).
    pub device: u32,
    /// On which stream, as [`Step`](crate::testing::Step) has it; `None`: the host's own access.
    pub stream: Option<u64>,
    /// The same by [`Stream::number`](crate::Stream::number), as errors name it.
    pub stream_number: Option<u32>,
    /// The name that the stream had for whoever enqueued it, if it has that still.
    pub stream_name: Option<Arc<str>>,
    /// Which operation of its stream it was: 1 is the first.
    pub number: u64,
    /// Bytes of the memory that it touches, from its first byte: from the first one to the last.
    pub range: Range<u64>,
    /// Whether it writes them.
    pub writes: bool,
}

/// The memory of a [`Race`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RacedMemory {
    /// Address of its first byte, on the device or the host.
    pub ptr: DevicePtr,
    /// How many bytes.
    pub bytes: u64,
    /// Device memory; page-locked host memory otherwise.
    pub on_device: bool,
    /// Where in the program it was made, as far as that is known.
    pub made_at: Option<&'static Location<'static>>,
}

impl RaceAccess {
    /// An access to that block by an operation of that stream.
    pub(super) fn by_device(access: &Access, stream: &Stream, memory: &RacedMemory) -> Self {
        let touched = access.rows.extent();
        let first = touched.start.saturating_sub(memory.ptr.0);
        let end = touched.end.saturating_sub(memory.ptr.0).min(memory.bytes);
        RaceAccess {
            operation: access.name,
            device: stream.device,
            stream: Some(stream.handle),
            stream_number: stream.known_as(),
            stream_name: stream.name_at(access.nth),
            number: access.nth,
            range: first..end,
            writes: access.writes,
        }
    }

    pub(super) fn by_host(
        device: u32,
        operation: &'static str,
        range: Range<u64>,
        writes: bool,
    ) -> Self {
        RaceAccess {
            operation,
            device,
            stream: None,
            stream_number: None,
            stream_name: None,
            number: 0,
            range,
            writes,
        }
    }

    /// What to call its stream.
    fn on(&self) -> OnStream<'_> {
        OnStream(self)
    }
}

/// The library's number of a stream where it told it; else its handle: a small number on a simulated
/// device, an address on a GPU.
struct OnStream<'a>(&'a RaceAccess);

impl fmt::Display for OnStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.stream_number, self.0.stream) {
            (Some(number), _) => write!(f, "{number}"),
            (None, Some(address @ 0x1_0000_0000..)) => write!(f, "{address:#x}"),
            (None, handle) => write!(f, "{}", handle.unwrap_or(0)),
        }
    }
}

impl fmt::Display for RaceAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RaceAccess { operation, device, stream, stream_name, number, range, writes, .. } = self;
        match stream {
            Some(_) => {
                let verb = if *writes { "writes" } else { "reads" };
                write!(f, "`{operation}` {verb} bytes {}..{}", range.start, range.end)?;
                write!(f, ": operation {number} of stream {}", self.on())?;
                if let Some(name) = stream_name {
                    write!(f, " (\"{name}\")")?;
                }
                write!(f, " on device {device}")
            }
            None => write!(f, "{operation} of bytes {}..{}", range.start, range.end),
        }
    }
}

impl fmt::Display for RacedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.on_device { "device memory" } else { "pinned memory" };
        write!(f, "{} bytes of {kind} at {:?}", self.bytes, self.ptr)?;
        match self.made_at {
            Some(place) => write!(f, ", made at {place}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Race { first, second, range, memory, freed, lost_wait } = self;
        let what = if *freed { "use after free" } else { "race" };
        writeln!(f, "{what} on bytes {}..{} of {memory}", range.start, range.end)?;
        writeln!(f, "  first:   {first}")?;
        writeln!(f, "  second:  {second}")?;
        let (earlier, later) = (first.operation, second.operation);
        if *freed {
            writeln!(f, "  missing: `{later}` has to come before the free")?;
            return write!(f, "  mend it: keep the buffer until it is enqueued");
        }
        if second.stream.is_none() {
            writeln!(f, "  missing: the host has not seen `{earlier}` finish")?;
            return write!(
                f,
                "  mend it: await the operation's completion, or the buffer's `read()` or `write()`, \
                 first"
            );
        }
        let (of, by) = (first.on(), second.on());
        writeln!(f, "  missing: stream {by} does not wait for `{earlier}` before `{later}`")?;
        if let Some(nth) = lost_wait {
            let device = second.device;
            writeln!(
                f,
                "  because: wait {nth} of device {device} was lost on purpose (lose_wait)"
            )?;
        }
        write!(
            f,
            "  by hand: record an event on stream {of} after `{earlier}`, and have stream {by} wait for \
             it before `{later}`"
        )
    }
}
