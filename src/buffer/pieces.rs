//! Cutting a view into pieces.
#![allow(unsafe_code)]

use std::iter::FusedIterator;

use super::shape::{Cut, Shape};

/// Views of disjoint pieces of one view, which together are all of it: what `chunks`, `tiles` and
/// their like return. Cutting costs nothing but the iteration.
#[derive(Clone, Debug)]
#[must_use = "it does nothing until it is iterated over"]
pub struct Pieces<V> {
    whole: V,
    cut: Cut,
    /// The view of one piece of `whole`.
    piece: unsafe fn(&V, Shape) -> V,
}

impl<V> Pieces<V> {
    /// `piece` is called once for each shape of the cut, which have no element in common, and `whole`
    /// is used for nothing else: pieces of a view to write are as exclusive as that was.
    ///
    /// # Safety
    ///
    /// The cut is of the shape of `whole`, and `piece` may be called in this way.
    pub(super) unsafe fn new(whole: V, cut: Cut, piece: unsafe fn(&V, Shape) -> V) -> Self {
        Pieces { whole, cut, piece }
    }
}

impl<V> Iterator for Pieces<V> {
    type Item = V;

    fn next(&mut self) -> Option<V> {
        // SAFETY: as `new` was promised; the cut gives each shape once.
        self.cut.next().map(|shape| unsafe { (self.piece)(&self.whole, shape) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.cut.size_hint()
    }
}

impl<V> ExactSizeIterator for Pieces<V> {}
impl<V> FusedIterator for Pieces<V> {}
