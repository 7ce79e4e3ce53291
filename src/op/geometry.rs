//! Grids and blocks.

use crate::driver::DeviceInfo;
use crate::error::{Error, KernelError, Result};

/// How many blocks of how many threads a launch has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    grid: [u64; 3],
    block: [u64; 3],
}

impl Geometry {
    /// At least `items` threads in one dimension, in blocks of `block`.
    pub fn items(items: usize, block: u32) -> Self {
        let block = u64::from(block);
        let blocks = (items as u64).checked_div(block).unwrap_or(0);
        let blocks = blocks + u64::from(blocks * block < items as u64);
        Geometry { grid: [blocks, 1, 1], block: [block, 1, 1] }
    }

    /// `grid` blocks of `block` threads.
    pub fn grid(grid: impl Dim, block: impl Dim) -> Self {
        Geometry { grid: grid.dim(), block: block.dim() }
    }

    /// Whether there is nothing to launch.
    pub(super) fn is_empty(&self) -> bool {
        self.grid.contains(&0)
    }

    /// The geometry as the driver takes it, if the device does.
    pub(super) fn checked(
        &self,
        kernel: &'static str,
        shared_bytes: u32,
        info: &DeviceInfo,
    ) -> Result<([u32; 3], [u32; 3])> {
        let refuse = |what, given, allowed| {
            Err(Error::Kernel(KernelError::Geometry { kernel, what, given, allowed }))
        };
        let most = info.max_grid.map(u64::from);
        let narrow = |dim: [u64; 3]| dim.map(|d| u32::try_from(d).unwrap_or(u32::MAX));
        if self.grid.iter().zip(most).any(|(given, most)| *given > most) {
            return refuse("the grid", self.grid, most);
        }
        let most = info.max_block.map(u64::from);
        if self.block.iter().zip(most).any(|(given, most)| *given > most || *given == 0) {
            return refuse("the block", self.block, most);
        }
        let threads = self.block.iter().product::<u64>();
        let most = u64::from(info.max_block_threads);
        if threads > most {
            return refuse("the threads of a block", [threads, 0, 0], [most, 0, 0]);
        }
        if shared_bytes > info.max_shared_bytes {
            let (given, most) = (u64::from(shared_bytes), u64::from(info.max_shared_bytes));
            return refuse("the shared memory in bytes", [given, 0, 0], [most, 0, 0]);
        }
        Ok((narrow(self.grid), narrow(self.block)))
    }
}

/// A number, or a tuple of two or three: sizes in x, y, z.
pub trait Dim {
    /// All three, 1 where not given.
    fn dim(self) -> [u64; 3];
}

impl Dim for u32 {
    fn dim(self) -> [u64; 3] {
        [self.into(), 1, 1]
    }
}

impl Dim for (u32, u32) {
    fn dim(self) -> [u64; 3] {
        [self.0.into(), self.1.into(), 1]
    }
}

impl Dim for (u32, u32, u32) {
    fn dim(self) -> [u64; 3] {
        [self.0.into(), self.1.into(), self.2.into()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_rounded_up_to_whole_blocks() {
        for (items, blocks) in [(0, 0), (1, 1), (256, 1), (257, 2), (512, 2)] {
            assert_eq!(Geometry::items(items, 256).grid, [blocks, 1, 1]);
        }
        assert!(Geometry::items(0, 256).is_empty());
        assert!(!Geometry::items(usize::MAX, 1).is_empty());
    }
}
