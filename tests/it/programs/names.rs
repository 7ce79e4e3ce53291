//! What lines name: memory, and elements of it.

use std::fmt;
use std::ops::Range;

use super::model::Refusal;

/// Device buffers, always there.
pub(crate) const BUFFERS: usize = 4;
/// Shared buffers, always there.
pub(crate) const SHARED: usize = 2;
/// Pinned buffers, always there.
pub(crate) const PINNED: usize = 2;
/// Parts, of a device buffer and of a pinned one, of which some may not be there.
pub(crate) const PARTS: usize = 3;
/// Elements that a buffer has: one of these.
pub(crate) const LENGTHS: [usize; 3] = [16, 12, 5];
/// Columns of memory that is seen as a matrix.
pub(crate) const COLUMNS: usize = 4;

/// Memory that lines name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name {
    Buffer(usize),
    /// Of one device buffer that was dealt out.
    Part(usize),
    Shared(usize),
    Pinned(usize),
    /// Of one pinned buffer that was dealt out.
    PinnedPart(usize),
}

impl Name {
    /// The parts that a buffer of this kind is exchanged for.
    pub(crate) fn parts(self) -> Vec<Name> {
        let part = match self {
            Name::Pinned(_) | Name::PinnedPart(_) => Name::PinnedPart,
            Name::Buffer(_) | Name::Part(_) | Name::Shared(_) => Name::Part,
        };
        (0..PARTS).map(part).collect()
    }

    /// Everything that has a name.
    pub(crate) fn all() -> Vec<Name> {
        let device = (0..BUFFERS).map(Name::Buffer).chain((0..PARTS).map(Name::Part));
        let pinned = (0..PINNED).map(Name::Pinned).chain((0..PARTS).map(Name::PinnedPart));
        device.chain((0..SHARED).map(Name::Shared)).chain(pinned).collect()
    }
}

/// Indices as lines have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Span {
    pub(crate) fn new(start: usize, len: usize) -> Self {
        Span { start, end: start + len }
    }

    pub(crate) fn range(self) -> Range<usize> {
        self.start..self.end
    }

    pub(crate) fn len(self) -> usize {
        self.end - self.start
    }

    /// The same indices, counted from `origin` on.
    pub(crate) fn less(self, origin: usize) -> Range<usize> {
        self.start - origin..self.end - origin
    }

    pub(crate) fn is_before(self, other: Span) -> bool {
        self.end <= other.start
    }
}

/// Which elements of what is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    All,
    Slice(Span),
    /// Where rows and columns meet.
    Tile {
        rows: Span,
        columns: Span,
    },
}

/// Elements of some memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operand {
    pub(crate) of: Name,
    pub(crate) at: View,
}

impl Operand {
    pub(crate) fn all(of: Name) -> Self {
        Operand { of, at: View::All }
    }
}

/// The elements of a view.
pub(crate) struct Elements {
    pub(crate) indices: Vec<usize>,
    /// Rows and columns of a tile.
    pub(crate) tile: Option<[usize; 2]>,
}

impl View {
    /// The elements that it is of memory of `len` elements.
    pub(crate) fn elements(self, len: usize) -> Result<Elements, Refusal> {
        let there = match self {
            View::All => true,
            View::Slice(span) => span.end <= len,
            View::Tile { rows, columns } => {
                let is_matrix = len.is_multiple_of(COLUMNS);
                is_matrix && rows.end <= len / COLUMNS && columns.end <= COLUMNS
            }
        };
        if !there {
            return Err(Refusal::NotThere);
        }
        let (indices, tile) = match self {
            View::All => ((0..len).collect(), None),
            View::Slice(span) => (span.range().collect(), None),
            View::Tile { rows, columns } => {
                let row = |row| columns.range().map(move |column| row * COLUMNS + column);
                (rows.range().flat_map(row).collect(), Some([rows.len(), columns.len()]))
            }
        };
        Ok(Elements { indices, tile })
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Name::Buffer(x) => f.write_str(["a", "b", "c", "d"][x]),
            Name::Part(x) => write!(f, "e{x}"),
            Name::Shared(x) => f.write_str(["v", "w"][x]),
            Name::Pinned(x) => f.write_str(["p", "q"][x]),
            Name::PinnedPart(x) => write!(f, "r{x}"),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            View::All => write!(f, "{}", self.of),
            View::Slice(span) => write!(f, "{}[{span}]", self.of),
            View::Tile { rows, columns } => write!(f, "{}[{rows}, {columns}]", self.of),
        }
    }
}
