//! Launches, copies and fills: what is kept of them from the call on, and how each is run.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use smallvec::SmallVec;

use super::bytes::{
    ALIGN, DeviceRange, Executing, HostMemoryExhausted, HostSide, copy, copy_rows, download, fill,
    upload,
};
use super::copy_rows::{FoundRows, RowCopy};
use super::memory::Missing;
use super::state::Device;
use super::violation::Violation;
use crate::driver::rows::Rows;
use crate::driver::{DevicePtr, Fill, MemAccess, TwinJob, TwinMemory};

pub(super) const ILLEGAL_ADDRESS: u32 = 700;
pub(super) const LAUNCH_FAILED: u32 = 719;

/// An operation on the bytes of the device, as enqueued. Sizes are not 0 where there is a range.
pub(super) enum Work {
    /// A copy of no bytes, or of bytes that are the host's by now.
    Nothing,
    Upload {
        dst: DevicePtr,
        src: HostSide,
    },
    Download {
        dst: HostSide,
        src: DevicePtr,
    },
    Copy {
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
    },
    /// From one device to another.
    CopyPeer {
        dst: (usize, DevicePtr),
        src: (usize, DevicePtr),
        bytes: usize,
    },
    /// Boxed: it is larger than the others.
    CopyRows(Box<RowCopy>),
    Fill(Fill),
    Kernel {
        accesses: Vec<MemAccess>,
        job: TwinJob,
    },
}

/// An operation that found its memory, ready to be run without the lock.
pub(super) enum Prepared {
    Nothing,
    Upload { dst: DeviceRange, src: HostSide },
    Download { dst: HostSide, src: DeviceRange },
    Copy { dst: DeviceRange, src: DeviceRange },
    CopyRows(Box<FoundRows>),
    Fill { dst: DeviceRange, fill: Fill },
    Kernel { ranges: Vec<(DevicePtr, usize, DeviceRange)>, job: TwinJob },
}

/// Why an operation ended its device.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) code: u32,
    pub(super) violation: Option<Violation>,
}

impl Failure {
    pub(super) fn illegal(violation: Violation) -> Self {
        Failure { code: ILLEGAL_ADDRESS, violation: Some(violation) }
    }
}

impl From<HostMemoryExhausted> for Failure {
    fn from(_: HostMemoryExhausted) -> Self {
        Failure { code: LAUNCH_FAILED, violation: None }
    }
}

/// From the first byte of the first row to the last of the last; `None` where that overflows.
pub(super) fn fill_extent(fill: &Fill) -> Option<usize> {
    let row = fill.columns.checked_mul(usize::from(fill.unit))?;
    if row == 0 || fill.rows == 0 {
        return Some(0);
    }
    let pitch = if fill.rows == 1 { 0 } else { fill.pitch };
    (fill.rows - 1).checked_mul(pitch)?.checked_add(row)
}

impl Work {
    /// The page-locked memory that it copies, and whether it writes there.
    pub(super) fn page_locked(&self) -> Option<(SmallVec<[Rows; 1]>, bool)> {
        let all = |side: &HostSide| {
            let Range { start, end } = side.page_locked()?.addresses();
            Some(SmallVec::from_elem(Rows::one(start as u64..end as u64), 1))
        };
        match self {
            Work::Upload { src, .. } => Some((all(src)?, false)),
            Work::Download { dst, .. } => Some((all(dst)?, true)),
            Work::CopyRows(copy) => copy.page_locked(),
            _ => None,
        }
    }

    /// Finds the memory, on the device that runs it where nothing else is said. On failure the work
    /// comes back, to be dropped without the lock.
    pub(super) fn prepare(
        self,
        name: &'static str,
        device: usize,
        devices: &[Device],
    ) -> Result<Prepared, (Failure, Self)> {
        let find_on = |device: usize, ptr, bytes| {
            devices[device].memory.find(ptr, bytes).map_err(|missing| {
                Failure::illegal(match missing {
                    Missing::Dead => Violation::IllegalAddress { name, ptr, bytes },
                    Missing::Early => Violation::UseBeforeAlloc { name, ptr, bytes },
                })
            })
        };
        let find = |ptr, bytes| find_on(device, ptr, bytes);
        let live = |range: &HostSide| match range.is_freed() {
            true => Err(Failure::illegal(Violation::FreedPinned { name, bytes: range.len() })),
            false => Ok(()),
        };
        match self {
            Work::Nothing => Ok(Prepared::Nothing),
            Work::Upload { dst, src } => match live(&src).and_then(|()| find(dst, src.len())) {
                Ok(dst) => Ok(Prepared::Upload { dst, src }),
                Err(failure) => Err((failure, Work::Nothing)),
            },
            Work::Download { dst, src } => match live(&dst).and_then(|()| find(src, dst.len())) {
                Ok(src) => Ok(Prepared::Download { dst, src }),
                Err(failure) => Err((failure, Work::Nothing)),
            },
            Work::Copy { dst, src, bytes } => {
                match find(src, bytes).and_then(|src| Ok((find(dst, bytes)?, src))) {
                    Ok((dst, src)) => Ok(Prepared::Copy { dst, src }),
                    Err(failure) => Err((failure, Work::Nothing)),
                }
            }
            Work::CopyPeer { dst, src, bytes } => {
                let found = find_on(src.0, src.1, bytes)
                    .and_then(|src| Ok((find_on(dst.0, dst.1, bytes)?, src)));
                match found {
                    Ok((dst, src)) => Ok(Prepared::Copy { dst, src }),
                    Err(failure) => Err((failure, Work::Nothing)),
                }
            }
            Work::CopyRows(copy) => match copy.prepare(name, find) {
                Ok(found) => Ok(Prepared::CopyRows(Box::new(found))),
                Err(failure) => Err((failure, Work::Nothing)),
            },
            Work::Fill(fill) => match find(fill.dst, fill_extent(&fill).unwrap_or(usize::MAX)) {
                Ok(dst) => Ok(Prepared::Fill { dst, fill }),
                Err(failure) => Err((failure, Work::Nothing)),
            },
            Work::Kernel { accesses, job } => {
                let touched = accesses.iter().filter(|access| access.bytes() > 0);
                let ranges = conflict(name, &accesses).map_or(Ok(()), |v| Err(Failure::illegal(v)));
                let ranges = ranges.and_then(|()| {
                    touched.map(|a| Ok((a.ptr, a.extent(), find(a.ptr, a.extent())?))).collect()
                });
                match ranges {
                    Ok(ranges) => Ok(Prepared::Kernel { ranges, job }),
                    Err(failure) => Err((failure, Work::Kernel { accesses, job })),
                }
            }
        }
    }
}

