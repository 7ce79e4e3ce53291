//! Sizes that blocks of device memory come in. Pure.

/// Every block is a multiple of this, which is what the driver aligns to.
const GRAIN: u64 = 256;
/// From here on blocks are multiples of [`PAGE`]: so much the driver maps at a time.
const LARGE: u64 = 16 << 20;
const PAGE: u64 = 2 << 20;

/// Bytes of the block that `bytes` bytes get: up to an eighth more, eight sizes to each doubling. So what is
/// nearly as large as something that was freed fits in its place. `None` beyond the address space.
pub(super) fn class_of(bytes: u64) -> Option<u64> {
    let step = match bytes {
        LARGE.. => PAGE,
        _ => ((1 << bytes.max(1).ilog2()) / 8).max(GRAIN),
    };
    bytes.max(1).checked_next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_at_most_an_eighth_larger_than_asked() {
        for bytes in
            [2_048, 2_049, 5_000, 1 << 20, (1 << 20) + 1, 15 << 20, (16 << 20) + 1, 1 << 40]
        {
            let class = class_of(bytes).unwrap_or(0);
            assert!(class >= bytes && class <= bytes + bytes / 8, "{bytes}: {class}");
            assert_eq!(class % GRAIN, 0);
            assert_eq!(class_of(class), Some(class), "a class is of its own size");
        }
        assert_eq!([0, 1, 256, 257].map(class_of), [256, 256, 256, 512].map(Some));
        assert_eq!(class_of(u64::MAX), None);
    }
}
