//! Ordinary memory as bytes, owned: what helper threads read, and what they fill.
//!
//! Unsafe, since what is transferred is of any plain type while it is handled as bytes, and since the
//! memory has to stay where it is while its owner is moved about.
#![allow(unsafe_code)]

use std::alloc::{Layout, dealloc};
use std::any::TypeId;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use bytemuck::Pod;

use crate::device::PinnedBlock;
use crate::error::{Error, Result};
use crate::sync::atomic::{AtomicUsize, Ordering::*};

/// Anything that can be dropped.
trait Anything {}
impl<O> Anything for O {}

/// Plain data that something owns, read as bytes from any thread.
pub(super) struct OwnedBytes {
    /// From a box. Nobody uses it before it is dropped.
    owner: NonNull<dyn Anything>,
    /// Borrowed from `owner` for as long as this lives.
    first: NonNull<u8>,
    bytes: usize,
    /// Elements.
    len: usize,
}

// SAFETY: what it gives out are bytes of plain data, which has no interior mutability. The owner is sent
// by `of_owner` only if it is `Send`; else it is memory of plain data alone (`of_memory`), which any
// thread may free.
unsafe impl Send for OwnedBytes {}
// SAFETY: as for `Send`; the owner itself is not given out.
unsafe impl Sync for OwnedBytes {}

impl OwnedBytes {
    /// `as_ref` is called once, when the owner has its place for good.
    pub(super) fn of_owner<T: Pod>(owner: impl AsRef<[T]> + Send + Sync + 'static) -> Self {
        // SAFETY: the owner may be sent to, and be used on, any thread.
        unsafe { Self::erased(owner) }
    }

    pub(super) fn of_vec<T: Pod>(elements: Vec<T>) -> Self {
        // SAFETY: of a type that is no business of threads: only memory is freed, plain data drops nothing.
        unsafe { Self::erased(elements) }
    }

    pub(super) fn of_box<T: Pod>(elements: Box<[T]>) -> Self {
        // SAFETY: as for `of_vec`.
        unsafe { Self::erased(elements) }
    }

    pub(super) fn of_arc<T: Pod>(elements: Arc<[T]>) -> Self {
        // SAFETY: as for `of_vec`; the count of an `Arc` is any thread's.
        unsafe { Self::erased(elements) }
    }

    pub(super) fn of_array<T: Pod, const N: usize>(elements: [T; N]) -> Self {
        // SAFETY: as for `of_vec`.
        unsafe { Self::erased(elements) }
    }

    /// # Safety
    ///
    /// The owner may be dropped on any thread.
    unsafe fn erased<T: Pod, O: AsRef<[T]> + 'static>(owner: O) -> Self {
        let owner = NonNull::from(Box::leak(Box::new(owner)));
        // Whole before foreign code runs, whose panic then drops the owner.
        let mut owned = OwnedBytes { owner, first: NonNull::dangling(), bytes: 0, len: 0 };
        // SAFETY: it was leaked just now, and is not touched before `owned` is dropped: the borrow is good
        // until then.
        let elements: &[T] = unsafe { owner.as_ref() }.as_ref();
        (owned.first, owned.bytes) = (NonNull::from(elements).cast(), size_of_val(elements));
        owned.len = elements.len();
        owned
    }

    /// Elements.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        // SAFETY: the elements, which are plain data, are borrowed from the owner while `self` lives.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.bytes) }
    }
}

impl Drop for OwnedBytes {
    fn drop(&mut self) {
        // SAFETY: it came from a box, and is dropped once.
        drop(unsafe { Box::from_raw(self.owner.as_ptr()) });
    }
}

/// The memory of a `Vec` that is being filled, by several threads at a time.
#[derive(Debug)]
pub(super) struct Filling {
    first: NonNull<u8>,
    /// Bytes to be filled, of which the memory has room.
    bytes: usize,
    /// How many were.
    filled: AtomicUsize,
    /// Of the allocation: that of `capacity` elements of type `element`.
    layout: Layout,
    capacity: usize,
    element: TypeId,
}

// SAFETY: it owns plain memory; who writes there answers for that (`Filling::write`).
unsafe impl Send for Filling {}
// SAFETY: as for `Send`.
unsafe impl Sync for Filling {}

/// From so many bytes on it pays to ask for large pages.
const MANY_BYTES: usize = 8 << 20;

impl Filling {
    /// Room for `len` elements in the memory of `vec`, whose elements are gone, or in more of it.
    ///
    /// # Errors
    ///
    /// The system has no more memory.
    pub(super) fn new<T: Pod>(mut vec: Vec<T>, len: usize) -> Result<Self> {
        vec.clear();
        if vec.try_reserve_exact(len).is_err() {
            return Err(Error::TooLarge { len, element_size: size_of::<T>() });
        }
        let (capacity, bytes) = (vec.capacity(), len * size_of::<T>());
        let layout = Layout::array::<T>(capacity)
            .map_err(|_| Error::TooLarge { len: capacity, element_size: size_of::<T>() })?;
        let mut vec = ManuallyDrop::new(vec);
        let first = NonNull::new(vec.as_mut_ptr().cast()).unwrap_or(NonNull::dangling());
        let (filled, element) = (AtomicUsize::new(0), TypeId::of::<T>());
        let filling = Filling { first, bytes, filled, layout, capacity, element };
        filling.ask_for_large_pages();
        Ok(filling)
    }

