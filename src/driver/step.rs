//! What crosses the seam, as values: the language of the call log and of the race checker.

use std::ops::Range;
use std::panic::Location;
use std::thread::ThreadId;

use smallvec::SmallVec;

use super::{DevicePtr, DriverCall, DriverError};

/// Bytes that one operation of the device reads or writes.
///
/// Device memory and host memory have one space of addresses, as CUDA's unified addressing has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Touched {
    /// Address of the first byte.
    pub start: u64,
    /// How many.
    pub bytes: usize,
    /// Whether they are written; read otherwise.
    pub writes: bool,
}

impl Touched {
    pub(crate) fn new(start: u64, bytes: usize, writes: bool) -> Self {
        Touched { start, bytes, writes }
    }

    /// The addresses.
    pub fn range(&self) -> Range<u64> {
        self.start..self.start.saturating_add(self.bytes as u64)
    }
}

/// One thing that crossed the seam between this crate and the driver.
///
/// Streams and events are the driver's own handles, as [`Stream::as_raw`](crate::Stream::as_raw)
/// gives them; a destroyed handle may come back as another object's.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// `cuStreamCreateWithPriority`; the stream is 0 where it was refused.
    StreamCreated {
        /// Its handle.
        stream: u64,
    },
    /// `cuStreamDestroy`.
    StreamDestroyed {
        /// Its handle.
        stream: u64,
    },
    /// `cuEventCreate`; the event is 0 where it was refused.
    EventCreated {
        /// Its handle.
        event: u64,
    },
    /// `cuEventDestroy`.
    EventDestroyed {
        /// Its handle.
        event: u64,
    },
    /// `cuEventRecord`.
    Recorded {
        /// Which event has a new recording.
        event: u64,
        /// After all that was on this stream.
        stream: u64,
    },
    /// `cuStreamWaitEvent`: what comes later on the stream waits for the recording that the event
    /// has now.
    Waited {
        /// Which stream.
        stream: u64,
        /// For which event.
        event: u64,
        /// The caller was told that the wait was made, and it was not: see
        /// [`DeviceBuilder::lose_wait`](crate::DeviceBuilder::lose_wait).
        lost: bool,
    },
    /// `cuEventQuery`.
    Queried {
        /// Which event.
        event: u64,
        /// The recording was reached: the host knows of all that came before it.
        finished: bool,
    },
    /// `cuMemAllocFromPoolAsync`: a write of the whole block, at this place of the stream. The address
    /// is 0 where it was refused.
    Allocated {
        /// First byte.
        ptr: DevicePtr,
        /// How many.
        bytes: usize,
        /// In whose order.
        stream: u64,
    },
    /// `cuMemFreeAsync`: a write of the whole block, at this place of the stream.
    Freed {
        /// First byte.
        ptr: DevicePtr,
        /// In whose order.
        stream: u64,
    },
    /// `cuMemHostAlloc`; the address is 0 where it was refused.
    HostAllocated {
        /// Address of the first byte.
        ptr: u64,
        /// How many.
        bytes: usize,
    },
    /// `cuMemFreeHost`.
    HostFreed {
        /// Address of the first byte.
        ptr: u64,
    },
    /// A launch, copy or fill.
    Work {
        /// Which call.
        call: DriverCall,
        /// The kernel's name; of others, a word for what they do, as [`SimOp::name`](crate::sim::SimOp::name).
        name: &'static str,
        /// In whose order.
        stream: u64,
        /// The memory that it reads and writes.
        touched: SmallVec<[Touched; 4]>,
    },
    /// No call: the memory is somebody's from here on.
    Owned {
        /// Address of the first byte.
        ptr: u64,
        /// How many; 0: the whole block.
        bytes: usize,
        /// Where in the program it was made.
        made_at: &'static Location<'static>,
    },
    /// No call: the host reads or writes page-locked memory from here on.
    HostAccess {
        /// Address of the first byte.
        ptr: u64,
        /// How many.
        bytes: usize,
        /// Whether it may write.
        writes: bool,
    },
    /// Any other call.
    Other {
        /// Which.
        call: DriverCall,
    },
}

/// A step as the call log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoggedStep {
    /// On which device it was made, by [`Device::number`](crate::Device::number).
    pub device: u32,
    /// By which thread.
    pub thread: ThreadId,
    /// What.
    pub step: Step,
    /// The driver's error, where it refused the call, which then had no effect.
    pub refused: Option<DriverError>,
}
