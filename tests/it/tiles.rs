//! Columns and tiles of matrices: the bytes that they are, and that disjoint ones are not ordered.

use headwater::{Completion, Device, DeviceBuffer, Error, KernelError, Result, TileMut, TileRef};

use crate::common::{
    any_device, device_buffer, elements, is_runnable, last_op, last_waits, own_device,
    pinned_buffer, run_to_end, sim, stepped, wait,
};
use crate::kernels::{copy_u32, increment, scale_rows, sum_rows, sum_rows_on_host};

/// A matrix of 8 columns and 6 rows that counts.
fn counted(device: &Device) -> DeviceBuffer<u32> {
    device_buffer(device, &(0..48).collect::<Vec<_>>())
}

#[test]
fn a_tile_is_read_row_after_row() -> Result<()> {
    let device = any_device();
    let x = counted(&device);
    let matrix = x.as_matrix(8)?;
    assert_eq!((matrix.rows(), matrix.columns(), matrix.stride()), (6, 8, 8));
    assert_eq!(wait(matrix.column(3)?.to_vec())?, [3, 11, 19, 27, 35, 43]);
    assert_eq!(wait(matrix.row(2)?.to_vec())?, (16..24).collect::<Vec<_>>());
    let tile = matrix.tile(1..3, 2..5)?;
    assert_eq!((tile.rows(), tile.columns(), tile.stride()), (2, 3, 8));
    assert_eq!(wait(tile.to_vec())?, [10, 11, 12, 18, 19, 20]);
    assert_eq!(wait(tile.tile(1.., 1..)?.to_vec())?, [19, 20]);
    assert_eq!(wait(matrix.tile(4.., ..)?.to_vec())?, (32..48).collect::<Vec<_>>());
    let inner = x.slice(8..24)?.as_matrix(2)?;
    assert_eq!(wait(inner.column(1)?.to_vec())?, [9, 11, 13, 15, 17, 19, 21, 23]);
    Ok(())
}

#[test]
fn a_matrix_is_cut_into_columns_and_rows_on_the_device_as_on_the_host() -> Result<()> {
    let device = any_device();
    let (mut x, mut pinned) = (counted(&device), pinned_buffer(&device, &[0u32; 12]));
    let matrix = x.as_matrix(8)?;
    let (left, right) = matrix.split_columns_at(7)?;
    assert_eq!((left.columns(), wait(right.to_vec())?), (7, vec![7, 15, 23, 31, 39, 47]));
    let (above, below) = matrix.split_rows_at(5)?;
    assert_eq!((above.rows(), wait(below.to_vec())?), (5, (40..48).collect()));
    let widths: Vec<_> = matrix.column_chunks(3)?.map(|piece| piece.columns()).collect();
    let heights: Vec<_> = matrix.row_chunks(4)?.map(|piece| piece.rows()).collect();
    assert_eq!((widths, heights), (vec![3, 3, 2], vec![4, 2]));
    for (i, mut rows) in x.as_matrix_mut(8)?.row_chunks_mut(4)?.enumerate() {
        rows.fill(i as u32)?;
    }
    assert_eq!(elements(&x), [[0; 32].as_slice(), &[1; 16]].concat());

    let mut matrix = pinned.as_matrix_mut(4)?;
    for (i, mut rows) in matrix.row_chunks_mut(2)?.enumerate() {
        rows.try_write()?.row_mut(0).fill(1 + i as u32);
    }
    for mut columns in matrix.column_chunks_mut(3)? {
        columns.try_write()?[(1, 0)] = 9;
    }
    let (left, right) = matrix.split_columns_at(3)?;
    assert_eq!(left.try_read()?.iter_rows().collect::<Vec<_>>(), [[1; 3], [9, 0, 0], [2; 3]]);
    assert_eq!(right.try_read()?.iter_rows().flatten().collect::<Vec<_>>(), [&1, &9, &2]);
    assert_eq!(matrix.split_rows_at(1)?.1.rows(), 2);
    assert_eq!((matrix.row_chunks(2)?.len(), matrix.column_chunks(1)?.len()), (2, 4));
    assert!(matches!(matrix.row_chunks(0), Err(Error::EmptyPieces)));
    Ok(())
}

