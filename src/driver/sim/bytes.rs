//! The bytes behind simulated device memory and page-locked memory.
//!
//! All raw memory of the simulator is in this file. Four rules keep it sound:
//!
//! - *Device bytes* are touched by one thread, by one operation at a time: whoever wants their
//!   address shows an [`Executing`], of which there is one per machine, on its executor thread.
//! - *Page-locked bytes* are shared with the host, which says when they are its own (`Driver::tell`): a
//!   copy that could still touch them then never does, also where a test had the wait lost that
//!   would have ordered it (`State::host_has`).
//! - *Registered memory* is page-locked and somebody else's: its owner keeps it until it is unregistered, and
//!   from then on no copy touches it. One that is being run is waited for, and one that comes to run later
//!   finds it gone.
//! - *Ordinary memory* is the host's. The executor touches it only on behalf of an enqueued copy,
//!   whose caller answers for its order and for its life (`Driver::copy_h2d`, `copy_d2h`).
//!
//! All other storage is held by `Arc`: an operation that names bytes keeps them, so that a wrong free
//! makes a reported error and never a dangling pointer. All bytes are initialised, with [`POISON`].
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc};
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// What memory that nobody wrote holds.
pub(super) const POISON: u8 = 0xCB;

/// Alignment of every block, on the device and on the host.
pub(super) const ALIGN: usize = 256;

/// Shows that its holder is the executor, between two operations or inside one.
pub(super) struct Executing(PhantomData<*const ()>);

impl Executing {
    /// # Safety
    /// One for each machine, made on its executor thread.
    pub(super) unsafe fn new() -> Self {
        Executing(PhantomData)
    }
}

/// An owned stretch of the global allocator's memory, initialised.
#[derive(Debug)]
struct Bytes {
    /// Of `layout`, from the global allocator, until drop.
    ptr: NonNull<u8>,
    layout: Layout,
}

// SAFETY: `Bytes` owns its memory and no method of it touches the bytes after `poisoned` has
// returned; who does so through the pointer follows the rules at the top of this file.
unsafe impl Send for Bytes {}
// SAFETY: as for `Send`.
unsafe impl Sync for Bytes {}

impl Bytes {
    /// `None` where the host has no memory for it.
    fn poisoned(len: usize) -> Option<Self> {
        let layout = Layout::from_size_align(len.max(1), ALIGN).ok()?;
        // SAFETY: the layout's size is not 0.
        let ptr = NonNull::new(unsafe { alloc(layout) })?;
        // SAFETY: `ptr` is `layout.size()` bytes long and nobody else has it yet.
        unsafe { ptr.as_ptr().write_bytes(POISON, layout.size()) };
        Some(Bytes { ptr, layout })
    }

    /// Address of `len` bytes from `offset` on.
    fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        debug_assert!(offset.checked_add(len).is_some_and(|end| end <= self.layout.size()));
        // SAFETY: ranges are only made by `Block::range`, which keeps them inside.
        unsafe { self.ptr.add(offset) }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: from `alloc` with this layout; `Arc`s of the owner are gone, so no range and no
        // operation names it.
        unsafe { dealloc(self.ptr.as_ptr(), self.layout) };
    }
}

/// Storage of one block of device memory, made when an operation first touches it: a large
/// allocation that no test touches costs nothing.
#[derive(Debug)]
pub(super) struct Block {
    len: usize,
    /// `None` inside: the host had no memory.
    bytes: OnceLock<Option<Bytes>>,
}

impl Block {
    pub(super) fn new(len: usize) -> Arc<Self> {
        Arc::new(Block { len, bytes: OnceLock::new() })
    }

    /// `None` where it is not all inside.
    pub(super) fn range(self: &Arc<Self>, offset: usize, len: usize) -> Option<DeviceRange> {
        (offset.checked_add(len)? <= self.len).then(|| DeviceRange {
            block: Arc::clone(self),
            offset,
            len,
        })
    }
}

