//! An allocation cut into pieces, with a value for each. Pure.
//!
//! The allocation is laid out in rows ([`Layout`]) and cut in two levels: into *bands*, which are
//! ranges of places within a row, and each band into runs of rows. So a column is one piece of one
//! band, and rows are one piece of each band. There is one row, the whole allocation, until a
//! region with rows of its own comes: their distance becomes the length of a row.
//!
//! # Costs
//!
//! With `n` pieces, a region in one piece, or one whose rows are those of the layout, is found and
//! changed in O(log n) for each of up to three rectangles, and for each piece that it meets. Memory
//! is O(1) for each piece. What makes more pieces than regions were given:
//!
//! - bands are as long as the allocation. Where `c` columns are there and `r` ranges that cross
//!   them, there can be `c * r` pieces.
//! - rows of another distance than the layout's are taken one by one, unless the distance divides
//!   that of the layout (then it takes as many rectangles as there are such rows in one), or
//!   another layout is found that takes few pieces. One is looked for as often as rows were taken
//!   for half as many pieces as there are. To look such a region up, no more is done than to
//!   compare it with each piece.

use std::collections::BTreeSet;
use std::ops::Range;

use super::layout::{Layout, Rect};
use super::partition::Partition;
use super::region::Region;

/// A region of so many parts is taken as it is.
pub(super) const FEW_PARTS: usize = 4;

#[derive(Clone, Debug)]
pub(super) struct Cut<V> {
    layout: Layout,
    /// Of the places within a row; each a partition of the rows.
    bands: Partition<Partition<V>>,
    /// How many there are in all bands.
    pieces: usize,
    /// Parts of regions that did not fit the layout, since another one was looked for.
    strain: usize,
}

impl<V: Clone + PartialEq> Cut<V> {
    /// `value` everywhere.
    pub(super) fn new(bytes: usize, value: V) -> Self {
        Cut::laid_out(Layout::flat(bytes), value)
    }

    fn laid_out(layout: Layout, value: V) -> Self {
        let bands = Partition::new(layout.pitch(), Partition::new(layout.rows(), value));
        Cut { layout, bands, pieces: 1, strain: 0 }
    }

    fn bytes(&self) -> usize {
        self.layout.bytes()
    }

    #[cfg(test)]
    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    /// How many pieces there are.
    pub(super) fn pieces(&self) -> usize {
        self.pieces
    }

    /// The value of all, once there is one piece.
    pub(super) fn only(&self) -> Option<&V> {
        self.bands.only().and_then(Partition::only)
    }

    /// Calls `each` with regions in each of which the value is the same, with the first byte that each
    /// has in common with `region`, and that value. What they have in common with `region` is together all
    /// of that; they may have other bytes too. A piece may come up more than once.
    pub(super) fn visit<'a>(&'a self, region: &Region, mut each: impl FnMut(usize, Region, &'a V)) {
        if self.layout.parts(region) > self.pieces {
            return self.each_piece(|piece, value| {
                if let Some(first) = piece.first_common(region) {
                    each(first, piece, value);
                }
            });
        }
        let pitch = self.layout.pitch();
        self.layout.each_rect(region, |Rect { columns, rows }| {
            self.bands.each(columns, |columns, band| {
                band.each(rows.clone(), |rows, value| {
                    let first = rows.start * pitch + columns.start;
                    let rect = Rect { columns: columns.clone(), rows };
                    each(first, self.layout.region(&rect), value);
                });
            });
        });
    }

    /// Calls `each` with every piece: its bytes, places beyond the allocation with them, and their
    /// value.
    pub(super) fn each_piece<'a>(&'a self, mut each: impl FnMut(Region, &'a V)) {
        self.bands.each(0..self.layout.pitch(), |columns, band| {
            band.each(0..self.layout.rows(), |rows, value| {
                each(self.layout.region(&Rect { columns: columns.clone(), rows }), value);
            });
        });
    }

