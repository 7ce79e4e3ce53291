//! Pinned buffers that grow and shrink.

use super::*;

#[test]
fn a_buffer_grows_in_place_while_its_block_has_room_and_keeps_its_elements() -> Result<()> {
    let device = stepped();
    let mut host = pinned_buffer(&device, &[7u8; 33 * KIB]);
    let at = host.try_read()?.as_ptr();
    assert_eq!(states(&device).0, 40 * KIB);
    wait(host.resize(40 * KIB))?;
    assert_eq!((host.len(), calls(&device).host_allocs), (40 * KIB, 1));
    assert!(matches!(host.try_read(), Err(Error::Uninitialised { .. })), "the new ones");
    assert_eq!(*host.slice(..33 * KIB)?.try_read()?, [7; 33 * KIB]);
    let written = host.try_write()?;
    assert_eq!((written.as_ptr(), written[33 * KIB - 1], written[33 * KIB]), (at, 7, 0));
    Ok(())
}

#[test]
fn a_buffer_that_outgrows_its_block_moves_with_what_was_written() -> Result<()> {
    let device = stepped();
    let mut host = device.alloc_host_with::<u8>(4 * KIB, write_combined())?;
    host.slice_mut(100..200)?.try_write()?.fill(3);
    wait(host.resize(64 * KIB))?;
    assert_eq!(states(&device), (64 * KIB, 0, 4 * KIB));
    assert_eq!(*host.slice(100..200)?.try_read()?, [3; 100]);
    for unwritten in [0..100, 200..4 * KIB, 4 * KIB..64 * KIB] {
        let first = unwritten.start;
        let read = host.slice(unwritten)?.try_read().map(drop);
        assert!(matches!(read, Err(Error::Uninitialised { .. })), "from {first}");
    }
    let mut x = device.alloc::<u8>(100)?;
    x.copy_from(&host.slice(100..200)?)?;
    assert_eq!(elements(&x), [3; 100]);
    drop(host);
    drop(device.alloc_host_with::<u8>(64 * KIB, write_combined())?);
    assert_eq!(calls(&device).host_allocs, 3, "it is write-combined still; to_vec made the third");
    Ok(())
}

#[test]
fn a_buffer_can_shrink_come_to_nothing_and_grow_again() -> Result<()> {
    let device = stepped();
    let mut host = pinned_buffer(&device, &[5u16; 1000]);
    wait(host.resize(10))?;
    assert_eq!(*host.try_read()?, [5; 10]);
    wait(host.resize(20))?;
    assert!(host.try_read().is_err(), "what was let go of is not written any more");
    wait(host.resize(0))?;
    assert!(host.is_empty() && host.try_read()?.is_empty());
    wait(host.resize(3))?;
    assert_eq!(*host.try_write()?, [0; 3]);
    assert!(matches!(wait(host.resize(usize::MAX)), Err(Error::TooLarge { .. })));
    assert_eq!(*host.try_read()?, [0; 3]);
    Ok(())
}

#[test]
fn a_resize_awaits_what_touches_the_buffer_and_dropped_leaves_it_as_it_was() -> Result<()> {
    let device = stepped();
    let mut host = in_flight(&device, 100)?;
    let mut resize = host.resize(100 * KIB);
    assert!(poll_once(&mut resize).is_pending());
    drop(resize);
    assert_eq!((host.len(), states(&device).0), (100, 4 * KIB));
    assert!(matches!(host.try_read(), Err(Error::InFlight { .. })));
    run_to_end(&device);
    assert_eq!(*host.try_read()?, [0; 100]);
    let mut resize = host.resize(100 * KIB);
    assert!(poll_once(&mut resize).is_ready());
    assert_eq!(host.slice(..100)?.try_read()?.len(), 100);
    std::mem::forget(host.resize(1));
    assert_eq!(host.len(), 100 * KIB);
    Ok(())
}

#[test]
fn a_resize_that_is_refused_leaves_the_buffer_as_it_was() -> Result<()> {
    let device = limited(64 * KIB);
    let mut host = pinned_buffer(&device, &[9u8; 16 * KIB]);
    assert!(matches!(wait(host.resize(56 * KIB)), Err(Error::OutOfPinnedMemory { .. })));
    assert_eq!((host.len(), host.try_read()?[16 * KIB - 1]), (16 * KIB, 9));
    assert_eq!(states(&device).0, 16 * KIB);
    Ok(())
}

#[test]
fn a_registered_buffer_that_grows_moves_and_one_that_shrinks_stays() -> Result<()> {
    let device = stepped();
    let (mut host, at) = registered(&device, LARGE);
    wait(host.resize(100))?;
    let back = wait(host.into_vec()).map_err(|e| e.error)?;
    assert_eq!((back.as_ptr(), back.len(), back[99]), (at, 100, 99));
    let (mut host, _) = registered(&device, LARGE);
    wait(host.resize(LARGE + 1))?;
    until("the Vec is let go", || device.pinned_memory().registered == 0);
    assert_eq!(host.slice(..LARGE)?.try_read()?[LARGE - 1], LARGE as u32 - 1);
    Ok(())
}
