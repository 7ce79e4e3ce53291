//! The memory that a program has, and what its calls are in the library's own types.

use headwater::{
    Completion, Device, DeviceBuffer, DevicePart, DeviceSlice, DeviceSliceMut, DeviceTile,
    DeviceTileMut, Error, HostBuffer, HostPart, HostSlice, HostSliceMut, HostTile, HostTileMut,
    IntoDeviceSlice, SharedBuffer,
};

use super::names::{COLUMNS, Span, View};

/// Memory that has a name.
pub(super) enum Held {
    Buffer(DeviceBuffer<u32>),
    Part(DevicePart<u32>),
    Shared(SharedBuffer<u32>),
    Pinned(HostBuffer<u32>),
    PinnedPart(HostPart<u32>),
}

/// Elements to read.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    Slice(DeviceSlice<'a, u32>),
    Tile(DeviceTile<'a, u32>),
    HostSlice(HostSlice<'a, u32>),
    HostTile(HostTile<'a, u32>),
}

/// Elements to write.
pub(super) enum Target<'a> {
    Slice(DeviceSliceMut<'a, u32>),
    Tile(DeviceTileMut<'a, u32>),
    HostSlice(HostSliceMut<'a, u32>),
    HostTile(HostTileMut<'a, u32>),
}

type Called = Result<Completion, Error>;

/// What `$then` comes to with the elements at `$at` of `$all` in pinned memory, also where it awaits.
macro_rules! with_host_target {
    ($all:expr, $at:expr, $target:ident => $then:expr) => {{
        let mut all = $all;
        match $at {
            View::All => {
                let $target = Target::HostSlice(all);
                $then
            }
            View::Slice(span) => {
                let $target = Target::HostSlice(all.slice_mut(span.range())?);
                $then
            }
            View::Tile { rows, columns } => {
                let mut matrix = all.as_matrix_mut(COLUMNS)?;
                let $target = Target::HostTile(matrix.tile_mut(rows.range(), columns.range())?);
                $then
            }
        }
    }};
}
pub(super) use with_host_target;

impl Held {
    pub(super) fn source(&self, at: View) -> Result<Source<'_>, Error> {
        let device = match self {
            Held::Buffer(buffer) => buffer.as_slice(),
            Held::Part(part) => part.as_slice(),
            Held::Shared(shared) => shared.as_slice(),
            Held::Pinned(buffer) => return host_source(buffer.as_slice(), at),
            Held::PinnedPart(part) => return host_source(part.as_slice(), at),
        };
        device_source(device, at)
    }

    /// Calls with the elements that `at` is.
    pub(super) fn target<T>(
        &mut self,
        at: View,
        call: impl FnOnce(Target<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut device = match self {
            Held::Buffer(buffer) => buffer.as_slice_mut(),
            Held::Part(part) => part.as_slice_mut(),
            Held::Pinned(buffer) => {
                return with_host_target!(buffer.as_slice_mut(), at, target => call(target));
            }
            Held::PinnedPart(part) => {
                return with_host_target!(part.as_slice_mut(), at, target => call(target));
            }
            Held::Shared(_) => unreachable!("no line writes shared memory"),
        };
        match at {
            View::All => call(Target::Slice(device)),
            View::Slice(span) => call(Target::Slice(device.slice_mut(span.range())?)),
            View::Tile { rows, columns } => {
                let mut matrix = device.as_matrix_mut(COLUMNS)?;
                call(Target::Tile(matrix.tile_mut(rows.range(), columns.range())?))
            }
        }
    }

    /// Calls with elements to read and others to write.
    pub(super) fn split(
        &mut self,
        from: View,
        to: View,
        call: impl FnOnce(Source<'_>, Target<'_>) -> Called,
    ) -> Called {
        let mut all = match self {
            Held::Buffer(buffer) => buffer.as_slice_mut(),
            Held::Part(part) => part.as_slice_mut(),
            _ => unreachable!("no line copies within it"),
        };
        match (from, to) {
            (View::Slice(from), View::Slice(to)) => {
                let mid = from.start.max(to.start);
                let (before, after) = all.split_at_mut(mid)?;
                let (source, mut target, from, to) = match from.is_before(to) {
                    true => (before, after, from.less(0), to.less(mid)),
                    false => (after, before, from.less(mid), to.less(0)),
                };
                let source = source.into_device_slice().slice(from)?;
                call(Source::Slice(source), Target::Slice(target.slice_mut(to)?))
            }
            (
                View::Tile { rows: from_rows, columns: from_columns },
                View::Tile { rows: to_rows, columns: to_columns },
            ) => {
                let mut matrix = all.as_matrix_mut(COLUMNS)?;
                let beside = |one: Span, other: Span| one.is_before(other) || other.is_before(one);
                let by_columns = beside(from_columns, to_columns);
                let (first, mid) = match by_columns {
                    true => (
                        from_columns.is_before(to_columns),
                        from_columns.start.max(to_columns.start),
                    ),
                    false => (from_rows.is_before(to_rows), from_rows.start.max(to_rows.start)),
                };
                let (before, after) = match by_columns {
                    true => matrix.split_columns_at_mut(mid)?,
                    false => matrix.split_rows_at_mut(mid)?,
                };
                let (source, mut target) = if first { (before, after) } else { (after, before) };
                // Where a side begins, in what it is of now.
                let [rows, columns] = if by_columns { [0, mid] } else { [mid, 0] };
                let origin = |is_after: bool| if is_after { [rows, columns] } else { [0, 0] };
                let ([r, c], [to_r, to_c]) = (origin(!first), origin(first));
                let source = source.tile(from_rows.less(r), from_columns.less(c))?;
                let target = target.tile_mut(to_rows.less(to_r), to_columns.less(to_c))?;
                call(Source::Tile(source), Target::Tile(target))
            }
            _ => unreachable!("{from:?} and {to:?} of one buffer"),
        }
    }
}

fn device_source(all: DeviceSlice<'_, u32>, at: View) -> Result<Source<'_>, Error> {
    Ok(match at {
        View::All => Source::Slice(all),
        View::Slice(span) => Source::Slice(all.slice(span.range())?),
        View::Tile { rows, columns } => {
            Source::Tile(all.as_matrix(COLUMNS)?.tile(rows.range(), columns.range())?)
        }
    })
}

fn host_source(all: HostSlice<'_, u32>, at: View) -> Result<Source<'_>, Error> {
    Ok(match at {
        View::All => Source::HostSlice(all),
        View::Slice(span) => Source::HostSlice(all.slice(span.range())?),
        View::Tile { rows, columns } => {
            Source::HostTile(all.as_matrix(COLUMNS)?.tile(rows.range(), columns.range())?)
        }
    })
}

impl<'a> Source<'a> {
    /// What kernels take.
    pub(super) fn in_one_piece(self) -> DeviceSlice<'a, u32> {
        match self {
            Source::Slice(slice) => slice,
            _ => unreachable!("no line has a kernel read this"),
        }
    }

    /// What kernels on rows take.
    pub(super) fn in_rows(self) -> DeviceTile<'a, u32> {
        match self {
            Source::Tile(tile) => tile,
            _ => unreachable!("no line has a kernel read this by rows"),
        }
    }

    /// Enqueues a copy to new pinned memory.
    pub(super) fn read_back(self, device: &Device) -> Result<HostBuffer<u32>, Error> {
        match self {
            Source::Slice(slice) => copied_out(device, slice.len(), |to| slice.copy_to(to)),
            Source::Tile(tile) => {
                copied_out(device, tile.rows() * tile.columns(), |to| tile.copy_to(to))
            }
            Source::HostSlice(_) | Source::HostTile(_) => unreachable!("it is on the host"),
        }
    }

    pub(super) fn to_vec(self) -> headwater::ToVec<'a, u32> {
        match self {
            Source::Slice(slice) => slice.to_vec(),
            Source::Tile(tile) => tile.to_vec(),
            Source::HostSlice(_) | Source::HostTile(_) => unreachable!("it is on the host"),
        }
    }
}

/// New pinned memory that `copy` has copied to.
pub(super) fn copied_out(
    device: &Device,
    len: usize,
    copy: impl FnOnce(&mut HostBuffer<u32>) -> Called,
) -> Result<HostBuffer<u32>, Error> {
    let mut staged = device.alloc_host(len)?;
    copy(&mut staged)?;
    Ok(staged)
}

impl<'a> Target<'a> {
    /// What kernels take.
    pub(super) fn in_one_piece(self) -> DeviceSliceMut<'a, u32> {
        match self {
            Target::Slice(slice) => slice,
            _ => unreachable!("no line has a kernel write this"),
        }
    }

    /// What kernels on rows take.
    pub(super) fn in_rows(self) -> DeviceTileMut<'a, u32> {
        match self {
            Target::Tile(tile) => tile,
            _ => unreachable!("no line has a kernel write this by rows"),
        }
    }

    pub(super) fn fill(self, value: u32) -> Called {
        match self {
            Target::Slice(mut slice) => slice.fill(value),
            Target::Tile(mut tile) => tile.fill(value),
            Target::HostSlice(_) | Target::HostTile(_) => unreachable!("it is on the host"),
        }
    }
}

/// By either of the two methods.
pub(super) fn copy(from: Source<'_>, to: Target<'_>, by_source: bool) -> Called {
    use {Source as From, Target as To};
    macro_rules! copied {
        ($from:expr, $to:expr) => {{
            let (from, mut to) = ($from, $to);
            if by_source { from.copy_to(&mut to) } else { to.copy_from(&from) }
        }};
    }
    match (from, to) {
        (From::Slice(from), To::Slice(to)) => copied!(from, to),
        (From::Slice(from), To::Tile(to)) => copied!(from, to),
        (From::Slice(from), To::HostSlice(to)) => copied!(from, to),
        (From::Slice(from), To::HostTile(to)) => copied!(from, to),
        (From::Tile(from), To::Slice(to)) => copied!(from, to),
        (From::Tile(from), To::Tile(to)) => copied!(from, to),
        (From::Tile(from), To::HostSlice(to)) => copied!(from, to),
        (From::Tile(from), To::HostTile(to)) => copied!(from, to),
        (From::HostSlice(from), To::Slice(to)) => copied!(from, to),
        (From::HostSlice(from), To::Tile(to)) => copied!(from, to),
        (From::HostTile(from), To::Slice(to)) => copied!(from, to),
        (From::HostTile(from), To::Tile(to)) => copied!(from, to),
        (From::HostSlice(_) | From::HostTile(_), To::HostSlice(_) | To::HostTile(_)) => {
            unreachable!("no line copies between pinned buffers")
        }
    }
}
