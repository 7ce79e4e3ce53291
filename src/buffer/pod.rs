//! Sizes of plain data.

use crate::error::{Error, Result};

/// What the driver aligns pinned memory to at least; it aligns device memory to more.
const MOST_ALIGN: usize = 64;

/// What elements of `T` are aligned to. Does not compile for those that memory is not aligned for.
pub(super) const fn align_of_elements<T>() -> usize {
    const { assert!(align_of::<T>() <= MOST_ALIGN, "elements are aligned to 64 bytes at most") };
    align_of::<T>()
}

/// Bytes that `len` elements of `T` take. Does not compile for elements that memory is not aligned
/// for.
pub(crate) fn byte_len<T>(len: usize) -> Result<usize> {
    align_of_elements::<T>();
    let bytes = len.checked_mul(size_of::<T>()).filter(|bytes| *bytes <= isize::MAX as usize);
    bytes.ok_or(Error::TooLarge { len, element_size: size_of::<T>() })
}
