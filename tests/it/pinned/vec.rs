//! A `Vec` that becomes a pinned buffer, and comes back.

use super::*;

#[test]
fn a_small_vec_is_copied_and_comes_back_equal() -> Result<()> {
    let device = stepped();
    let elements: Vec<u32> = (0..1000).collect();
    let buffer = wait(HostBuffer::from_vec(&device, elements.clone())).map_err(|e| e.error)?;
    assert_eq!(*buffer.try_read()?, elements);
    assert_eq!(wait(buffer.into_vec()).map_err(|e| e.error)?, elements);
    assert_eq!((calls(&device).host_registers, device.pinned_memory().registered), (0, 0));
    assert_eq!(states(&device).0, 0);
    Ok(())
}

#[test]
fn vecs_without_bytes_come_back_as_long_as_they_were() -> Result<()> {
    let device = stepped();
    let buffer = wait(HostBuffer::from_vec(&device, Vec::<u32>::new())).map_err(|e| e.error)?;
    assert_eq!(wait(buffer.into_vec()).map_err(|e| e.error)?, []);
    let buffer = wait(HostBuffer::from_vec(&device, vec![(); 7])).map_err(|e| e.error)?;
    assert_eq!(wait(buffer.into_vec()).map_err(|e| e.error)?, [(); 7]);
    Ok(())
}

#[test]
fn a_large_vec_is_registered_where_it_is_and_comes_back_itself() -> Result<()> {
    let device = logged();
    let (mut buffer, at) = registered(&device, LARGE);
    assert_eq!(device.pinned_memory().registered, MIB);
    assert_eq!((buffer.len(), buffer.try_read()?[1000]), (LARGE, 1000));
    buffer.try_write()?[5] = 55;
    let mut x = device.alloc::<u32>(LARGE)?;
    x.copy_from(&buffer)?;
    increment(&mut x)?;
    x.copy_to(&mut buffer)?;
    let mut back = buffer.into_vec();
    assert!(poll_once(&mut back).is_pending(), "a copy is still to write it");
    assert_eq!(calls(&device).host_unregisters, 0);
    run_to_end(&device);
    let back = wait(back).map_err(|e| e.error)?;
    assert_eq!((back.as_ptr(), back.len()), (at, LARGE));
    assert_eq!((back[5], back[1000]), (56, 1001));
    let stats = device.pinned_memory();
    assert_eq!((stats.registered, stats.in_use, calls(&device).host_allocs), (0, 0, 0));
    assert_eq!(sim(&device).live_pinned_bytes(), 0);
    let log = device.call_log().expect("logged");
    let own =
        |step: &Step| matches!(step, Step::HostRegistered { .. } | Step::HostUnregistered { .. });
    let threads: Vec<_> = log.iter().filter(|l| own(&l.step)).map(|l| l.thread).collect();
    assert!(threads.len() == 2 && !threads.contains(&thread::current().id()), "{threads:?}");
    Ok(())
}

#[test]
fn a_vec_is_not_given_back_while_a_copy_still_reads_it() -> Result<()> {
    let device = stepped();
    let small = wait(HostBuffer::from_vec(&device, vec![9u32; 64])).map_err(|e| e.error)?;
    for buffer in [registered(&device, LARGE).0, small] {
        let mut x = device.alloc::<u32>(buffer.len())?;
        x.copy_from(&buffer)?;
        let mut back = buffer.into_vec();
        assert!(poll_once(&mut back).is_pending());
        run_to_end(&device);
        assert_eq!(wait(back).map_err(|e| e.error)?[9], 9);
        assert_eq!(tenth(&x)?, 9);
    }
    Ok(())
}

#[test]
fn a_registered_buffer_that_is_dropped_is_unregistered_after_its_last_copy() -> Result<()> {
    let device = stepped();
    let (buffer, _) = registered(&device, LARGE);
    let mut x = device.alloc::<u32>(LARGE)?;
    let other = device.stream();
    x.copy_from(&buffer)?;
    let mut y = device.alloc::<u32>(LARGE)?;
    other.in_scope(|| y.copy_from(&buffer))?;
    drop(buffer);
    wait(device.trim_pinned(0))?; // the thread has been there
    sim(&device).step();
    assert_eq!((calls(&device).host_unregisters, device.pinned_memory().registered), (0, MIB));
    run_to_end(&device);
    until("it is unregistered", || device.pinned_memory().registered == 0);
    assert_eq!((tenth(&x)?, tenth(&y)?), (9, 9));
    assert_eq!(sim(&device).violations(), []);
    Ok(())
}

