//! The blocks of memory that there are.

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::Location;

use super::report::RacedMemory;
use super::shadow::{Access, Shadow};
use crate::driver::DevicePtr;

/// By address of their first byte. They do not overlap.
#[derive(Debug, Default)]
pub(super) struct Blocks(BTreeMap<u64, Block>);

#[derive(Debug)]
pub(super) struct Block {
    pub(super) bytes: u64,
    pub(super) on_device: bool,
    pub(super) made_at: Option<&'static Location<'static>>,
    pub(super) shadow: Shadow,
}

impl Block {
    pub(super) fn new(bytes: usize, on_device: bool) -> Self {
        Block { bytes: bytes as u64, on_device, made_at: None, shadow: Shadow::default() }
    }

    pub(super) fn memory(&self, start: u64) -> RacedMemory {
        let (ptr, bytes) = (DevicePtr(start), self.bytes);
        RacedMemory { ptr, bytes, on_device: self.on_device, made_at: self.made_at }
    }

    /// The addresses, from the first to the last, that the access touches of it.
    pub(super) fn part_of(&self, start: u64, access: &Access) -> Range<u64> {
        let touched = access.rows.extent();
        touched.start.max(start)..touched.end.min(start + self.bytes)
    }
}

impl Blocks {
    pub(super) fn insert(&mut self, start: u64, block: Block) {
        self.0.insert(start, block);
    }

    pub(super) fn remove(&mut self, start: u64) -> Option<Block> {
        self.0.remove(&start)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Block> {
        self.0.values()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Block> {
        self.0.values_mut()
    }

    /// The block that has the address, and where it begins.
    pub(super) fn find(&mut self, address: u64) -> Option<(u64, &mut Block)> {
        let (&start, block) = self.0.range_mut(..=address).next_back()?;
        (address - start < block.bytes).then_some((start, block))
    }

    /// All that have bytes in `range`, which is not empty, and where they begin: nearly always one.
    pub(super) fn over(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, &Block)> {
        let first = self.first_over(range);
        self.0.range(first..range.end).map(|(&start, block)| (start, block))
    }

    pub(super) fn over_mut(
        &mut self,
        range: &Range<u64>,
    ) -> impl Iterator<Item = (u64, &mut Block)> {
        let first = self.first_over(range);
        self.0.range_mut(first..range.end).map(|(&start, block)| (start, block))
    }

    fn first_over(&self, range: &Range<u64>) -> u64 {
        let before = self.0.range(..=range.start).next_back();
        let before = before.filter(|(start, block)| range.start - **start < block.bytes);
        before.map_or(range.start, |(start, _)| *start)
    }
}
