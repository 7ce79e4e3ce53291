//! Copies of rows: what is kept of one from the call on, and how it finds its memory.

use smallvec::SmallVec;

use super::bytes::{DeviceRange, PinnedRange, Stored, StoredRows};
use super::memory::{HostMemory, PinnedMemory};
use super::op::SimOpKind;
use super::violation::Violation;
use super::work::Failure;
use crate::driver::rows::Rows;
use crate::driver::{CopyMemory, CopyRows, CopySide, DevicePtr};

/// A copy of one plane or more, of one row or more of one byte or more each.
pub(super) struct RowCopy {
    dst: Side,
    src: Side,
    row: usize,
    rows: usize,
    planes: usize,
    /// The page-locked memory that it copies, and whether it writes there.
    page_locked: Option<(SmallVec<[Rows; 1]>, bool)>,
}

struct Side {
    memory: Memory,
    pitch: usize,
    plane_pitch: usize,
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
    pub(super) planes: usize,
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
    let rows = |side, writes| copy.touched_on(side, writes).map(|touched| Rows::of(&touched));
    let written: Vec<_> = rows(&copy.dst, true).collect();
    let overlaps = rows(&copy.src, false).any(|read| written.iter().any(|w| read.overlap(w)));
    overlaps.then_some(Violation::OverlappingCopy { src, dst })
}

impl RowCopy {
    /// `None` where its pitches are out of order, or its host memory is not page-locked, all of it
    /// in one block.
    pub(super) fn new(copy: &CopyRows, pinned: &PinnedMemory) -> Option<Self> {
        let CopyRows { dst, src, row, rows, planes } = *copy;
        if !copy.is_in_order() {
            return None;
        }
        let side = |CopySide { memory, pitch, plane_pitch }| {
            let planes_before =
                if planes > 1 { (planes - 1).checked_mul(plane_pitch)? } else { 0 };
            let rows_before = if rows > 1 { (rows - 1).checked_mul(pitch)? } else { 0 };
            let extent = planes_before.checked_add(rows_before)?.checked_add(row)?;
            let memory = match memory {
                CopyMemory::Device(ptr) => Memory::Device(ptr, extent),
                CopyMemory::Host(ptr) => match pinned.find(ptr, extent) {
                    HostMemory::PageLocked(range) => Memory::PageLocked(range),
                    HostMemory::Ordinary | HostMemory::Invalid => return None,
                },
            };
            Some(Side { memory, pitch, plane_pitch })
        };
        let touched = |side, writes| {
            let touched = copy.touched_on(side, writes);
            (touched.map(|touched| Rows::of(&touched)).collect(), writes)
        };
        let page_locked = match (src.memory, dst.memory) {
            (CopyMemory::Host(_), _) => Some(touched(&copy.src, false)),
            (_, CopyMemory::Host(_)) => Some(touched(&copy.dst, true)),
            (CopyMemory::Device(_), CopyMemory::Device(_)) => None,
        };
        Some(RowCopy { dst: side(dst)?, src: side(src)?, row, rows, planes, page_locked })
    }

    /// The page-locked memory that it copies, and whether it writes there.
    pub(super) fn page_locked(&self) -> Option<(SmallVec<[Rows; 1]>, bool)> {
        self.page_locked.clone()
    }

    /// `find`: bytes of the device that runs it.
    pub(super) fn prepare(
        self,
        name: &'static str,
        find: impl Fn(DevicePtr, usize) -> Result<DeviceRange, Failure>,
    ) -> Result<FoundRows, Failure> {
        let RowCopy { dst, src, row, rows, planes, .. } = self;
        let found = |Side { memory, pitch, plane_pitch }| {
            let bytes = match memory {
                Memory::Device(ptr, bytes) => Stored::Device(find(ptr, bytes)?),
                Memory::PageLocked(range) if range.is_freed() => {
                    let bytes = row * rows * planes;
                    return Err(Failure::illegal(Violation::FreedPinned { name, bytes }));
                }
                Memory::PageLocked(range) => Stored::PageLocked(range),
            };
            Ok(StoredRows { bytes, pitch, plane_pitch })
        };
        let src = found(src)?;
        Ok(FoundRows { dst: found(dst)?, src, row, rows, planes })
    }
}