    /// Pages that nobody has touched are made when they are written: by the threads, and large ones are
    /// made faster. A wish that the system need not grant.
    fn ask_for_large_pages(&self) {
        #[cfg(target_os = "linux")]
        if self.bytes >= MANY_BYTES {
            const PAGE: usize = 2 << 20;
            let start = self.first.as_ptr().addr().next_multiple_of(PAGE);
            let end = (self.first.as_ptr().addr() + self.bytes) / PAGE * PAGE;
            let first = self.first.as_ptr().with_addr(start);
            // SAFETY: the pages are within the allocation, whose contents this does not change.
            unsafe { libc::madvise(first.cast(), end - start, libc::MADV_HUGEPAGE) };
        }
    }

    /// Writes what `chunk` begins with to the bytes from `at` on, `bytes` of them.
    ///
    /// # Safety
    ///
    /// They are bytes that are to be filled, each is written once, and all of the chunk was.
    pub(super) unsafe fn write(&self, at: usize, chunk: &PinnedBlock, bytes: usize) {
        // SAFETY: within both, and written by nobody else; who has the chunk has it alone.
        unsafe {
            let to = self.first.as_ptr().add(at);
            std::ptr::copy_nonoverlapping(chunk.ptr().as_ptr(), to, bytes);
        }
        self.filled.fetch_add(bytes, AcqRel);
    }

    /// The `Vec`. `None` where it was made of another type, or not all of it is filled.
    pub(super) fn into_vec<T: Pod>(self) -> Option<Vec<T>> {
        if self.element != TypeId::of::<T>() || self.filled.load(Acquire) != self.bytes {
            return None;
        }
        let filled = ManuallyDrop::new(self);
        let len = filled.bytes / size_of::<T>().max(1);
        // SAFETY: the allocation is that of a `Vec<T>` of this capacity, taken apart in `new`; the
        // elements are plain data, and all their bytes were written, each once.
        Some(unsafe { Vec::from_raw_parts(filled.first.as_ptr().cast(), len, filled.capacity) })
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        if self.layout.size() > 0 {
            // SAFETY: allocated by the `Vec` that this was made of, with this layout.
            unsafe { dealloc(self.first.as_ptr(), self.layout) };
        }
    }
}

/// Copies `bytes` to the start of a chunk, which has room for them.
pub(super) fn fill(chunk: &mut PinnedBlock, bytes: &[u8]) {
    assert!(bytes.len() <= chunk.bytes(), "a chunk of {} bytes", chunk.bytes());
    // SAFETY: the chunk has the room. Who has a block has it alone, and no operation touches it: the pool
    // gives out no others, and `InFlight` gives its block back when its copy was seen to finish.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), chunk.ptr().as_ptr(), bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_asked_once_where_it_stays_and_is_dropped_once() {
        use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        static DROPPED: AtomicUsize = AtomicUsize::new(0);
        struct Inline([u16; 3]);
        impl AsRef<[u16]> for Inline {
            fn as_ref(&self) -> &[u16] {
                ASKED.fetch_add(1, SeqCst);
                &self.0
            }
        }
        impl Drop for Inline {
            fn drop(&mut self) {
                DROPPED.fetch_add(1, SeqCst);
            }
        }
        let owned = OwnedBytes::of_owner(Inline([1, 2, 3]));
        let moved = Box::new(owned);
        assert_eq!(moved.as_bytes(), bytemuck::cast_slice::<u16, u8>(&[1, 2, 3]));
        assert_eq!((ASKED.load(SeqCst), DROPPED.load(SeqCst)), (1, 0));
        drop(moved);
        assert_eq!((ASKED.load(SeqCst), DROPPED.load(SeqCst)), (1, 1));
    }

    #[test]
    fn an_owner_that_panics_when_asked_is_dropped() {
        struct Panics(Arc<()>);
        impl AsRef<[u8]> for Panics {
            fn as_ref(&self) -> &[u8] {
                panic!("asked {}", Arc::strong_count(&self.0))
            }
        }
        let counted = Arc::new(());
        let owner = Panics(counted.clone());
        assert!(std::panic::catch_unwind(move || OwnedBytes::of_owner(owner)).is_err());
        assert_eq!(Arc::strong_count(&counted), 1);
    }

    #[test]
    fn a_vec_keeps_its_memory_where_it_has_room() -> Result<()> {
        let vec = vec![7u64; 10];
        let first = vec.as_ptr();
        let filling = Filling::new(vec, 8)?;
        assert_eq!(filling.first.as_ptr().addr(), first.addr());
        filling.filled.store(64, Relaxed); // they are there from before
        let vec = filling.into_vec::<u64>().unwrap_or_default();
        assert_eq!((vec.len(), vec.as_ptr()), (8, first));
        Ok(())
    }

    #[test]
    fn what_is_not_filled_or_of_another_type_is_no_vec() -> Result<()> {
        assert!(Filling::new(Vec::<u16>::new(), 5)?.into_vec::<u16>().is_none());
        assert!(Filling::new(Vec::<u16>::new(), 0)?.into_vec::<i16>().is_none());
        Ok(())
    }
}