#[test]
fn a_strided_copy_carries_the_rows_and_leaves_what_is_between_them() -> Result<()> {
    let device = any_device();
    let mut x = counted(&device);
    let mut y = device.zeros::<u32>(48)?;
    let mut pinned = pinned_buffer(&device, &[0u32; 24]);
    let up = pinned_buffer(&device, &(100..106).collect::<Vec<u32>>());

    // One packed side: a column there and back, and to the device.
    x.as_matrix(8)?.column(7)?.copy_to(&mut pinned.slice_mut(..6)?)?;
    x.as_matrix_mut(8)?.column_mut(0)?.copy_from(&up)?;
    // Two in rows, of different strides: tile to tile, on the device and to the host.
    y.as_matrix_mut(12)?.tile_mut(1..3, 4..8)?.copy_from(&x.as_matrix(8)?.tile(4.., ..4)?)?;
    x.as_matrix(8)?.tile(..3, 6..)?.copy_to(&mut pinned.as_matrix_mut(6)?.tile_mut(1.., 4..)?)?;

    let expected = |i: u32| if i.is_multiple_of(8) { 100 + i / 8 } else { i };
    assert_eq!(elements(&x), (0..48).map(expected).collect::<Vec<_>>());
    let mut expected = [0; 48];
    expected[16..20].copy_from_slice(&[104, 33, 34, 35]);
    expected[28..32].copy_from_slice(&[105, 41, 42, 43]);
    assert_eq!(elements(&y), expected);
    let read = wait(pinned.read())?;
    assert_eq!(read[..6], [7, 15, 23, 31, 39, 47]);
    assert_eq!(read[6..], [0, 0, 0, 0, 6, 7, 0, 0, 0, 0, 14, 15, 0, 0, 0, 0, 22, 23]);
    Ok(())
}

#[test]
fn columns_of_one_matrix_are_tasks_of_their_own_for_the_device() -> Result<()> {
    let device = stepped();
    let sim = sim(&device);
    let mut x = counted(&device);
    let source = counted(&device);
    let mut matrix = x.as_matrix_mut(8)?;
    for (j, mut column) in matrix.column_chunks_mut(1)?.enumerate() {
        let stream = device.stream();
        stream.in_scope(|| column.copy_from(&source.slice(6 * j..6 * (j + 1))?))?;
        assert!(!last_waits(sim), "column {j}");
    }
    device.stream().in_scope(|| increment(matrix.row_mut(3)?))?;
    assert!(last_waits(sim), "a row crosses every column");
    let row = last_op(sim).id;
    device.stream().in_scope(|| matrix.tile_mut(4.., 2..4)?.fill(0))?;
    assert!(last_waits(sim), "it touches two of the columns");
    for _ in 0..7 {
        sim.step();
        assert!(!is_runnable(sim, row));
    }
    sim.step();
    assert!(is_runnable(sim, row));
    run_to_end(&device);
    Ok(())
}

