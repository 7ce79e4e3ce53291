//! Random operands: those of one operation have as many elements each, for the most part.
//!
//! Simpler ones come first, which is where shrinking goes: all of a buffer.

use proptest::prelude::*;

use super::generate::Shape;
use super::names::{BUFFERS, COLUMNS, LENGTHS, Name, Operand, PARTS, PINNED, SHARED, Span, View};

/// Elements of most buffers.
const LEN: usize = LENGTHS[0];
/// Elements of most parts.
const PART: usize = LEN / 2;

/// How many elements an operand has.
#[derive(Clone, Copy, Debug)]
enum Form {
    Whole,
    /// Also none.
    Piece(usize),
    /// Rows and columns.
    Block(usize, usize),
}

impl Form {
    fn len(self) -> usize {
        match self {
            Form::Whole => LEN,
            Form::Piece(len) => len,
            Form::Block(rows, columns) => rows * columns,
        }
    }

    /// Columns for rows: where both sides are tiles, such a copy is refused.
    fn turned(self) -> Form {
        match self {
            Form::Block(rows, columns) => Form::Block(columns, rows),
            form => form,
        }
    }
}

fn form() -> impl Strategy<Value = Form> {
    prop_oneof![
        6 => Just(Form::Whole),
        3 => (1..=PART).prop_map(Form::Piece),
        4 => (1..=LEN / COLUMNS, 1..=COLUMNS).prop_map(|(rows, columns)| Form::Block(rows, columns)),
        1 => (0..=LEN).prop_map(Form::Piece),
    ]
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Buffer,
    Part,
    Shared,
    Pinned,
}

/// Memory of some kind, numbers that say where in it the elements are, and whether they are a tile
/// where they can be.
#[derive(Clone, Copy, Debug)]
struct Choice {
    kind: Kind,
    index: usize,
    at: [usize; 2],
    tile: bool,
}

impl Choice {
    fn operand(self, form: Form) -> Operand {
        let fits = match form {
            Form::Block(rows, _) if self.tile => rows <= PART / COLUMNS,
            form => form.len() <= PART,
        };
        let (of, len) = match self.kind {
            Kind::Part if fits => (Name::Part(self.part()), PART),
            Kind::Buffer | Kind::Part => (Name::Buffer(self.index % BUFFERS), LEN),
            Kind::Shared => (Name::Shared(self.index % SHARED), LEN),
            // One in three, where that has room for it.
            Kind::Pinned if fits && self.index.is_multiple_of(3) => {
                (Name::PinnedPart(self.part()), PART)
            }
            Kind::Pinned => (Name::Pinned(self.index % PINNED), LEN),
        };
        Operand { of, at: self.view(form, len) }
    }

    /// Mostly one of the first two, as there are no more for the most part.
    fn part(self) -> usize {
        if self.index == PARTS * BUFFERS - 1 { PARTS - 1 } else { self.index % (PARTS - 1) }
    }

    fn view(self, form: Form, len: usize) -> View {
        match form {
            Form::Block(rows, columns) if self.tile => View::Tile {
                rows: within(self.at[0], rows, len / COLUMNS),
                columns: within(self.at[1], columns, COLUMNS),
            },
            Form::Whole => View::All,
            form if form.len() == len => View::All,
            form => View::Slice(within(self.at[0], form.len(), len)),
        }
    }
}

/// So many of `of` indices, from where `at` says on.
fn within(at: usize, len: usize, of: usize) -> Span {
    Span::new(at % (of - len + 1), len)
}

fn choice(kind: impl Strategy<Value = Kind>, tiles: bool) -> impl Strategy<Value = Choice> {
    let tile = if tiles { prop::bool::weighted(0.7).boxed() } else { Just(false).boxed() };
    (kind, 0..PARTS * BUFFERS, [0..LEN, 0..COLUMNS], tile)
        .prop_map(|(kind, index, at, tile)| Choice { kind, index, at, tile })
}

fn source(shape: Shape, tiles: bool) -> impl Strategy<Value = Choice> {
    let shared = if shape.shared { 2 } else { 0 };
    let kind = prop_oneof![
        5 => Just(Kind::Buffer),
        2 => Just(Kind::Part),
        shared => Just(Kind::Shared),
    ];
    choice(kind, tiles)
}

fn target(tiles: bool) -> impl Strategy<Value = Choice> {
    choice(prop_oneof![5 => Just(Kind::Buffer), 2 => Just(Kind::Part)], tiles)
}

fn pinned(tiles: bool) -> impl Strategy<Value = Choice> {
    choice(Just(Kind::Pinned), tiles)
}

/// Elements on the device that are written.
pub(super) fn written(tiles: bool) -> impl Strategy<Value = Operand> {
    (form(), target(tiles)).prop_map(|(form, to)| to.operand(form))
}

/// Elements on the device that are read.
pub(super) fn to_read(shape: Shape) -> impl Strategy<Value = Operand> {
    (form(), source(shape, true)).prop_map(|(form, from)| from.operand(form))
}

