//! What is done wrong on a simulated device.

use super::stuck::Stuck;
use crate::driver::DevicePtr;

/// Something no correct user of the device does. All but [`Violation::OverlappingCopy`],
/// [`Violation::PinnedFreedInUse`] and [`Violation::HostAccessInFlight`] end the device with a
/// sticky error as well.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// An operation named memory that is not all inside one live allocation.
    IllegalAddress {
        /// Of the operation.
        name: &'static str,
        /// First byte.
        ptr: DevicePtr,
        /// How many.
        bytes: usize,
    },
    /// An operation named memory before its allocation's place in the order of streams.
    UseBeforeAlloc {
        /// Of the operation.
        name: &'static str,
        /// First byte.
        ptr: DevicePtr,
        /// How many.
        bytes: usize,
    },
    /// A launch declared a write that overlaps another of its accesses.
    OverlappingAccesses {
        /// Of the kernel.
        name: &'static str,
        /// First byte of the one.
        first: DevicePtr,
        /// First byte of the other.
        second: DevicePtr,
    },
    /// Source and destination of a copy overlap.
    OverlappingCopy {
        /// First byte of the source.
        src: DevicePtr,
        /// First byte of the destination.
        dst: DevicePtr,
    },
    /// Page-locked memory was freed, or unregistered, while an operation that names it had not run.
    PinnedFreedInUse {
        /// Bytes of the block.
        bytes: usize,
    },
    /// A copy came to run whose page-locked memory was freed. It was not touched.
    FreedPinned {
        /// Of the operation.
        name: &'static str,
        /// Bytes to copy.
        bytes: usize,
    },
    /// The host was given page-locked memory that a copy was still to touch, or was touching: some
    /// wait is missing, of a stream or of the host. A copy that had not begun moves nothing then,
    /// and one that was being run was waited for, so that the host's references stay sound.
    HostAccessInFlight {
        /// Of the copy, as [`SimOp::id`](super::SimOp::id).
        id: u64,
        /// As [`SimOp::stream`](super::SimOp::stream).
        stream: u64,
        /// As [`SimOp::name`](super::SimOp::name).
        name: &'static str,
        /// Bytes to copy.
        bytes: u64,
    },
    /// A twin panicked.
    TwinPanicked {
        /// Of the kernel.
        name: &'static str,
    },
    /// Somebody waited for a device that did not move: see
    /// [`Simulator::stuck`](super::Simulator::stuck).
    Stuck {
        /// Who waited for whom.
        report: Stuck,
    },
}