#[test]
fn tiles_of_one_matrix_that_meet_are_not_ordered() -> Result<()> {
    let device = stepped();
    let sim = sim(&device);
    let mut x = counted(&device);
    let mut matrix = x.as_matrix_mut(8)?;
    let tiles: Vec<_> = matrix.tiles_mut(4, 3)?.collect();
    let shapes = tiles.iter().map(|tile| (tile.rows(), tile.columns()));
    assert_eq!(shapes.collect::<Vec<_>>(), [(4, 3), (4, 3), (4, 2), (2, 3), (2, 3), (2, 2)]);
    for (value, mut tile) in (100..).zip(tiles) {
        device.stream().in_scope(|| tile.fill(value))?;
        assert!(!last_waits(sim), "tile {value}");
    }
    device.stream().in_scope(|| matrix.tile_mut(3..5, 2..4)?.fill(7))?;
    assert!(last_waits(sim), "it touches four");
    let (mut left, mut right) = matrix.split_columns_at_mut(4)?;
    device.stream().in_scope(|| left.copy_from(&right))?;
    device.stream().in_scope(|| right.fill(1))?;
    assert!(last_waits(sim), "what is copied from it");
    let (top, mut bottom) = matrix.split_rows_at_mut(3)?;
    bottom.copy_from(&top)?;
    let row = [101, 101, 102, 102, 1, 1, 1, 1];
    let all = elements(&x);
    assert_eq!((&all[..8], &all[24..32]), (&row[..], &row[..]));
    run_to_end(&device);
    Ok(())
}

#[test]
fn a_fill_of_a_tile_touches_nothing_else() -> Result<()> {
    let device = own_device();
    let fills = || device.driver_calls().map_or(0, |calls| calls.fills);
    let mut x = counted(&device);
    let before = fills();
    x.as_matrix_mut(8)?.column_mut(1)?.fill(7)?;
    x.as_matrix_mut(8)?.tile_mut(4.., 6..)?.fill(8)?;
    assert_eq!(fills() - before, 2);
    let expected = |i: u32| match (i / 8, i % 8) {
        (_, 1) => 7,
        (4.., 6..) => 8,
        _ => i,
    };
    assert_eq!(elements(&x), (0..48).map(expected).collect::<Vec<_>>());

    // A value that does not repeat: a fill for each half of it and each of the fewer lines.
    let mut y = device.zeros::<u64>(48)?;
    let before = fills();
    y.as_matrix_mut(8)?.tile_mut(1..3, 1..7)?.fill(1)?;
    assert_eq!(fills() - before, 4);
    let expected = |i| u64::from(matches!((i / 8, i % 8), (1..3, 1..7)));
    assert_eq!(elements(&y), (0..48).map(expected).collect::<Vec<_>>());
    let mut wide = device.zeros::<u64>(400)?;
    let refused = wide.as_matrix_mut(20)?.tile_mut(..9, ..9)?.fill(1);
    assert!(matches!(refused, Err(Error::FillTooWide { calls: 18, most: 16, .. })), "{refused:?}");
    Ok(())
}

#[test]
fn guards_of_columns_of_pinned_memory_are_there_together_and_beside_copies() -> Result<()> {
    let device = stepped();
    let source = counted(&device);
    let mut pinned = pinned_buffer(&device, &[0u32; 24]);
    let mut matrix = pinned.as_matrix_mut(4)?; // 6 rows
    let mut columns = matrix.column_chunks_mut(1)?;
    let [mut a, mut b, mut c] =
        [columns.next(), columns.next(), columns.next()].map(Option::unwrap);
    c.copy_from(&source.as_matrix(8)?.column(5)?)?;
    assert!(matches!(c.try_read(), Err(Error::InFlight { .. })));
    let (mut first, mut second) = (wait(a.write())?, b.try_write()?);
    first.iter_rows_mut().flatten().for_each(|x| *x = 1);
    second[(3, 0)] = 2;
    sim(&device).run_all();
    assert_eq!(first[(5, 0)], 1);
    let third = wait(c.read())?;
    assert_eq!(third.iter_rows().flatten().copied().collect::<Vec<_>>(), [5, 13, 21, 29, 37, 45]);
    let expected = |i: u32| match (i / 4, i % 4) {
        (_, 0) => 1,
        (3, 1) => 2,
        (row, 2) => 5 + 8 * row,
        _ => 0,
    };
    assert_eq!(*pinned.try_read()?, *(0..24).map(expected).collect::<Vec<_>>());
    run_to_end(&device);
    Ok(())
}