/// Device bytes inside one block.
#[derive(Clone, Debug)]
pub(super) struct DeviceRange {
    block: Arc<Block>,
    /// `offset + len` is at most the block's.
    offset: usize,
    len: usize,
}

impl DeviceRange {
    /// Host address of the bytes; `None` where the host has no memory for the block.
    pub(super) fn pointer(&self, _: &Executing) -> Option<NonNull<u8>> {
        let bytes = self.block.bytes.get_or_init(|| Bytes::poisoned(self.block.len));
        bytes.as_ref().map(|bytes| bytes.at(self.offset, self.len))
    }
}

/// One block of page-locked memory.
#[derive(Debug)]
pub(super) struct Pinned {
    ptr: NonNull<u8>,
    len: usize,
    /// What is there; `None` where it is registered, and somebody else's.
    owned: Option<Bytes>,
    /// Set by `host_free` and `host_unregister`, for operations that still name the block.
    freed: AtomicBool,
}

// SAFETY: an address and a length beside what owns them, if anything does. Whoever touches the bytes follows
// the rules at the top of this file.
unsafe impl Send for Pinned {}
// SAFETY: as for `Send`.
unsafe impl Sync for Pinned {}

impl Pinned {
    pub(super) fn new(len: usize) -> Option<Arc<Self>> {
        let bytes = Bytes::poisoned(len)?;
        let (ptr, owned) = (bytes.ptr, Some(bytes));
        Some(Arc::new(Pinned { ptr, len, owned, freed: AtomicBool::new(false) }))
    }

    /// # Safety
    /// The bytes are live and initialised until `set_freed` was called and no copy of them is being run:
    /// what the caller of `Driver::host_register` promises, and `host_unregister` sees to.
    pub(super) unsafe fn registered(ptr: NonNull<u8>, len: usize) -> Arc<Self> {
        Arc::new(Pinned { ptr, len, owned: None, freed: AtomicBool::new(false) })
    }

    pub(super) fn is_registered(&self) -> bool {
        self.owned.is_none()
    }

    pub(super) fn address(&self) -> NonNull<u8> {
        self.ptr
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn set_freed(&self) {
        self.freed.store(true, Ordering::Relaxed);
    }

    /// `None` where it is not all inside.
    pub(super) fn range(self: &Arc<Self>, offset: usize, len: usize) -> Option<PinnedRange> {
        (offset.checked_add(len)? <= self.len).then(|| PinnedRange {
            block: Arc::clone(self),
            offset,
            len,
        })
    }
}

/// Page-locked bytes inside one block, which they keep allocated, unless it is registered.
#[derive(Clone, Debug)]
pub(super) struct PinnedRange {
    block: Arc<Pinned>,
    /// `offset + len` is at most the block's.
    offset: usize,
    len: usize,
}

impl PinnedRange {
    /// Whether `host_free` or `host_unregister` was called on the block.
    pub(super) fn is_freed(&self) -> bool {
        self.block.freed.load(Ordering::Relaxed)
    }

    fn pointer(&self) -> NonNull<u8> {
        debug_assert!(self.offset + self.len <= self.block.len);
        // SAFETY: ranges are only made by `Pinned::range`, which keeps them inside the block.
        unsafe { self.block.ptr.add(self.offset) }
    }

    /// The host addresses that it is.
    pub(super) fn addresses(&self) -> Range<usize> {
        let start = self.pointer().as_ptr().addr();
        start..start + self.len
    }
}

/// Bytes of ordinary memory, which nobody here owns.
#[derive(Debug)]
pub(super) struct Ordinary {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: an address and a length. Whoever touches the bytes behind it does so under the promise that
// `Ordinary::new` was given, which names no thread.
unsafe impl Send for Ordinary {}

impl Ordinary {
    /// # Safety
    /// The bytes are live and initialised until the copy that is made of or to them is done, and
    /// conflicting accesses are ordered with it: what the caller of `Driver::copy_h2d` or `copy_d2h`
    /// promises.
    pub(super) unsafe fn new(ptr: NonNull<u8>, len: usize) -> Self {
        Ordinary { ptr, len }
    }