/// A write among the accesses of one launch that another of them overlaps. The twin makes `&mut`
/// and `&` slices of them, so it must not run.
fn conflict(name: &'static str, accesses: &[MemAccess]) -> Option<Violation> {
    let overlap = |a: &MemAccess, b: &MemAccess| {
        let end = |access: &MemAccess| access.ptr.0.saturating_add(access.extent() as u64);
        let rows = |access: &MemAccess| Rows::of(&access.touched());
        let within_reach = a.bytes() > 0 && b.bytes() > 0 && a.ptr.0 < end(b) && b.ptr.0 < end(a);
        within_reach && rows(a).overlap(&rows(b))
    };
    accesses.iter().enumerate().find_map(|(i, a)| {
        let b = accesses[i + 1..].iter().find(|b| (a.writes || b.writes) && overlap(a, b))?;
        Some(Violation::OverlappingAccesses { name, first: a.ptr, second: b.ptr })
    })
}

impl Prepared {
    /// Runs the operation. Takes long, and calls user code: no lock is held.
    pub(super) fn run(self, name: &'static str, executing: &mut Executing) -> Result<(), Failure> {
        match self {
            Prepared::Nothing => Ok(()),
            Prepared::Upload { dst, src } => Ok(upload(&dst, &src, executing)?),
            Prepared::Download { dst, src } => Ok(download(&dst, &src, executing)?),
            Prepared::Copy { dst, src } => Ok(copy(&dst, &src, executing)?),
            Prepared::CopyRows(found) => {
                let FoundRows { dst, src, row, rows, planes } = *found;
                Ok(copy_rows(&dst, &src, (row, rows, planes), executing)?)
            }
            Prepared::Fill { dst, fill: Fill { unit, value, columns, pitch, .. } } => {
                let unit = usize::from(unit);
                let pattern = value.to_le_bytes();
                Ok(fill(&dst, columns * unit, pitch, &pattern[..unit.min(4)], executing)?)
            }
            Prepared::Kernel { ranges, job } => {
                let granted = ranges
                    .iter()
                    .map(|(ptr, bytes, range)| Some((*ptr, *bytes, range.pointer(executing)?)))
                    .collect::<Option<Vec<_>>>();
                let Some(granted) = granted else {
                    discard(job);
                    return Err(HostMemoryExhausted.into());
                };
                run_twin(name, job, &Granted(granted))
            }
        }
    }
}

fn run_twin(name: &'static str, job: TwinJob, granted: &Granted) -> Result<(), Failure> {
    // Unwind safety: after a panic the device is failed and nobody reads its bytes again.
    match catch_unwind(AssertUnwindSafe(|| job(granted))) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(fault)) => Err(Failure::illegal(Violation::IllegalAddress {
            name,
            ptr: fault.ptr,
            bytes: fault.bytes,
        })),
        Err(payload) => {
            discard(payload);
            let violation = Some(Violation::TwinPanicked { name });
            Err(Failure { code: LAUNCH_FAILED, violation })
        }
    }
}

/// Drops what user code made, which may panic. Never called under the lock.
pub(super) fn discard<T>(value: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        std::mem::forget(payload); // its drop could panic as well
    }
}

/// The memory a launch declared, while its twin runs.
struct Granted(Vec<(DevicePtr, usize, NonNull<u8>)>);

impl TwinMemory for Granted {
    fn resolve(&self, ptr: DevicePtr, bytes: usize) -> Option<NonNull<u8>> {
        if bytes == 0 {
            // Like an empty slice: aligned, and not to be read.
            return NonNull::new(std::ptr::without_provenance_mut(ALIGN));
        }
        self.0.iter().find_map(|&(start, len, address)| {
            let offset = usize::try_from(ptr.0.checked_sub(start.0)?).ok()?;
            let inside = offset.checked_add(bytes)? <= len;
            // Not `add`: the offset is checked, and this needs no promise about provenance.
            inside.then(|| address.map_addr(|at| at.saturating_add(offset)))
        })
    }
}