#[test]
fn writing_a_column_on_the_host_defines_that_column_and_no_more() -> Result<()> {
    let device = any_device();
    drop(pinned_buffer(&device, &[0xDEAD_BEEF_u32; 24]));
    let mut pinned = device.alloc_host::<u32>(24)?;
    pinned.as_matrix_mut(4)?.column_mut(2)?.blocking_write()?[(1, 0)] = 7;
    let column = pinned.as_matrix(4)?.column(2)?.try_read()?;
    assert_eq!(column.iter_rows().flatten().copied().collect::<Vec<_>>(), [0, 7, 0, 0, 0, 0]);
    let next = pinned.as_matrix(4)?.column(3)?.try_read();
    assert!(matches!(next, Err(Error::Uninitialised { .. })), "{next:?}");
    let all = pinned.try_write()?.to_vec();
    assert_eq!(all.iter().position(|x| *x != 0), Some(6), "{all:?}");
    Ok(())
}

#[test]
fn what_is_written_of_a_matrix_can_be_read_and_no_more() -> Result<()> {
    let device = any_device();
    let mut x = device.alloc::<u32>(48)?;
    x.as_matrix_mut(8)?.tile_mut(.., 2..4)?.fill(3)?;
    assert_eq!(wait(x.as_matrix(8)?.column(3)?.to_vec())?, [3; 6]);
    for columns in [1..3, 3..5] {
        let read = wait(x.as_matrix(8)?.tile(.., columns)?.to_vec());
        assert!(matches!(read, Err(Error::Uninitialised { .. })), "{read:?}");
    }
    Ok(())
}

