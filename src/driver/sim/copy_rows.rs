//! Copies of rows: what is kept of one from the call on, and how it finds its memory.

use super::bytes::{DeviceRange, PinnedRange, Stored, StoredRows};
use super::memory::{HostMemory, PinnedMemory};
use super::op::SimOpKind;
use super::violation::Violation;
use super::work::Failure;
use crate::driver::rows::Rows;
use crate::driver::{CopyMemory, CopyRows, CopySide, DevicePtr};

/// Pitches are below it: CUDA's limit (`CU_DEVICE_ATTRIBUTE_MAX_PITCH`) on all devices so far.
const PITCHES_BELOW: usize = 1 << 31;

/// A copy of one row or more, of one byte or more each.
pub(super) struct RowCopy {
    dst: Side,
    src: Side,
    row: usize,
    rows: usize,
}

struct Side {
    memory: Memory,
    pitch: usize,
}

enum Memory {
    /// So many bytes, to the end of the last row.
    Device(DevicePtr, usize),
    PageLocked(PinnedRange),
}

/// A copy of rows that found its memory.
pub(super) struct FoundRows {
    pub(super) dst: StoredRows,
    pub(super) src: StoredRows,
    pub(super) row: usize,
    pub(super) rows: usize,
}

/// What it does; `None` where neither side is the device's.
pub(super) fn kind(copy: &CopyRows) -> Option<SimOpKind> {
    match (copy.dst.memory, copy.src.memory) {
        (CopyMemory::Device(_), CopyMemory::Host(_)) => Some(SimOpKind::CopyH2D),
        (CopyMemory::Host(_), CopyMemory::Device(_)) => Some(SimOpKind::CopyD2H),
        (CopyMemory::Device(_), CopyMemory::Device(_)) => Some(SimOpKind::CopyD2D),
        (CopyMemory::Host(_), CopyMemory::Host(_)) => None,
    }
}

/// A copy within the device whose sides have a byte in common.
pub(super) fn overlap(copy: &CopyRows) -> Option<Violation> {
    let (CopyMemory::Device(dst), CopyMemory::Device(src)) = (copy.dst.memory, copy.src.memory)
    else {
        return None;
    };
    let [read, written] = copy.touched().map(|touched| Rows::of(&touched));
    read.overlap(&written).then_some(Violation::OverlappingCopy { src, dst })
}

impl RowCopy {
    /// `None` where its pitches are out of order, or its host memory is not page-locked, all of it
    /// in one block.
    pub(super) fn new(copy: &CopyRows, pinned: &PinnedMemory) -> Option<Self> {
        let CopyRows { dst, src, row, rows } = *copy;
        let side = |CopySide { memory, pitch }| {
            let pitch = if rows == 1 { row } else { pitch };
            if !(row..PITCHES_BELOW).contains(&pitch) && rows > 1 {
                return None;
            }
            let extent = (rows - 1).checked_mul(pitch)?.checked_add(row)?;
            let memory = match memory {
                CopyMemory::Device(ptr) => Memory::Device(ptr, extent),
                CopyMemory::Host(ptr) => match pinned.find(ptr, extent) {
                    HostMemory::PageLocked(range) => Memory::PageLocked(range),
                    HostMemory::Ordinary | HostMemory::Invalid => return None,
                },
            };
            Some(Side { memory, pitch })
        };
        Some(RowCopy { dst: side(dst)?, src: side(src)?, row, rows })
    }

    /// The page-locked memory that it copies, and whether it writes there.
    pub(super) fn page_locked(&self) -> Option<(Rows, bool)> {
        let of = |side: &Side| match &side.memory {
            Memory::PageLocked(range) => {
                let start = range.addresses().start as u64;
                Some(Rows::new(start, self.row, self.rows, side.pitch))
            }
            Memory::Device(..) => None,
        };
        let read = of(&self.src).map(|rows| (rows, false));
        read.or_else(|| of(&self.dst).map(|rows| (rows, true)))
    }

    /// `find`: bytes of the device that runs it.
    pub(super) fn prepare(
        self,
        name: &'static str,
        find: impl Fn(DevicePtr, usize) -> Result<DeviceRange, Failure>,
    ) -> Result<FoundRows, Failure> {
        let RowCopy { dst, src, row, rows } = self;
        let found = |Side { memory, pitch }| {
            let bytes = match memory {
                Memory::Device(ptr, bytes) => Stored::Device(find(ptr, bytes)?),
                Memory::PageLocked(range) if range.is_freed() => {
                    let bytes = row * rows;
                    return Err(Failure::illegal(Violation::FreedPinned { name, bytes }));
                }
                Memory::PageLocked(range) => Stored::PageLocked(range),
            };
            Ok(StoredRows { bytes, pitch })
        };
        let src = found(src)?;
        Ok(FoundRows { dst: found(dst)?, src, row, rows })
    }
}
