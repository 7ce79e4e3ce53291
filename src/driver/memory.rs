//! Memory as calls of the seam name it.

use std::fmt;
use std::ptr::NonNull;

use smallvec::SmallVec;

use super::DriverCall;
use super::step::Touched;

/// Pitches are below it: CUDA's limit (`CU_DEVICE_ATTRIBUTE_MAX_PITCH`) on all devices so far.
const PITCHES_BELOW: usize = 1 << 31;

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
    /// Bytes from the start of a row to that of the next; not used when there is one row in all.
    pub(crate) pitch: usize,
    /// Bytes from the start of a plane to that of the next; not used when there is one plane.
    pub(crate) plane_pitch: usize,
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
    /// Whether the address is a multiple of `align`, a power of 2.
    /// How many bytes it is beyond the last address that is a multiple of `align`.
    pub(crate) fn beyond(self, align: usize) -> usize {
        (self.address() % align as u64) as usize
    }

    /// In the one space of addresses that device memory and host memory have.
    fn address(self) -> u64 {
        match self {
            CopyMemory::Device(ptr) => ptr.0,
            CopyMemory::Host(ptr) => ptr.as_ptr().addr() as u64,
        }
    }
}

/// A copy of `rows` rows of `row` bytes in each of `planes` planes (`cuMemcpy2DAsync`, or
/// `cuMemcpy3DAsync` when there is more than one plane). At least one side is the device's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyRows {
    pub(crate) dst: CopySide,
    pub(crate) src: CopySide,
    pub(crate) row: usize,
    /// Of each plane.
    pub(crate) rows: usize,
    pub(crate) planes: usize,
}

impl CopyRows {
    /// Which call it is.
    pub(crate) fn call(&self) -> DriverCall {
        if self.planes > 1 { DriverCall::CopyPlanes } else { DriverCall::CopyRows }
    }

    /// A word for it.
    pub(crate) fn name(&self) -> &'static str {
        if self.planes > 1 { "copy_planes" } else { "copy_rows" }
    }

    /// Whether it moves nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.row == 0 || self.rows == 0 || self.planes == 0
    }

    /// Bytes that it moves.
    pub(crate) fn bytes(&self) -> usize {
        self.row.saturating_mul(self.rows).saturating_mul(self.planes)
    }

    /// Whether the driver takes the pitches of both sides, of a copy that is not empty: see
    /// [`Driver::copy_rows`](super::Driver::copy_rows).
    pub(crate) fn is_in_order(&self) -> bool {
        let CopyRows { dst, src, row, rows, planes } = *self;
        [dst, src].iter().all(|side| match (rows, planes) {
            (1, 1) => true,
            (_, 1) => (row..PITCHES_BELOW).contains(&side.pitch),
            // CUDA is told how many rows there are from plane to plane.
            _ => {
                (row..PITCHES_BELOW).contains(&side.pitch)
                    && side.plane_pitch.is_multiple_of(side.pitch)
                    && side.plane_pitch / side.pitch >= rows
            }
        })
    }

    /// As the log and the race checker have it: what is read, then what is written.
    pub(crate) fn touched(&self) -> SmallVec<[Touched; 2]> {
        [(&self.src, false), (&self.dst, true)]
            .into_iter()
            .flat_map(|(side, writes)| self.touched_on(side, writes))
            .collect()
    }

    /// In as few pieces as make it up, and none of the bytes between them.
    pub(super) fn touched_on(
        &self,
        side: &CopySide,
        writes: bool,
    ) -> impl Iterator<Item = Touched> + use<> {
        let CopyRows { row, rows, planes, .. } = *self;
        let CopySide { memory, pitch, plane_pitch } = *side;
        let (pieces, rows, pitch) = match (rows, planes) {
            _ if self.is_empty() => (1, 0, pitch),
            (_, 1) => (1, rows, pitch),
            (1, _) => (1, planes, plane_pitch),
            _ if rows.checked_mul(pitch) == Some(plane_pitch) => {
                (1, rows.saturating_mul(planes), pitch)
            }
            _ => (planes, rows, pitch),
        };
        let first = memory.address();
        (0..pieces).map(move |piece| {
            let start = first.saturating_add((piece as u64).saturating_mul(plane_pitch as u64));
            Touched::in_rows(start, (row, rows, pitch), writes)
        })
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
