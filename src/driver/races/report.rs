//! What the race checker finds, as values and as text to read.

use std::fmt;
use std::ops::Range;
use std::panic::Location;

use super::shadow::Access;
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
    /// Bytes of the memory that both touch, from its first byte.
    pub range: Range<u64>,
    /// Whose bytes.
    pub memory: RacedMemory,
    /// The first access is the free of the memory: the second uses what is not there any more.
    pub freed: bool,
}

/// One side of a [`Race`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RaceAccess {
    /// The kernel's name; of others, what was done.
    pub operation: &'static str,
    /// On which device, by [`Device::number`](crate::Device::number).
    pub device: u32,
    /// On which stream, by [`Stream::as_raw`](crate::Stream::as_raw); `None`: the host's own access.
    pub stream: Option<u64>,
    /// Which operation of its stream it was: 1 is the first.
    pub number: u64,
    /// Bytes of the memory that it touches in one piece, from its first byte.
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

impl RacedMemory {
    pub(super) fn new(
        start: u64,
        bytes: u64,
        on_device: bool,
        made_at: Option<&'static Location<'static>>,
    ) -> Self {
        RacedMemory { ptr: DevicePtr(start), bytes, on_device, made_at }
    }
}

impl RaceAccess {
    pub(super) fn by_device(access: Access, device: u32, stream: u64) -> Self {
        let (operation, number, range) = (access.name, access.number, access.range());
        let writes = access.writes;
        RaceAccess { operation, device, stream: Some(stream), number, range, writes }
    }

    pub(super) fn by_host(device: u32, operation: &'static str, range: Range<u64>) -> Self {
        let writes = operation != "read by the host";
        RaceAccess { operation, device, stream: None, number: 0, range, writes }
    }
}

impl Race {
    pub(super) fn new(
        first: RaceAccess,
        second: RaceAccess,
        range: Range<u64>,
        memory: RacedMemory,
        freed: bool,
    ) -> Self {
        Race { first, second, range, memory, freed }
    }
}

/// A stream's handle: a small number on a simulated device, an address on a GPU.
struct Handle(u64);

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            small @ 0..=0xffff_ffff => write!(f, "{small}"),
            address => write!(f, "{address:#x}"),
        }
    }
}

impl fmt::Display for RaceAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RaceAccess { operation, device, stream, number, range, writes } = self;
        match stream {
            Some(stream) => {
                let verb = if *writes { "writes" } else { "reads" };
                write!(f, "`{operation}` {verb} bytes {}..{}", range.start, range.end)?;
                write!(f, ": operation {number} of stream {} on device {device}", Handle(*stream))
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
        let Race { first, second, range, memory, freed } = self;
        let what = if *freed { "use after free" } else { "race" };
        writeln!(f, "{what} on bytes {}..{} of {memory}", range.start, range.end)?;
        writeln!(f, "  first:   {first}")?;
        writeln!(f, "  second:  {second}")?;
        let (Some(of), operation) = (first.stream, first.operation) else {
            return Ok(());
        };
        match second.stream {
            _ if *freed => {
                writeln!(f, "  missing: `{}` has to come before the free", second.operation)?;
                write!(f, "  mend it: keep the buffer until it is enqueued")
            }
            Some(by) if by == of => {
                write!(f, "  missing: nothing can order them: they are one operation's")
            }
            Some(by) => {
                writeln!(
                    f,
                    "  missing: stream {} does not wait for `{operation}` before `{}`",
                    Handle(by),
                    second.operation
                )?;
                writeln!(
                    f,
                    "  mend it: have both operations name the buffer: the wait is placed for you"
                )?;
                write!(
                    f,
                    "  by hand: record an event on stream {} after `{operation}`, and have stream {} \
                     wait for it before `{}`",
                    Handle(of),
                    Handle(by),
                    second.operation
                )
            }
            None => {
                writeln!(f, "  missing: the host has not seen `{operation}` finish")?;
                write!(
                    f,
                    "  mend it: await the operation's completion, or the buffer's `read()` or `write()`, \
                     first"
                )
            }
        }
    }
}