    /// The bytes as they are now; `None` where the host has no memory for them.
    pub(super) fn capture(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(self.len).ok()?;
        // SAFETY: `new`'s caller promised that the source is live, initialised and not written until
        // the copy is done, which is not even enqueued. The room is as long, and another allocation.
        unsafe {
            ptr::copy_nonoverlapping(self.ptr.as_ptr(), bytes.as_mut_ptr(), self.len);
            bytes.set_len(self.len);
        }
        Some(bytes)
    }
}

/// The host's side of a copy.
#[derive(Debug)]
pub(super) enum HostSide {
    PageLocked(PinnedRange),
    Ordinary(Ordinary),
    /// What ordinary memory held at the call. Only ever copied from.
    Captured(Vec<u8>),
}

impl HostSide {
    pub(super) fn len(&self) -> usize {
        match self {
            HostSide::PageLocked(range) => range.len,
            HostSide::Ordinary(range) => range.len,
            HostSide::Captured(bytes) => bytes.len(),
        }
    }

    pub(super) fn page_locked(&self) -> Option<&PinnedRange> {
        match self {
            HostSide::PageLocked(range) => Some(range),
            HostSide::Ordinary(_) | HostSide::Captured(_) => None,
        }
    }

    /// Whether it is page-locked memory that `host_free` was called on.
    pub(super) fn is_freed(&self) -> bool {
        self.page_locked().is_some_and(PinnedRange::is_freed)
    }

    /// Address of its bytes, to be read.
    fn source(&self) -> *const u8 {
        match self {
            HostSide::PageLocked(range) => range.pointer().as_ptr(),
            HostSide::Ordinary(range) => range.ptr.as_ptr(),
            HostSide::Captured(bytes) => bytes.as_ptr(),
        }
    }

    /// Address of its bytes, to be written; `None` where that cannot be.
    fn destination(&self) -> Option<NonNull<u8>> {
        match self {
            HostSide::PageLocked(range) => Some(range.pointer()),
            HostSide::Ordinary(range) => Some(range.ptr),
            HostSide::Captured(_) => None,
        }
    }
}

/// The host has no memory for a block that an operation touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostMemoryExhausted;

/// Runs a copy from the host. The ranges are equally long.
pub(super) fn upload(
    dst: &DeviceRange,
    src: &HostSide,
    executing: &mut Executing,
) -> Result<(), HostMemoryExhausted> {
    let to = dst.pointer(executing).ok_or(HostMemoryExhausted)?;
    // SAFETY: `dst` and page-locked memory are inside blocks that they keep allocated or that are registered still,
    // as was seen when the copy was begun, and captured
    // bytes are their own; that ordinary memory is live is promised by who made the `Ordinary`. Nothing
    // else runs on the device. The host does not write the source meanwhile: of page-locked memory
    // `State::host_has` sees to that, of ordinary memory the contract of `Driver::copy_h2d`. Device
    // memory and the host's are different allocations.
    unsafe { ptr::copy_nonoverlapping(src.source(), to.as_ptr(), dst.len.min(src.len())) };
    Ok(())
}

/// Runs a copy to the host. The ranges are equally long.
pub(super) fn download(
    dst: &HostSide,
    src: &DeviceRange,
    executing: &mut Executing,
) -> Result<(), HostMemoryExhausted> {
    let from = src.pointer(executing).ok_or(HostMemoryExhausted)?;
    let Some(to) = dst.destination() else {
        return Ok(());
    };
    // SAFETY: as in `upload`: the host does not touch the destination meanwhile, by
    // `State::host_has` or by the contract of `Driver::copy_d2h`.
    unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), dst.len().min(src.len)) };
    Ok(())
}

