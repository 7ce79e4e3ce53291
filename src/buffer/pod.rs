//! Sizes of plain data.

use crate::error::{Error, Result};

/// Bytes that `len` elements of `T` take.
pub(super) fn byte_len<T>(len: usize) -> Result<usize> {
    let bytes = len.checked_mul(size_of::<T>()).filter(|bytes| *bytes <= isize::MAX as usize);
    bytes.ok_or(Error::TooLarge { len, element_size: size_of::<T>() })
}