    /// The value of the byte `at`, and up to where it is the same for certain.
    pub(super) fn run_at(&self, at: usize) -> Option<(usize, &V)> {
        let pitch = self.layout.pitch();
        let row = at / pitch;
        let (columns, band) = self.bands.get(at % pitch)?;
        let (rows, value) = band.get(row)?;
        let end = if columns == (0..pitch) { rows.end * pitch } else { row * pitch + columns.end };
        Some((end.min(self.bytes()), value))
    }

    /// Whether [`Cut::edit`] is about to look for another layout.
    pub(super) fn misfits(&self, region: &Region) -> bool {
        let parts = self.layout.parts(region);
        parts > FEW_PARTS && 2 * (self.strain + parts) > self.pieces
    }

    /// Calls `each` with the bytes of `region`, cut into pieces with the same value, and their
    /// value, to change it.
    pub(super) fn edit(&mut self, region: &Region, mut each: impl FnMut(Region, &mut V)) {
        self.fit(region);
        let layout = self.layout;
        layout.each_rect(region, |rect| self.edit_rect(rect, &mut each));
    }

    fn edit_rect(&mut self, rect: Rect, each: &mut impl FnMut(Region, &mut V)) {
        let Rect { columns, rows } = rect;
        let (layout, pieces, bands) = (self.layout, &mut self.pieces, &mut self.bands);
        let mut edit_band = |columns: Range<usize>, band: &mut Partition<V>| {
            let mut each = |rows, value: &mut V| {
                each(layout.region(&Rect { columns: columns.clone(), rows }), value);
            };
            if let Some(value) = band.exact_mut(&rows) {
                return each(rows.clone(), value);
            }
            *pieces -= band.count();
            band.split_at(rows.start);
            band.split_at(rows.end);
            band.each_mut(rows.clone(), each);
            band.join(rows.clone(), PartialEq::eq);
            *pieces += band.count();
        };
        // What is a piece already is not split, and seldom like its neighbours afterwards: if it
        // is, `compact` joins them.
        if let Some(band) = bands.exact_mut(&columns) {
            return edit_band(columns, band);
        }
        let mut split = 0;
        for at in [columns.start, columns.end] {
            split += bands.split_at(at).map_or(0, Partition::count);
        }
        bands.each_mut(columns.clone(), &mut edit_band);
        // Bands of several pieces are compared by `compact`.
        let same = |a: &Partition<V>, b: &Partition<V>| a.only().is_some() && a.only() == b.only();
        self.pieces = self.pieces + split - bands.join(columns, same);
    }

    /// Changes every value, joins what became equal, and lays all out in one row if that takes no
    /// more pieces.
    pub(super) fn compact(&mut self, mut change: impl FnMut(&mut V)) {
        let (places, rows) = (0..self.layout.pitch(), 0..self.layout.rows());
        let mut pieces = 0;
        self.bands.each_mut(places.clone(), |_, band| {
            band.each_mut(rows.clone(), |_, value| change(value));
            band.join(rows.clone(), PartialEq::eq);
        });
        self.bands.join(places.clone(), PartialEq::eq);
        self.bands.each(places, |_, band| pieces += band.count());
        self.pieces = pieces;
        self.flatten();
    }

    /// Lays all out in one row, if that takes no more pieces.
    fn flatten(&mut self) {
        if self.layout.is_flat() {
            return;
        }
        let Some(runs) = self.runs() else { return };
        let pieces = runs.len();
        let ends = runs.into_iter().map(|(end, value)| (end, Partition::new(1, value.clone())));
        if let Some(bands) = Partition::of_ends(ends.collect()) {
            let layout = Layout::flat(self.bytes());
            *self = Cut { layout, bands, pieces, strain: 0 };
        }
    }

