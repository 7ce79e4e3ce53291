//! What crosses the seam, as values: the language of the call log and of the race checker.

use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;
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
    /// How many, up to the last one.
    pub bytes: usize,
    /// Whether they are written; read otherwise.
    pub writes: bool,
    /// How many there are in each row; all of them, where they are in one piece.
    pub row: usize,
    /// From row to row. What lies between the rows is not touched.
    pub pitch: usize,
}

impl Touched {
    pub(crate) fn new(start: u64, bytes: usize, writes: bool) -> Self {
        Touched { start, bytes, writes, row: bytes, pitch: bytes }
    }

    /// So many rows of `row` bytes. Rows that leave nothing between them are one piece.
    pub(crate) fn in_rows(
        start: u64,
        (row, rows, pitch): (usize, usize, usize),
        writes: bool,
    ) -> Self {
        if row == 0 || rows == 0 {
            return Touched::new(start, 0, writes);
        }
        let bytes = rows.saturating_sub(1).saturating_mul(pitch).saturating_add(row);
        match rows == 1 || pitch <= row {
            true => Touched::new(start, bytes, writes),
            false => Touched { start, bytes, writes, row, pitch },
        }
    }

    /// As a step, where the host touches them.
    pub(crate) fn by_host(self) -> Step {
        let Touched { start: ptr, bytes, writes, row, pitch } = self;
        Step::HostAccess { ptr, bytes, writes, row, pitch }
    }

    /// The addresses, from the first to the last; of rows, what lies between them with them.
    pub fn range(&self) -> Range<u64> {
        self.start..self.start.saturating_add(self.bytes as u64)
    }
}

/// One thing that crossed the seam between this crate and the driver.
///
/// Streams and events are the driver's own handles, as [`Stream::as_raw`](crate::Stream::as_raw)
/// gives them; a destroyed handle may come back as another object's. CUDA calls the default streams of
/// all threads and devices the same: here each has a number that nothing else has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// `cuStreamCreateWithPriority`; the stream is 0 where it was refused.
    #[non_exhaustive]
    StreamCreated {
        /// Its handle.
        stream: u64,
    },
    /// `cuStreamDestroy`.
    #[non_exhaustive]
    StreamDestroyed {
        /// Its handle.
        stream: u64,
    },
    /// `cuEventCreate`; the event is 0 where it was refused.
    #[non_exhaustive]
    EventCreated {
        /// Its handle.
        event: u64,
    },
    /// `cuEventDestroy`.
    #[non_exhaustive]
    EventDestroyed {
        /// Its handle.
        event: u64,
    },
    /// `cuEventRecord`.
    #[non_exhaustive]
    Recorded {
        /// Which event has a new recording.
        event: u64,
        /// After all that was on this stream.
        stream: u64,
    },
    /// `cuStreamWaitEvent`: what comes later on the stream waits for the recording that the event
    /// has now.
    #[non_exhaustive]
    Waited {
        /// Which stream.
        stream: u64,
        /// For which event.
        event: u64,
        /// The caller was told that the wait was made, and it was not: see
        /// [`DeviceBuilder::lose_wait`](crate::DeviceBuilder::lose_wait).
        lost: bool,
        /// Which of the device's waits it is, from 0: what `lose_wait` takes.
        nth: u64,
    },
    /// `cuEventQuery`.
    #[non_exhaustive]
    Queried {
        /// Which event.
        event: u64,
        /// The recording was reached: the host knows of all that came before it.
        finished: bool,
    },
    /// `cuMemAllocFromPoolAsync`: a write of the whole block, at this place of the stream. The address
    /// is 0 where it was refused.
    #[non_exhaustive]
    Allocated {
        /// First byte.
        ptr: DevicePtr,
        /// How many.
        bytes: usize,
        /// In whose order.
        stream: u64,
    },
    /// `cuMemFreeAsync`: a write of the whole block, at this place of the stream.
    #[non_exhaustive]
    Freed {
        /// First byte.
        ptr: DevicePtr,
        /// In whose order.
        stream: u64,
    },
    /// `cuMemHostAlloc`; the address is 0 where it was refused.
    #[non_exhaustive]
    HostAllocated {
        /// Address of the first byte.
        ptr: u64,
        /// How many.
        bytes: usize,
        /// Whether they are write-combined; cacheable otherwise.
        write_combined: bool,
    },
    /// `cuMemFreeHost`.
    #[non_exhaustive]
    HostFreed {
        /// Address of the first byte.
        ptr: u64,
    },
    /// `cuMemHostRegister`: memory of the program's is page-locked.
    #[non_exhaustive]
    HostRegistered {
        /// Address of the first byte.
        ptr: u64,
        /// How many.
        bytes: usize,
    },
    /// `cuMemHostUnregister`: it is ordinary memory again.
    #[non_exhaustive]
    HostUnregistered {
        /// Address of the first byte.
        ptr: u64,
    },
    /// A launch, copy or fill.
    #[non_exhaustive]
    Work {
        /// Which call.
        call: DriverCall,
        /// The kernel's name; of others, a word for what they do, as
        /// [`SimOp::name`](crate::sim::SimOp::name).
        name: &'static str,
        /// In whose order.
        stream: u64,
        /// The function of a launch; 0 of others.
        function: u64,
        /// The memory that it reads and writes.
        touched: SmallVec<[Touched; 4]>,
    },
    /// No call: the memory is somebody's from here on.
    #[non_exhaustive]
    Owned {
        /// Address of the first byte.
        ptr: u64,
        /// How many; 0: the whole block.
        bytes: usize,
        /// Where in the program it was made.
        made_at: &'static Location<'static>,
    },
    /// No call: the library's number of a stream, and the program's name for it, from here on.
    #[non_exhaustive]
    Named {
        /// Its handle.
        stream: u64,
        /// [`Stream::number`](crate::Stream::number).
        number: u32,
        /// [`Stream::name`](crate::Stream::name).
        name: Option<Arc<str>>,
    },
    /// No call: the host reads or writes page-locked memory here and now. How long it goes on with
    /// that, or whether it does so again, is not told: a guard is told of when it is given out.
    #[non_exhaustive]
    HostAccess {
        /// Address of the first byte.
        ptr: u64,
        /// How many, up to the last one.
        bytes: usize,
        /// Whether it may write.
        writes: bool,
        /// As [`Touched::row`].
        row: usize,
        /// As [`Touched::pitch`].
        pitch: usize,
    },
    /// `cuEventElapsedTime`.
    #[non_exhaustive]
    Elapsed {
        /// From this event's recording
        start: u64,
        /// to this one's.
        end: u64,
    },
    /// `cuModuleLoadData`; the module is 0 where it was refused.
    #[non_exhaustive]
    ModuleLoaded {
        /// Its handle.
        module: u64,
    },
    /// `cuModuleUnload`: its functions are gone with it.
    #[non_exhaustive]
    ModuleUnloaded {
        /// Its handle.
        module: u64,
    },
    /// `cuModuleGetFunction`; the function is 0 where it was refused.
    #[non_exhaustive]
    FunctionFound {
        /// Of which module.
        module: u64,
        /// Its handle.
        function: u64,
    },
    /// Any other call; it names nothing that is made or ended.
    #[non_exhaustive]
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
