//! Sizes of plain data.

use crate::error::{Error, Result};

/// What the driver aligns pinned memory to at least; it aligns device memory to more.
const MOST_ALIGN: usize = 64;

/// Bytes that `len` elements of `T` take. Does not compile for elements that memory is not aligned
/// for.
pub(crate) fn byte_len<T>(len: usize) -> Result<usize> {
    const { assert!(align_of::<T>() <= MOST_ALIGN, "elements are aligned to 64 bytes at most") };
    let bytes = len.checked_mul(size_of::<T>()).filter(|bytes| *bytes <= isize::MAX as usize);
    bytes.ok_or(Error::TooLarge { len, element_size: size_of::<T>() })
}