    /// The ends of runs of bytes with the same value, if these are not more than the pieces.
    ///
    /// Goes from row to row at which some band changes. Between two of those all rows are alike,
    /// and are one run if all bands are.
    fn runs(&self) -> Option<Vec<(usize, &V)>> {
        let (pitch, rows, bands) = (self.layout.pitch(), self.layout.rows(), self.bands.count());
        let mut places = vec![0; bands];
        let mut changes = Vec::with_capacity(self.pieces);
        let mut index = bands;
        self.bands.each(0..pitch, |columns, band| {
            index -= 1;
            places[index] = columns.start;
            band.each(0..rows, |rows, value| changes.push((rows.start, index, value)));
        });
        changes.sort_unstable_by_key(|(row, band, _)| (*row, *band));
        let mut values = vec![changes.first()?.2; bands];
        // The bands that differ from the one before.
        let mut edges = BTreeSet::new();
        let mut runs = Runs { bytes: self.bytes(), ends: Vec::new() };
        let mut changes = changes.chunk_by(|a, b| a.0 == b.0).peekable();
        while let Some(changed) = changes.next() {
            changed.iter().for_each(|(_, band, value)| values[*band] = *value);
            for edge in changed.iter().flat_map(|(_, band, _)| [*band, *band + 1]) {
                if (1..bands).contains(&edge) && values[edge - 1] != values[edge] {
                    edges.insert(edge);
                } else {
                    edges.remove(&edge);
                }
            }
            let first = changed[0].0;
            let end = changes.peek().map_or(rows, |next| next[0].0);
            if edges.is_empty() {
                runs.push(end * pitch, values[0]);
                continue;
            }
            for row in first..end {
                for edge in &edges {
                    runs.push(row * pitch + places[*edge], values[*edge - 1]);
                }
                runs.push((row + 1) * pitch, values[bands - 1]);
                if runs.ends.len() > self.pieces {
                    return None;
                }
            }
        }
        (runs.ends.len() <= self.pieces).then_some(runs.ends)
    }

    /// Sees to it that `region` is few parts, if the layout for that takes few pieces.
    fn fit(&mut self, region: &Region) {
        let parts = self.layout.parts(region);
        if parts <= FEW_PARTS {
            return;
        }
        self.strain += parts;
        if 2 * self.strain <= self.pieces {
            return;
        }
        self.strain = 0;
        let (pitch, own) = (self.layout.pitch(), region.pitch());
        let common = if self.layout.is_flat() { own } else { common_multiple(pitch, own) };
        let most = 2 * self.pieces + parts;
        for other in [common, own] {
            let layout = (other < self.bytes()).then(|| Layout::new(self.bytes(), other));
            if let Some(layout) = layout.filter(|layout| layout.parts(region) < parts)
                && let Some(map) = self.laid_out_as(layout, most)
            {
                *self = map;
                return;
            }
        }
    }

    /// The same in another layout, if that and the way there take no more than `most` pieces.
    fn laid_out_as(&self, layout: Layout, most: usize) -> Option<Self> {
        let mut pieces = Vec::with_capacity(self.pieces);
        self.each_piece(|piece, value| pieces.push((piece, value)));
        let mut map = Cut::laid_out(layout, pieces.first()?.1.clone());
        let mut parts = 0;
        for (piece, value) in pieces {
            parts += layout.parts(&piece);
            if parts > most {
                return None;
            }
            layout
                .each_rect(&piece, |rect| map.edit_rect(rect, &mut |_, old| *old = value.clone()));
            if map.pieces > most {
                return None;
            }
        }
        Some(map)
    }
}

/// Runs of bytes by their ends, ascending; neighbours differ.
struct Runs<'a, V> {
    bytes: usize,
    ends: Vec<(usize, &'a V)>,
}

impl<'a, V: PartialEq> Runs<'a, V> {
    fn push(&mut self, end: usize, value: &'a V) {
        let end = end.min(self.bytes);
        match self.ends.last_mut() {
            Some(last) if last.0 >= end => {}
            Some(last) if last.1 == value => last.0 = end,
            _ => self.ends.push((end, value)),
        }
    }
}

fn common_multiple(a: usize, b: usize) -> usize {
    let (mut divisor, mut rest) = (a, b);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    (a / divisor).saturating_mul(b)
}
