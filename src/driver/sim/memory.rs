//! The device's address space and the registry of page-locked memory.
//!
//! Device addresses are made up: no host pointer is ever near them, so that passing one for the
//! other is found at once. They are reserved in powers of two and handed out again as soon as
//! they are freed, the last freed first: what uses freed memory meets the next owner's bytes.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use rustc_hash::FxHashMap;

use super::bytes::{ALIGN, Block, DeviceRange, Pinned, PinnedRange};
use crate::driver::{DevicePtr, PoolUsage};

/// First address of device 0, above all that processes have on 64-bit machines; each further
/// device's are 2^40 above.
const BASE: u64 = 1 << 56;
const SPACE: u64 = 1 << 40;

/// No memory of a process lies below.
const NULL_PAGE: usize = 4_096;

/// Why an operation cannot have a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// Not all inside one live block.
    Dead,
    /// Inside a block whose stream has not come to its allocation yet.
    Early,
}

/// Memory of one device.
#[derive(Debug)]
pub(super) struct DeviceMemory {
    /// By address. Reserved stretches never overlap.
    blocks: BTreeMap<u64, Live>,
    /// Freed addresses by the size reserved, last freed last.
    freed: FxHashMap<u64, Vec<u64>>,
    /// Above it nothing was reserved yet.
    next: u64,
    end: u64,
    /// Sum of the live blocks' bytes, each rounded up to the alignment. At most `total`.
    live: u64,
    /// What the pool has: the most that was live since it was trimmed.
    reserved: u64,
    /// Bytes of blocks whose frees are enqueued, and whose room was given to allocations behind these.
    promised: u64,
    total: u64,
    allocations: u64,
}

#[derive(Debug)]
struct Live {
    block: Arc<Block>,
    bytes: u64,
    reserved: u64,
    /// Number of this allocation: tells it from others that had its address.
    allocation: u64,
    /// Whether its stream has come to the allocation.
    reached: bool,
    /// Whether a free of it is enqueued.
    freeing: bool,
    /// Whether its room was given to an allocation behind its free.
    promised: bool,
}

impl DeviceMemory {
    pub(super) fn new(ordinal: usize, total: u64) -> Self {
        let base = BASE + ordinal as u64 * SPACE;
        DeviceMemory {
            blocks: BTreeMap::new(),
            freed: FxHashMap::default(),
            next: base,
            end: base + SPACE,
            live: 0,
            reserved: 0,
            promised: 0,
            total,
            allocations: 0,
        }
    }

    pub(super) fn live(&self) -> u64 {
        self.live
    }

    /// What nobody has, the pool included.
    pub(super) fn free_bytes(&self) -> u64 {
        self.total - self.reserved
    }

    pub(super) fn usage(&self) -> PoolUsage {
        PoolUsage { reserved: self.reserved, used: self.live - self.promised }
    }

    /// Gives back what the pool has beyond `keep` bytes, as far as no block has it.
    pub(super) fn trim(&mut self, keep: u64) {
        self.reserved = self.reserved.min(keep.max(self.live - self.promised));
    }

    /// Maps a block: its address and the allocation's number; `None` where there is no room. What blocks take
    /// whose frees come before, `in_order`, is room: each once.
    pub(super) fn alloc(
        &mut self,
        bytes: usize,
        in_order: impl FnOnce() -> Vec<DevicePtr>,
    ) -> Option<(DevicePtr, u64)> {
        let rounded = (bytes as u64).checked_next_multiple_of(ALIGN as u64)?;
        let free = self.total - (self.live - self.promised);
        if rounded > free {
            self.promise(rounded - free, in_order())?;
        }
        let reserved = rounded.checked_next_power_of_two()?;
        let address = match self.freed.get_mut(&reserved).and_then(Vec::pop) {
            Some(address) => address,
            None => {
                let address = self.next;
                self.next = address.checked_add(reserved).filter(|&next| next <= self.end)?;
                address
            }
        };
        self.live += rounded;
        self.reserved = self.reserved.max(self.live - self.promised);
        self.allocations += 1;
        let live = Live {
            block: Block::new(bytes),
            bytes: bytes as u64,
            reserved,
            allocation: self.allocations,
            reached: false,
            freeing: false,
            promised: false,
        };
        self.blocks.insert(address, live);
        Some((DevicePtr(address), self.allocations))
    }