#[test]
fn a_vec_whose_future_is_dropped_is_unregistered_and_dropped() {
    let device = stepped();
    for polls in 0..3 {
        let mut future = HostBuffer::from_vec(&device, vec![1u32; LARGE]);
        if polls == 1 {
            let _ = poll_once(&mut future);
        } else if polls == 2 {
            until("it is registered", || device.pinned_memory().registered == MIB);
        }
        drop(future);
        until("it is let go", || device.pinned_memory().registered == 0);
        until("as often as it was registered", || {
            calls(&device).host_unregisters == calls(&device).host_registers
        });
    }
    let (buffer, _) = registered(&device, LARGE);
    drop(buffer.into_vec());
    until("it is let go", || device.pinned_memory().registered == 0);
    let (buffer, _) = registered(&device, LARGE);
    let mut back = buffer.into_vec();
    let _ = poll_once(&mut back);
    drop(back);
    until("it is let go", || device.pinned_memory().registered == 0);
    assert_eq!(sim(&device).live_pinned_bytes(), 0);
}

#[test]
fn a_buffer_that_is_forgotten_stays_and_its_device_closes_without_it() -> Result<()> {
    let device = stepped();
    let simulator = sim(&device).clone();
    let (buffer, _) = registered(&device, LARGE);
    let mut x = device.alloc::<u32>(LARGE)?;
    x.copy_from(&buffer)?;
    std::mem::forget(buffer.into_vec());
    std::mem::forget(HostBuffer::from_vec(&device, vec![2u32; LARGE]));
    run_to_end(&device);
    assert_eq!(tenth(&x)?, 9);
    until("both are there", || device.pinned_memory().registered == 2 * MIB);
    assert_eq!(calls(&device).host_unregisters, 0);
    assert_eq!(simulator.violations(), []);
    Ok(())
}

#[test]
fn what_cannot_be_registered_is_given_back() -> Result<()> {
    let device = stepped();
    let (buffer, at) = registered(&device, LARGE);
    sim(&device).inject(Fault::of_call(DriverCall::HostRegister, OUT_OF_MEMORY));
    let refused = wait(HostBuffer::from_vec(&device, vec![3u32; LARGE])).expect_err("refused");
    assert_eq!((refused.elements.len(), refused.elements[LARGE - 1]), (LARGE, 3));
    assert!(matches!(refused.error, Error::Refused { .. }), "{:?}", refused.error);
    assert_eq!(device.pinned_memory().registered, MIB);

    sim(&device).inject(Fault::of_call(DriverCall::HostUnregister, INVALID_VALUE));
    let refused = wait(buffer.into_vec()).expect_err("refused");
    assert!(matches!(refused.error, Error::Refused { .. }), "{:?}", refused.error);
    assert_eq!(refused.buffer.try_read()?[77], 77);
    let back = wait(refused.buffer.into_vec()).map_err(|e| e.error)?;
    assert_eq!(back.as_ptr(), at);

    sim(&device).inject(Fault::of_call(DriverCall::HostAlloc, OUT_OF_MEMORY));
    let refused = wait(HostBuffer::from_vec(&device, vec![4u32; 16])).expect_err("refused");
    assert_eq!(refused.elements, [4; 16]);
    Ok(())
}

#[test]
fn a_buffer_with_unwritten_elements_is_no_vec() -> Result<()> {
    let device = stepped();
    let refused = wait(device.alloc_host::<u32>(16)?.into_vec()).expect_err("unwritten");
    assert!(matches!(refused.error, Error::Uninitialised { .. }), "{:?}", refused.error);
    let mut buffer = refused.buffer;
    buffer.try_write()?.fill(1);
    assert_eq!(wait(buffer.into_vec()).map_err(|e| e.error)?, [1; 16]);
    Ok(())
}
