//! Cutting a view into pieces.

use std::iter::FusedIterator;

use super::shape::{Cut, Shape};

/// Views of disjoint pieces of one view, which together are all of it: what `chunks`, `tiles` and
/// their like return. Cutting costs nothing but the iteration.
#[derive(Clone, Debug)]
#[must_use = "it does nothing until it is iterated over"]
pub struct Pieces<V> {
    whole: V,
    cut: Cut,
    /// The view of one piece. It is called once for each, so that pieces of a view to write are as
    /// exclusive as that was.
    piece: fn(&V, Shape) -> V,
}

impl<V> Pieces<V> {
    pub(super) fn new(whole: V, cut: Cut, piece: fn(&V, Shape) -> V) -> Self {
        Pieces { whole, cut, piece }
    }
}

impl<V> Iterator for Pieces<V> {
    type Item = V;

    fn next(&mut self) -> Option<V> {
        self.cut.next().map(|shape| (self.piece)(&self.whole, shape))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.cut.size_hint()
    }
}

impl<V> ExactSizeIterator for Pieces<V> {}
impl<V> FusedIterator for Pieces<V> {}