/// Elements of pinned memory.
pub(super) fn on_host() -> impl Strategy<Value = Operand> {
    (form(), pinned(true)).prop_map(|(form, of)| of.operand(form))
}

/// Of other memory than `to`.
fn other(from: Operand, to: Operand) -> Operand {
    let of = match from.of {
        Name::Buffer(x) if from.of == to.of => Name::Buffer((x + 1) % BUFFERS),
        Name::Part(x) if from.of == to.of => Name::Part((x + 1) % (PARTS - 1)),
        of => of,
    };
    Operand { of, ..from }
}

/// A source and a target.
fn two(
    source: impl Strategy<Value = Choice>,
    target: impl Strategy<Value = Choice>,
) -> impl Strategy<Value = (Operand, Operand)> {
    let turned = prop_oneof![15 => Just(false), 1 => Just(true)];
    (form(), turned, source, target).prop_map(|(form, turned, from, to)| {
        let to = to.operand(form);
        let from = from.operand(if turned { form.turned() } else { form });
        (other(from, to), to)
    })
}

pub(super) fn on_device(shape: Shape, tiles: bool) -> impl Strategy<Value = (Operand, Operand)> {
    two(source(shape, tiles), target(tiles))
}

pub(super) fn up() -> impl Strategy<Value = (Operand, Operand)> {
    two(pinned(true), target(true))
}

pub(super) fn down(shape: Shape) -> impl Strategy<Value = (Operand, Operand)> {
    two(source(shape, true), pinned(true))
}

/// Two sources, which may be one, and a target.
pub(super) fn three(shape: Shape) -> impl Strategy<Value = [Operand; 3]> {
    let source = || source(shape, false);
    (form(), source(), source(), target(false)).prop_map(|(form, a, b, to)| {
        let to = to.operand(form);
        [other(a.operand(form), to), other(b.operand(form), to), to]
    })
}

/// Rows to read, and as many of one column to write.
pub(super) fn rows_and_column(shape: Shape) -> impl Strategy<Value = (Operand, Operand)> {
    (1..=LEN / COLUMNS, 1..=COLUMNS, source(shape, true), target(true)).prop_map(
        |(rows, columns, from, to)| {
            let tile = |choice: Choice, columns| {
                Choice { tile: true, ..choice }.operand(Form::Block(rows, columns))
            };
            let to = tile(to, 1);
            (other(tile(from, columns), to), to)
        },
    )
}

/// As [`rows_and_column`], of one buffer.
pub(super) fn rows_and_column_of_one() -> impl Strategy<Value = (Operand, Operand)> {
    let rows = (1..=LEN / COLUMNS, [0..LEN, 0..LEN]);
    let columns = (1..COLUMNS, [0..COLUMNS, 0..COLUMNS], 1..=COLUMNS);
    (0..BUFFERS, rows, columns).prop_map(|(x, (height, rows), (mid, at, width))| {
        let tile = |row, columns| {
            let rows = within(row, height, LEN / COLUMNS);
            Operand { of: Name::Buffer(x), at: View::Tile { rows, columns } }
        };
        let width = width.min(mid);
        let to = within(at[1], 1, COLUMNS - mid);
        let from = tile(rows[0], within(at[0], width, mid));
        (from, tile(rows[1], Span::new(mid + to.start, 1)))
    })
}

/// As many of `of` indices twice, with no index in both.
fn apart(mid: usize, len: usize, at: [usize; 2], turned: bool, of: usize) -> [Span; 2] {
    let mid = 1 + mid % (of - 1);
    let len = 1 + len % mid.min(of - mid);
    let first = within(at[0], len, mid);
    let second = within(at[1], len, of - mid);
    let second = Span::new(mid + second.start, len);
    if turned { [second, first] } else { [first, second] }
}

/// Two slices or tiles of one buffer with no element in common.
pub(super) fn of_one(tiles: bool) -> impl Strategy<Value = (Operand, Operand)> {
    let tile = if tiles { any::<bool>().boxed() } else { Just(false).boxed() };
    let by = any::<[bool; 2]>();
    (0..BUFFERS, tile, by, [0..LEN, 0..LEN], [0..LEN, 0..LEN], 0..LEN).prop_map(
        |(x, tile, [by_rows, turned], [mid, len], at, far)| {
            let rows = LEN / COLUMNS;
            let [from, to] = match (tile, by_rows) {
                (false, _) => apart(mid, len, at, turned, LEN).map(View::Slice),
                (true, true) => {
                    let columns = 1 + far % COLUMNS;
                    apart(mid, len, at, turned, rows)
                        .map(|rows| View::Tile { rows, columns: within(at[0], columns, COLUMNS) })
                }
                (true, false) => {
                    let height = 1 + far % rows;
                    let mut at_row = at.into_iter();
                    apart(mid, len, at, turned, COLUMNS).map(|columns| View::Tile {
                        rows: within(at_row.next().unwrap_or_default(), height, rows),
                        columns,
                    })
                }
            };
            let operand = |at| Operand { of: Name::Buffer(x), at };
            (operand(from), operand(to))
        },
    )
}
