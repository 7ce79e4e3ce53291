//! Blocks of volumes: what touches disjoint ones is not ordered, and what is between their rows is not
//! touched.

use headwater::sim::{DriverCall, Fault};
use headwater::{Device, DeviceBuffer, DriverError, Error, Result};

use crate::common::{
    any_device, device_buffer, elements, last_waits, own_device, pinned_buffer, run_to_end, sim,
    stepped, wait,
};
use crate::kernels::scale_rows;

/// A volume of 4 planes of 3 rows of 5, that counts.
fn counted(device: &Device) -> DeviceBuffer<u32> {
    device_buffer(device, &(0..60).collect::<Vec<_>>())
}

#[test]
fn blocks_of_one_volume_are_ordered_where_they_have_an_element_in_common() -> Result<()> {
    let device = stepped();
    let sim = sim(&device);
    let (mut x, source) = (counted(&device), device_buffer(&device, &[7u32; 60]));
    let mut volume = x.as_volume_mut(3, 5)?;
    let mut copy = |planes, rows, columns| {
        device.stream().in_scope(|| {
            let mut block = volume.block_mut(planes, rows, columns)?;
            let len = block.planes() * block.rows() * block.columns();
            block.copy_from(&source.slice(..len)?)
        })?;
        Ok::<_, Error>(last_waits(sim))
    };
    assert!(!copy(1..3, 0..2, 1..3)?);
    assert!(!copy(1..3, 0..2, 3..5)?, "beside it in each row");
    assert!(!copy(1..3, 2..3, 0..5)?, "below it in each plane");
    assert!(!copy(1..3, 0..2, 0..1)?, "on its other side");
    assert!(!copy(3..4, 0..3, 0..5)?, "in another plane");
    assert!(copy(2..3, 1..2, 2..4)?, "elements of the first two");
    assert!(copy(0..4, 0..1, 4..5)?, "an element of the second in each of two planes");
    assert!(!copy(0..1, 1..3, 0..5)?, "in a plane that nobody else is in");
    run_to_end(&device);
    Ok(())
}

#[test]
fn what_is_between_the_rows_of_a_block_is_as_it_was() -> Result<()> {
    let device = any_device();
    let mut x = device.alloc::<u32>(60)?;
    let seven = device_buffer(&device, &[7u32; 8]);
    x.as_volume_mut(3, 5)?.block_mut(1..3, 1.., 1..3)?.copy_from(&seven)?;
    let volume = x.as_volume(3, 5)?;
    let written = volume.block(1..3, 1.., 1..3)?;
    let mut out = device.alloc_host::<u32>(8)?;
    written.copy_to(&mut out)?;
    assert_eq!(wait(out.read())?[..], [7; 8]);
    // One column, one row or one plane more is not written.
    for more in [
        volume.block(1..3, 1.., 1..4)?,
        volume.block(1..3, .., 1..3)?,
        volume.block(1.., 1.., 1..3)?,
    ] {
        let mut out = device.alloc::<u32>(more.planes() * more.rows() * more.columns())?;
        let refused = more.copy_to(&mut out).map(drop);
        assert!(matches!(refused, Err(Error::Uninitialised { .. })), "{more:?}: {refused:?}");
    }
    Ok(())
}

#[test]
fn planes_are_matrices_for_kernels_and_for_guards() -> Result<()> {
    let device = any_device();
    let mut x = device_buffer(&device, &[1.0f32; 24]);
    let mut volume = x.as_volume_mut(3, 4)?;
    scale_rows(volume.plane_mut(1)?, 2.0)?;
    let (mut first, mut second) = volume.split_planes_at_mut(1)?;
    scale_rows(first.block_mut(.., 1..2, ..2)?.plane_mut(0)?, 3.0)?;
    scale_rows(second.plane_mut(0)?.column_mut(3)?, 4.0)?;
    let mut expected = [[1.0; 12], [2.0; 12]].concat();
    expected[4..6].fill(3.0);
    for i in [15, 19, 23] {
        expected[i] = 8.0;
    }
    assert_eq!(elements(&x), expected);

    let mut host = pinned_buffer(&device, &(0..24).collect::<Vec<u32>>());
    let mut volume = host.as_volume_mut(3, 4)?;
    wait(volume.plane_mut(1)?.write())?[(2, 3)] = 99;
    let block = volume.block(1.., 1.., 2..)?;
    let rows: Vec<_> = wait(block.plane(0)?.read())?.iter_rows().map(<[u32]>::to_vec).collect();
    assert_eq!(rows, [[18, 19], [22, 99]]);
    Ok(())
}

#[test]
fn a_volume_whose_copy_is_refused_is_as_it_was() -> Result<()> {
    let device = stepped();
    let sim = sim(&device);
    let (mut x, source) = (counted(&device), device_buffer(&device, &[7u32; 8]));
    sim.inject(Fault::of_call(DriverCall::CopyPlanes, DriverError::INVALID_VALUE));
    let mut copy = || x.as_volume_mut(3, 5)?.block_mut(1..3, 1.., 1..3)?.copy_from(&source);
    let refused = device.stream().in_scope(&mut copy).map(drop);
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    device.stream().in_scope(&mut copy)?;
    assert!(!last_waits(sim), "for one that was not made");
    assert_eq!(elements(&x)[20..30], [20, 7, 7, 23, 24, 25, 7, 7, 28, 29]);
    run_to_end(&device);
    Ok(())
}

#[test]
fn planes_can_be_further_apart_than_rows_may() -> Result<()> {
    let device = own_device();
    if !device.info().simulated {
        return Ok(()); // 8 GiB
    }
    let mut x = device.alloc::<u8>(1 << 33)?;
    let source = device_buffer(&device, &[7u8; 16]);
    let mut volume = x.as_volume_mut(1 << 16, 1 << 16)?;
    let before = device.driver_calls().expect("counted").copies;
    volume.block_mut(.., ..2, ..4)?.copy_from(&source)?;
    assert_eq!(device.driver_calls().expect("counted").copies - before, 1);
    // One row of each is a matrix of rows that far apart.
    let refused = volume.block_mut(.., ..1, ..4)?.copy_from(&source.slice(..8)?).map(drop);
    assert!(
        matches!(refused, Err(Error::RowsTooFarApart { pitch, .. }) if pitch == 1 << 32),
        "{refused:?}"
    );
    volume.plane_mut(1)?.row_mut(0)?.slice_mut(..4)?.copy_from(&source.slice(..4)?)?;
    Ok(())
}