#[test]
fn shapes_that_differ_are_refused_and_packed_elements_need_only_be_as_many() -> Result<()> {
    let device = any_device();
    let x = counted(&device);
    let mut y = device.zeros::<u32>(48)?;
    let refused =
        y.as_matrix_mut(8)?.tile_mut(..3, ..4)?.copy_from(&x.as_matrix(8)?.tile(..4, ..3)?);
    let Err(Error::ShapeMismatch { source_shape, destination_shape, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!((source_shape, destination_shape), ([1, 4, 3], [1, 3, 4]));
    let refused = y.as_matrix_mut(8)?.column_mut(0)?.copy_from(&x.slice(..5)?);
    let Err(Error::LengthMismatch { source_len, destination_len, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!((source_len, destination_len), (5, 6));
    y.as_matrix_mut(8)?.tile_mut(..3, ..4)?.copy_from(&x.slice(..12)?)?;
    assert_eq!(elements(&y)[16..21], [8, 9, 10, 11, 0]);
    Ok(())
}

#[test]
fn what_is_no_matrix_or_not_in_it_is_refused() -> Result<()> {
    let device = own_device();
    let mut x = counted(&device);
    let before = device.driver_calls();
    assert!(matches!(x.as_matrix(7), Err(Error::NotRows { len: 48, columns: 7, .. })));
    assert!(matches!(x.as_matrix_mut(0), Err(Error::NotRows { len: 48, columns: 0, .. })));
    let mut matrix = x.as_matrix_mut(8)?;
    let refused = [
        matrix.column(8).map(drop),
        matrix.row(6).map(drop),
        matrix.row_mut(usize::MAX).map(drop),
        matrix.tile(5..7, ..).map(drop),
        matrix.tile_mut(.., 8..9).map(drop),
        matrix.split_columns_at_mut(9).map(drop),
        matrix.split_rows_at_mut(7).map(drop),
    ];
    for refused in refused {
        assert!(matches!(refused, Err(Error::OutOfRange { .. })), "{refused:?}");
    }
    assert!(matches!(matrix.column_chunks_mut(0), Err(Error::EmptyPieces)));
    assert!(matches!(matrix.tiles(0, 1), Err(Error::EmptyPieces)));
    assert_eq!(device.driver_calls(), before);
    Ok(())
}

#[test]
fn a_tile_without_elements_is_nothing_to_do() -> Result<()> {
    let device = own_device();
    let mut x = device.alloc::<u32>(48)?;
    let before = device.driver_calls();
    let mut none = x.as_matrix_mut(8)?;
    let mut none = none.tile_mut(6.., 3..5)?;
    assert!(none.is_empty() && none.fill(1)?.is_finished()?);
    assert_eq!((none.tiles_mut(1, 1)?.count(), wait(none.to_vec())?), (0, vec![]));
    assert!(device.alloc::<u32>(0)?.as_matrix(5)?.row(0).is_err());
    let (mut none, mut pinned) = (device.alloc::<u32>(0)?, device.alloc_host::<u32>(0)?);
    let (mut none, mut pinned) =
        (none.as_matrix_mut(usize::MAX)?, pinned.as_matrix_mut(usize::MAX)?);
    none.fill(1)?;
    none.column_mut(usize::MAX - 1)?.copy_to(&mut pinned.column_mut(3)?)?;
    none.copy_from(&pinned)?;
    assert_eq!(pinned.try_write()?.rows(), 0);
    assert_eq!(none.tiles(usize::MAX, usize::MAX)?.chain(none.column_chunks(1)?).count(), 0);
    assert_eq!(device.driver_calls(), before);
    Ok(())
}

#[test]
fn rows_further_apart_than_the_driver_takes_are_refused_and_one_by_one_are_not() -> Result<()> {
    let device = own_device();
    let stride = 1 << 31;
    let mut x = device.alloc::<u8>(2 * stride)?;
    let before = device.driver_calls();
    let mut matrix = x.as_matrix_mut(stride)?;
    let mut pinned = device.alloc_host::<u8>(4)?;
    let is_refused = |result: Result<Completion>| match result {
        Err(Error::RowsTooFarApart { pitch, most, .. }) => (pitch, most) == (stride, stride - 1),
        _ => false,
    };
    assert!(is_refused(matrix.tile_mut(.., ..2)?.fill(1)));
    pinned.try_write()?.fill(7);
    assert!(is_refused(matrix.tile_mut(.., ..2)?.copy_from(&pinned)));
    let calls = device.driver_calls().zip(before).map(|(now, before)| now.since(&before));
    assert!(calls.is_some_and(|calls| (calls.copies, calls.fills) == (0, 0)));
    Ok(())
}

#[test]
fn a_row_is_in_one_piece_and_goes_where_slices_go() -> Result<()> {
    let device = any_device();
    let mut x = counted(&device);
    let source = counted(&device);
    let mut matrix = x.as_matrix_mut(8)?;
    copy_u32(source.as_matrix(8)?.row(5)?, matrix.row_mut(0)?)?;
    increment(matrix.tile_mut(1..2, 4..)?.row_mut(0)?)?;
    assert_eq!(
        elements(&x)[..17],
        [40, 41, 42, 43, 44, 45, 46, 47, 8, 9, 10, 11, 13, 14, 15, 16, 16]
    );
    Ok(())
}

#[test]
fn a_kernel_is_given_columns_and_touches_no_others() -> Result<()> {
    let device = any_device();
    let mut x = device_buffer(&device, &(0..48).map(|i| i as f32).collect::<Vec<_>>());
    let mut matrix = x.as_matrix_mut(8)?;
    scale_rows(matrix.column_mut(3)?, -1.0)?;
    scale_rows(&mut matrix.tile_mut(4.., 6..)?, 2.0)?;
    let expected = |i| match (i / 8, i % 8) {
        (_, 3) => -(i as f32),
        (4.., 6..) => 2.0 * i as f32,
        _ => i as f32,
    };
    assert_eq!(elements(&x), (0..48).map(expected).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn a_kernel_reads_some_columns_and_writes_another_of_the_same_matrix() -> Result<()> {
    let device = any_device();
    let mut x = device.alloc::<u32>(48)?;
    let mut matrix = x.as_matrix_mut(8)?;
    let (mut read, mut rest) = matrix.split_columns_at_mut(3)?;
    read.copy_from(&device_buffer(&device, &(0..18).collect::<Vec<_>>()))?;
    device.stream().in_scope(|| sum_rows(&read, rest.column_mut(4)?))?; // which nothing has written
    device.stream().in_scope(|| sum_rows(read.as_tile(), rest.column_mut(0)?))?;
    let sums: Vec<_> = (0..6).map(|row| 9 * row + 3).collect();
    assert_eq!(wait(matrix.column(7)?.to_vec())?, sums);
    assert_eq!(wait(matrix.column(3)?.to_vec())?, sums);
    assert_eq!(wait(matrix.tile(1..2, ..3)?.to_vec())?, [3, 4, 5]);
    assert!(matches!(wait(matrix.column(4)?.to_vec()), Err(Error::Uninitialised { .. })));
    Ok(())
}

#[test]
fn kernels_on_columns_of_one_matrix_are_not_ordered() -> Result<()> {
    let device = stepped();
    let sim = sim(&device);
    let mut x = device_buffer(&device, &[1f32; 48]);
    let mut matrix = x.as_matrix_mut(8)?;
    for column in matrix.column_chunks_mut(2)? {
        device.stream().in_scope(|| scale_rows(column, 2.0))?;
        assert!(!last_waits(sim));
    }
    device.stream().in_scope(|| scale_rows(matrix.tile_mut(.., 1..3)?, 2.0))?;
    assert!(last_waits(sim), "it touches two");
    run_to_end(&device);
    Ok(())
}

#[test]
fn what_a_kernel_requires_of_tiles_is_told_with_what_was_given() -> Result<()> {
    let device = own_device();
    let mut x = counted(&device);
    let y = counted(&device);
    let before = device.driver_calls();
    let mut matrix = x.as_matrix_mut(8)?;
    let refused = sum_rows(y.as_matrix(8)?.tile(..5, 1..)?, matrix.column_mut(0)?);
    let Err(Error::Kernel(KernelError::Requirement { condition, given, .. })) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(condition, "from.rows() == to.rows()");
    let [from, to] = [[5, 7, 8], [6, 1, 8]];
    let names = ["rows()", "columns()", "stride()"];
    let sizes = |of: &str, sizes: [usize; 3]| {
        names.map(|name| format!("{of}.{name}")).into_iter().zip(sizes).collect::<Vec<_>>()
    };
    let expected = [sizes("from", from), sizes("to", to)].concat();
    let given: Vec<_> = given.into_iter().map(|(name, size)| (name.to_owned(), size)).collect();
    assert_eq!(given, expected);
    let refused = sum_rows(y.as_matrix(8)?, matrix.tile_mut(.., ..2)?);
    assert!(matches!(
        refused,
        Err(Error::Kernel(KernelError::Requirement { condition: "to.columns() == 1", .. }))
    ));
    let nothing = sum_rows(y.as_matrix(8)?.tile(6.., ..)?, matrix.tile_mut(6.., ..1)?)?;
    assert!(nothing.is_finished()?);
    assert_eq!(device.driver_calls(), before);
    Ok(())
}

#[test]
fn ordinary_memory_is_a_matrix_for_a_twin() -> Result<()> {
    let from: Vec<u32> = (0..12).collect();
    let mut to = [9; 6];
    sum_rows_on_host(TileRef::new(&from, 4)?, TileMut::new(&mut to, 2)?);
    assert_eq!(to, [6, 9, 22, 9, 38, 9]);
    assert!(matches!(TileRef::new(&from, 5), Err(Error::NotRows { len: 12, columns: 5, .. })));
    assert!(matches!(TileMut::new(&mut to, 0), Err(Error::NotRows { .. })));
    Ok(())
}