    /// Gives away the room of `missing` bytes of these blocks.
    fn promise(&mut self, missing: u64, blocks: Vec<DevicePtr>) -> Option<()> {
        let (mut given, mut room) = (Vec::new(), 0);
        for ptr in blocks {
            let Some(live) = self.blocks.get(&ptr.0).filter(|live| !live.promised) else {
                continue;
            };
            if room < missing {
                room += live.bytes.next_multiple_of(ALIGN as u64);
                given.push(ptr);
            }
        }
        if room < missing {
            return None;
        }
        for ptr in given {
            if let Some(live) = self.blocks.get_mut(&ptr.0) {
                live.promised = true;
            }
        }
        self.promised += room;
        Some(())
    }

    /// The stream of an allocation has come to it.
    pub(super) fn reach(&mut self, ptr: DevicePtr, allocation: u64) {
        if let Some(live) = self.blocks.get_mut(&ptr.0)
            && live.allocation == allocation
        {
            live.reached = true;
        }
    }

    /// Notes that a free is enqueued; false where `ptr` is no live block's or is freed already.
    pub(super) fn begin_free(&mut self, ptr: DevicePtr) -> bool {
        match self.blocks.get_mut(&ptr.0) {
            Some(live) if !live.freeing => {
                live.freeing = true;
                true
            }
            _ => false,
        }
    }

    /// A free is executed: the address can be had again from here on. Returns the storage, to be
    /// dropped without the lock.
    pub(super) fn free(&mut self, ptr: DevicePtr) -> Option<Arc<Block>> {
        let live = self.blocks.remove(&ptr.0)?;
        let rounded = live.bytes.next_multiple_of(ALIGN as u64);
        self.live -= rounded;
        self.promised -= if live.promised { rounded } else { 0 };
        self.freed.entry(live.reserved).or_default().push(ptr.0);
        Some(live.block)
    }

    /// `bytes` is not 0.
    pub(super) fn find(&self, ptr: DevicePtr, bytes: usize) -> Result<DeviceRange, Missing> {
        let (&base, live) = self.blocks.range(..=ptr.0).next_back().ok_or(Missing::Dead)?;
        let offset = usize::try_from(ptr.0 - base).map_err(|_| Missing::Dead)?;
        let range = live.block.range(offset, bytes).ok_or(Missing::Dead)?;
        if live.reached { Ok(range) } else { Err(Missing::Early) }
    }
}

/// Page-locked memory.
#[derive(Debug, Default)]
pub(super) struct PinnedMemory {
    /// Live blocks by address.
    blocks: BTreeMap<usize, Arc<Pinned>>,
    /// Freed blocks that operations may still name, none of them registered: while they do, the addresses are nobody else's.
    freed: Vec<Weak<Pinned>>,
    live: u64,
}

/// What a range of host addresses is.
#[derive(Debug)]
pub(super) enum HostMemory {
    PageLocked(PinnedRange),
    /// As far as can be told: memory of the host's own.
    Ordinary,
    /// What no copy can be made of: partly page-locked, or freed, or no memory of the host's.
    Invalid,
}

impl PinnedMemory {
    pub(super) fn live(&self) -> u64 {
        self.live
    }

    pub(super) fn insert(&mut self, block: Arc<Pinned>) -> NonNull<u8> {
        let address = block.address();
        self.live += block.len() as u64;
        self.blocks.insert(address.as_ptr().addr(), block);
        address
    }

    /// Takes out a block that starts at `ptr`, if that is registered memory as `registered` says.
    pub(super) fn remove(&mut self, ptr: NonNull<u8>, registered: bool) -> Option<Arc<Pinned>> {
        let at = ptr.as_ptr().addr();
        self.blocks.get(&at).filter(|block| block.is_registered() == registered)?;
        let block = self.blocks.remove(&at)?;
        self.live -= block.len() as u64;
        block.set_freed();
        if !registered {
            self.freed.retain(|freed| freed.strong_count() > 0);
            self.freed.push(Arc::downgrade(&block));
        }
        Some(block)
    }

    /// Whether there may be operations that name the block in which this address is.
    pub(super) fn is_named(&self, address: usize) -> bool {
        let block = self.blocks.range(..=address).next_back();
        block.is_some_and(|(_, block)| Arc::strong_count(block) > 1)
    }

