//! A value for each byte of an allocation, kept for regions in which it is the same. Pure.
//!
//! Most allocations have one value in all of them, which takes no more than that value: those that
//! are [`Cut`] are kept apart, where what regions cost is told too.

use super::cut::Cut;
use super::region::Region;

#[derive(Clone, Debug)]
pub(super) struct RegionMap<V> {
    bytes: usize,
    values: Values<V>,
}

#[derive(Clone, Debug)]
enum Values<V> {
    One(V),
    /// Of at least two pieces.
    Cut(Box<Cut<V>>),
}

impl<V: Clone + PartialEq> RegionMap<V> {
    /// `value` everywhere.
    pub(super) fn new(bytes: usize, value: V) -> Self {
        RegionMap { bytes, values: Values::One(value) }
    }

    /// All bytes.
    pub(super) fn all(&self) -> Region {
        Region::of_bytes(0..self.bytes)
    }

    /// How many pieces there are.
    pub(super) fn pieces(&self) -> usize {
        match &self.values {
            Values::One(_) => 1,
            Values::Cut(cut) => cut.pieces(),
        }
    }

    /// Whether that is all bytes: one row, as what leaves nothing between its rows is. (A piece with several
    /// rows can have as many places, some of them beyond the allocation.)
    #[inline]
    pub(super) fn is_all(&self, region: &Region) -> bool {
        region.row() == self.bytes
    }

    /// The value of all bytes, where it is one and `region` is all of them.
    #[inline]
    pub(super) fn all_mut(&mut self, region: &Region) -> Option<&mut V> {
        let is_all = self.is_all(region);
        match &mut self.values {
            Values::One(only) => is_all.then_some(only),
            Values::Cut(_) => None,
        }
    }

    /// Calls `each` with the value of every piece that has bytes of `region`, and the first of
    /// those bytes. A piece may come up more than once.
    #[inline]
    pub(super) fn visit<'a>(&'a self, region: &Region, mut each: impl FnMut(usize, &'a V)) {
        match &self.values {
            _ if region.bytes() == 0 => {}
            Values::One(only) => each(region.start(), only),
            Values::Cut(cut) => cut.visit(region, |first, _, value| each(first, value)),
        }
    }

    /// Calls `each` with regions in each of which the value is the same, and that value. What they
    /// have in common with `region` is together all of that; they may have other bytes too.
    pub(super) fn visit_around<'a>(&'a self, region: &Region, mut each: impl FnMut(Region, &'a V)) {
        match &self.values {
            _ if region.bytes() == 0 => {}
            Values::One(only) => each(*region, only),
            Values::Cut(cut) => cut.visit(region, |_, around, value| each(around, value)),
        }
    }

    /// Calls `each` with every piece: its bytes, places beyond the allocation with them, and their
    /// value.
    pub(super) fn each_piece<'a>(&'a self, mut each: impl FnMut(Region, &'a V)) {
        match &self.values {
            Values::One(only) => each(self.all(), only),
            Values::Cut(cut) => cut.each_piece(each),
        }
    }

    /// The value of the byte `at`, and up to where it is the same for certain.
    pub(super) fn run_at(&self, at: usize) -> Option<(usize, &V)> {
        match &self.values {
            Values::One(only) => (at < self.bytes).then_some((self.bytes, only)),
            Values::Cut(cut) => cut.run_at(at),
        }
    }

    /// Whether [`RegionMap::edit`] is about to look for another layout.
    pub(super) fn misfits(&self, region: &Region) -> bool {
        match &self.values {
            Values::One(_) => false,
            Values::Cut(cut) => cut.misfits(region),
        }
    }

    /// Calls `each` with the bytes of `region`, cut into pieces with the same value, and their
    /// value, to change it.
    pub(super) fn edit(&mut self, region: &Region, mut each: impl FnMut(Region, &mut V)) {
        if region.bytes() == 0 {
            return;
        }
        let is_all = self.is_all(region);
        if let Values::One(only) = &mut self.values {
            if is_all {
                return each(*region, only);
            }
            self.values = Values::Cut(Box::new(Cut::new(self.bytes, only.clone())));
        }
        self.change_cut(|cut| cut.edit(region, each));
    }

    /// Changes every value, joins what became equal, and lays all out in one row if that takes no
    /// more pieces.
    pub(super) fn compact(&mut self, mut change: impl FnMut(&mut V)) {
        match &mut self.values {
            Values::One(only) => change(only),
            Values::Cut(_) => self.change_cut(|cut| cut.compact(change)),
        }
    }

    fn change_cut(&mut self, change: impl FnOnce(&mut Cut<V>)) {
        if let Values::Cut(cut) = &mut self.values {
            change(cut);
            if let Some(only) = cut.only() {
                self.values = Values::One(only.clone());
            }
        }
    }

    #[cfg(test)]
    fn layout(&self) -> super::layout::Layout {
        match &self.values {
            Values::One(_) => super::layout::Layout::flat(self.bytes),
            Values::Cut(cut) => cut.layout(),
        }
    }
}

#[cfg(test)]
mod tests;
