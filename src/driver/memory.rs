//! Memory as calls of the seam name it.

use std::fmt;
use std::ptr::NonNull;

use super::step::Touched;

/// An address in device memory. On a simulated device it is not an address of this process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct DevicePtr(pub(crate) u64);

impl DevicePtr {
    /// The address.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for DevicePtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Device memory that an operation reads or writes: `rows` rows of `row` bytes, `pitch` bytes from
/// row to row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemAccess {
    pub(crate) ptr: DevicePtr,
    pub(crate) row: usize,
    pub(crate) rows: usize,
    /// Not used when `rows` is 1.
    pub(crate) pitch: usize,
    pub(crate) writes: bool,
}

impl MemAccess {
    /// In one piece.
    #[cfg(test)]
    pub(crate) fn of_bytes(ptr: DevicePtr, bytes: usize, writes: bool) -> Self {
        MemAccess { ptr, row: bytes, rows: 1, pitch: bytes, writes }
    }

    /// Bytes in all.
    pub(crate) fn bytes(&self) -> usize {
        self.row * self.rows
    }

    /// Bytes from the first to the last, what lies between the rows with it.
    pub(crate) fn extent(&self) -> usize {
        match self.bytes() {
            0 => 0,
            _ => (self.rows - 1) * self.pitch + self.row,
        }
    }

    /// As the log and the race checker have it.
    pub(crate) fn touched(&self) -> Touched {
        Touched::in_rows(self.ptr.0, (self.row, self.rows, self.pitch), self.writes)
    }
}

/// One side of a [`CopyRows`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopySide {
    pub(crate) memory: CopyMemory,
    /// Bytes from the start of a row to that of the next; not used when there is one row.
    pub(crate) pitch: usize,
}

/// How page-locked memory is cached for the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum HostKind {
    /// As any memory.
    #[default]
    Cacheable,
    /// Not at all (`CU_MEMHOSTALLOC_WRITECOMBINED`): writes are gathered, reads crawl.
    WriteCombined,
}

/// Where the first row of one side of a copy begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyMemory {
    Device(DevicePtr),
    /// Page-locked: what [`Driver::host_alloc`] gives, or [`Driver::host_register`] made of it.
    Host(NonNull<u8>),
}

impl CopyMemory {
    /// In the one space of addresses that device memory and host memory have.
    fn address(self) -> u64 {
        match self {
            CopyMemory::Device(ptr) => ptr.0,
            CopyMemory::Host(ptr) => ptr.as_ptr().addr() as u64,
        }
    }
}

/// A copy of `rows` rows of `row` bytes each (`cuMemcpy2DAsync`). At least one side is the device's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyRows {
    pub(crate) dst: CopySide,
    pub(crate) src: CopySide,
    pub(crate) row: usize,
    pub(crate) rows: usize,
}

impl CopyRows {
    /// As the log and the race checker have it: what is read, then what is written.
    pub(crate) fn touched(&self) -> [Touched; 2] {
        let side = |side: &CopySide, writes| {
            Touched::in_rows(side.memory.address(), (self.row, self.rows, side.pitch), writes)
        };
        [side(&self.src, false), side(&self.dst, true)]
    }
}

/// A fill of `rows` rows, `pitch` bytes apart, of `columns` units of `unit` bytes each
/// (`cuMemsetD{8,16,32}Async`, or their 2-D forms when there is more than one row).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fill {
    pub(crate) dst: DevicePtr,
    /// 1, 2 or 4.
    pub(crate) unit: u8,
    /// The low `unit` bytes are used.
    pub(crate) value: u32,
    pub(crate) columns: usize,
    pub(crate) rows: usize,
    /// Not used when `rows` is 1.
    pub(crate) pitch: usize,
}