    /// Whether some of these bytes are in memory that was registered.
    pub(super) fn is_registered_in_part(&self, ptr: NonNull<u8>, bytes: usize) -> bool {
        let start = ptr.as_ptr().addr();
        let last = self.blocks.range(..start.saturating_add(bytes)).next_back();
        last.is_some_and(|(base, block)| start < base + block.len() && block.is_registered())
    }

    /// `bytes` is not 0.
    pub(super) fn find(&self, ptr: NonNull<u8>, bytes: usize) -> HostMemory {
        let start = ptr.as_ptr().addr();
        let Some(end) = start.checked_add(bytes).filter(|&end| end as u64 <= BASE) else {
            return HostMemory::Invalid;
        };
        let overlaps = |block: &Pinned| {
            let base = block.address().as_ptr().addr();
            start < base + block.len() && base < end
        };
        // The last to begin before the end: no other can have the first byte and all the rest.
        let block = self.blocks.range(..end).next_back().map(|(_, block)| block);
        if let Some(block) = block.filter(|block| overlaps(block)) {
            let offset = start.checked_sub(block.address().as_ptr().addr());
            let range = offset.and_then(|offset| block.range(offset, bytes));
            return range.map_or(HostMemory::Invalid, HostMemory::PageLocked);
        }
        let freed = self.freed.iter().filter_map(Weak::upgrade).any(|block| overlaps(&block));
        match freed || start < NULL_PAGE {
            true => HostMemory::Invalid,
            false => HostMemory::Ordinary,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_freed_address_of_a_size_comes_back_first() {
        let mut memory = DeviceMemory::new(0, 1 << 20);
        let got: Vec<_> =
            [300, 400, 300].map(|bytes| memory.alloc(bytes, Vec::new)).into_iter().collect();
        let [Some((a, _)), Some((b, _)), Some((c, _))] = got[..] else { panic!("{got:?}") };
        assert!(a.0 % 256 == 0 && b.0 % 256 == 0 && c.0 % 256 == 0);
        memory.free(a);
        memory.free(c);
        assert_eq!(memory.alloc(512, Vec::new).map(|got| got.0), Some(c));
        assert_eq!(memory.alloc(257, Vec::new).map(|got| got.0), Some(a));
        assert!(memory.alloc(1, Vec::new).is_some_and(|got| got.0 > c));
    }

    #[test]
    fn capacity_counts_live_blocks_rounded_up() {
        let mut memory = DeviceMemory::new(0, 1_024);
        let first = memory.alloc(513, Vec::new);
        assert_eq!(memory.free_bytes(), 256);
        assert_eq!(memory.alloc(257, Vec::new), None);
        assert!(memory.alloc(256, Vec::new).is_some());
        memory.free(first.map_or(DevicePtr(0), |got| got.0));
        assert_eq!(memory.free_bytes(), 0, "the pool keeps it");
        memory.trim(512);
        assert_eq!((memory.free_bytes(), memory.usage().reserved), (512, 512));
        memory.trim(0);
        assert_eq!(memory.free_bytes(), 768);
    }

    #[test]
    fn a_range_is_found_only_inside_one_reached_block() {
        let mut memory = DeviceMemory::new(1, 1 << 20);
        let Some((ptr, allocation)) = memory.alloc(256, Vec::new) else { panic!("no room") };
        let Some((next, other)) = memory.alloc(256, Vec::new) else { panic!("no room") };
        assert_eq!(next.0, ptr.0 + 256, "adjacent");
        assert_eq!(memory.find(ptr, 1).err(), Some(Missing::Early));
        memory.reach(ptr, allocation);
        memory.reach(next, other);
        assert!(memory.find(ptr, 256).is_ok());
        assert!(memory.find(DevicePtr(ptr.0 + 255), 1).is_ok());
        assert_eq!(memory.find(DevicePtr(ptr.0 + 255), 2).err(), Some(Missing::Dead));
        assert_eq!(memory.find(DevicePtr(ptr.0 - 1), 1).err(), Some(Missing::Dead));
        memory.free(ptr);
        assert_eq!(memory.find(ptr, 1).err(), Some(Missing::Dead));
    }
}