/// Runs a copy within the device. The ranges are equally long and may overlap.
pub(super) fn copy(
    dst: &DeviceRange,
    src: &DeviceRange,
    executing: &mut Executing,
) -> Result<(), HostMemoryExhausted> {
    let to = dst.pointer(executing).ok_or(HostMemoryExhausted)?;
    let from = src.pointer(executing).ok_or(HostMemoryExhausted)?;
    // SAFETY: both ranges are inside blocks that they keep allocated; `executing` says that
    // nothing else touches device bytes.
    unsafe { ptr::copy(from.as_ptr(), to.as_ptr(), dst.len.min(src.len)) };
    Ok(())
}

/// Bytes that a copy of rows reads or writes, on either side.
#[derive(Debug)]
pub(super) enum Stored {
    Device(DeviceRange),
    PageLocked(PinnedRange),
}

impl Stored {
    fn len(&self) -> usize {
        match self {
            Stored::Device(range) => range.len,
            Stored::PageLocked(range) => range.len,
        }
    }

    fn pointer(&self, executing: &Executing) -> Option<NonNull<u8>> {
        match self {
            Stored::Device(range) => range.pointer(executing),
            Stored::PageLocked(range) => Some(range.pointer()),
        }
    }
}

/// One side of a copy of rows.
#[derive(Debug)]
pub(super) struct StoredRows {
    /// From the first row's first byte on.
    pub(super) bytes: Stored,
    /// From row to row.
    pub(super) pitch: usize,
    /// From plane to plane.
    pub(super) plane_pitch: usize,
}

/// Runs a copy of rows: so many bytes each, how many, and in how many planes, all of them within both
/// sides. What is between them is not touched.
pub(super) fn copy_rows(
    dst: &StoredRows,
    src: &StoredRows,
    (row, rows, planes): (usize, usize, usize),
    executing: &mut Executing,
) -> Result<(), HostMemoryExhausted> {
    let to = dst.bytes.pointer(executing).ok_or(HostMemoryExhausted)?;
    let from = src.bytes.pointer(executing).ok_or(HostMemoryExhausted)?;
    let inside = |side: &StoredRows, offset: usize| offset + row <= side.bytes.len();
    for (plane, i) in (0..planes).flat_map(|plane| (0..rows).map(move |i| (plane, i))) {
        let there = plane * dst.plane_pitch + i * dst.pitch;
        let here = plane * src.plane_pitch + i * src.pitch;
        let both = inside(dst, there) && inside(src, here);
        debug_assert!(both, "row {i} of plane {plane}, of {row} bytes, is not within both sides");
        if !both {
            break;
        }
        // SAFETY: both rows are inside their ranges, as was just checked, and these keep their blocks
        // allocated. Nothing else runs on the device, and the host does not touch the rows
        // meanwhile: `State::host_has` sees to that. Rows within the device may overlap.
        unsafe { ptr::copy(from.add(here).as_ptr(), to.add(there).as_ptr(), row) };
    }
    Ok(())
}

/// Fills rows of `row` bytes, `pitch` bytes apart, with `pattern` over and over. `dst` ends with
/// the last row.
pub(super) fn fill(
    dst: &DeviceRange,
    row: usize,
    pitch: usize,
    pattern: &[u8],
    executing: &mut Executing,
) -> Result<(), HostMemoryExhausted> {
    let to = dst.pointer(executing).ok_or(HostMemoryExhausted)?;
    let mut offset = 0;
    while row > 0 && offset + row <= dst.len {
        // SAFETY: the row is inside `dst`, whose block it keeps allocated; `executing` says that
        // nothing else touches device bytes, so this is the only reference to them.
        let bytes = unsafe { std::slice::from_raw_parts_mut(to.add(offset).as_ptr(), row) };
        match pattern {
            [byte] => bytes.fill(*byte),
            _ => bytes.chunks_mut(pattern.len().max(1)).for_each(|unit| {
                unit.copy_from_slice(&pattern[..unit.len()]);
            }),
        }
        offset += pitch.max(row);
    }
    Ok(())
}
