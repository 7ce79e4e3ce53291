//! The host never sees memory that the device still works on, nor memory that nothing has written.

use headwater::sim::{Schedule, SimOptions, Violation};
use headwater::{Device, DeviceBuffer, Error, Result};

use crate::common::{
    any_device, device_buffer, elements, own_device, pinned_buffer, poll_once, run_to_end, sim,
    simulated_with, stepped, wait, watched,
};
use crate::kernels::{copy_u32, increment};

#[test]
fn a_result_in_flight_cannot_be_read_and_is_the_new_one_when_it_can() -> Result<()> {
    let device = stepped();
    let x = device_buffer(&device, &[7u32; 64]);
    let mut pinned = pinned_buffer(&device, &[0u32; 64]);
    x.copy_to(&mut pinned)?;

    assert!(matches!(pinned.try_read(), Err(Error::InFlight { .. })));
    assert!(matches!(pinned.try_write(), Err(Error::InFlight { .. })));
    assert!(poll_once(&mut pinned.read()).is_pending());
    assert!(poll_once(&mut pinned.write()).is_pending());
    sim(&device).step();
    assert_eq!(*wait(pinned.read())?, [7; 64]);
    assert_eq!(*pinned.try_read()?, [7; 64]);
    assert_eq!(*pinned.blocking_read()?, [7; 64]);
    run_to_end(&device);
    Ok(())
}

#[test]
fn a_source_in_flight_can_be_read_and_not_written() -> Result<()> {
    let device = stepped();
    let mut x = device.alloc::<u32>(64)?;
    let mut pinned = pinned_buffer(&device, &[7u32; 64]);
    x.copy_from(&pinned)?;

    assert_eq!(*pinned.try_read()?, [7; 64]);
    assert_eq!(*wait(pinned.read())?, [7; 64]);
    assert!(matches!(pinned.try_write(), Err(Error::InFlight { .. })));
    assert!(poll_once(&mut pinned.write()).is_pending());
    sim(&device).step();
    wait(pinned.write())?.fill(8);
    assert_eq!(elements(&x), [7; 64]);
    assert_eq!(*pinned.try_read()?, [8; 64]);
    Ok(())
}

#[test]
fn a_writer_awaits_every_stream_that_reads() -> Result<()> {
    let device = stepped();
    let mut pinned = pinned_buffer(&device, &[7u32; 64]);
    let mut copies = Vec::new();
    for _ in 0..3 {
        let mut x = device.alloc::<u32>(64)?;
        device.stream().in_scope(|| x.copy_from(&pinned))?;
        copies.push(x);
    }
    for _ in 0..3 {
        assert!(matches!(pinned.try_write(), Err(Error::InFlight { .. })));
        sim(&device).step();
    }
    wait(pinned.write())?.fill(8);
    for x in &copies {
        assert_eq!(elements(x), [7; 64]);
    }
    Ok(())
}

#[test]
fn a_blocking_read_blocks_until_the_copy_is_done() -> Result<()> {
    let device = stepped();
    let x = device_buffer(&device, &[7u32; 64]);
    let mut pinned = pinned_buffer(&device, &[0u32; 64]);
    x.copy_to(&mut pinned)?;
    let simulator = sim(&device).clone();
    let read = watched(move || {
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| pinned.blocking_read().map(|read| read.to_vec()));
            // It asks for its event while nothing has run.
            let queries = || device.driver_calls().map_or(0, |calls| calls.event_queries);
            let before = queries();
            while queries() < before + 5 {
                std::thread::yield_now();
            }
            assert!(!reader.is_finished());
            simulator.step();
            reader.join().expect("reading")
        })
    })?;
    assert_eq!(read, [7; 64]);
    Ok(())
}

#[test]
fn results_are_never_stale_on_any_device() -> Result<()> {
    let device = any_device();
    let mut x = device_buffer(&device, &[0u32; 1 << 12]);
    let mut pinned = pinned_buffer(&device, &[0u32; 1 << 12]);
    for round in 1..=100 {
        device.stream().in_scope(|| increment(&mut x))?;
        x.copy_to(&mut pinned)?;
        match pinned.try_read() {
            Ok(read) => assert_eq!((read[0], read[4095]), (round, round)),
            Err(Error::InFlight { .. }) => {}
            Err(error) => return Err(error),
        }
        let read = match round % 2 {
            0 => wait(pinned.read())?,
            _ => pinned.blocking_read()?,
        };
        assert!(read.iter().all(|x| *x == round));
    }
    Ok(())
}

#[test]
fn what_the_host_wrote_is_what_the_device_gets_on_any_device() -> Result<()> {
    let device = any_device();
    let mut pinned = device.alloc_host::<u32>(1 << 12)?;
    let mut copies = Vec::new();
    for round in 0..50 {
        match round % 2 {
            0 => wait(pinned.write())?.fill(round),
            _ => pinned.blocking_write()?.fill(round),
        }
        let mut x = device.alloc::<u32>(1 << 12)?;
        device.stream().in_scope(|| x.copy_from(&pinned))?;
        copies.push(x);
    }
    for (round, x) in copies.iter().enumerate() {
        assert_eq!(elements(x), [round as u32; 1 << 12]);
    }
    Ok(())
}

#[test]
fn memory_that_nothing_has_written_cannot_be_read() -> Result<()> {
    let device = own_device();
    let mut unwritten = device.alloc::<u32>(64)?;
    let mut y = device.zeros::<u32>(64)?;
    let mut pinned = device.alloc_host::<u32>(64)?;
    let refused = |result: Result<headwater::Completion>| {
        let Err(Error::Uninitialised { range, .. }) = result else { panic!("{result:?}") };
        assert_eq!(range, 0..256);
    };
    let calls = device.driver_calls();
    refused(copy_u32(&unwritten, &mut y));
    refused(increment(&mut unwritten));
    refused(y.copy_from(&unwritten));
    refused(unwritten.copy_to(&mut pinned));
    refused(y.copy_from(&pinned));
    assert!(matches!(pinned.try_read(), Err(Error::Uninitialised { .. })));
    assert!(matches!(wait(pinned.read()), Err(Error::Uninitialised { .. })));
    assert!(matches!(pinned.blocking_read(), Err(Error::Uninitialised { .. })));
    let made = device.driver_calls().zip(calls).map(|(now, before)| now.since(&before));
    assert!(made.is_some_and(|made| (made.launches, made.copies) == (0, 0)), "{made:?}");
    let read = wait(unwritten.to_vec());
    assert!(matches!(read, Err(Error::Uninitialised { .. })), "{read:?}");

    assert_eq!(elements(&y), [0; 64], "nothing was enqueued");
    y.copy_to(&mut pinned)?;
    pinned.copy_to(&mut unwritten)?;
    increment(&mut unwritten)?;
    assert_eq!(elements(&unwritten), [1; 64]);
    Ok(())
}

#[test]
fn pinned_memory_handed_on_shows_nothing_of_its_last_owner() -> Result<()> {
    let device = any_device();
    drop(pinned_buffer(&device, &[0xDEAD_BEEF_u32; 1000]));
    let mut next = device.alloc_host::<u32>(1000)?;
    assert!(matches!(next.try_read(), Err(Error::Uninitialised { .. })));
    assert_eq!(*next.try_write()?, [0; 1000]);
    assert_eq!(*next.try_read()?, [0; 1000]);
    Ok(())
}

/// A stepped device on which the wait of the second of two conflicting operations is lost.
fn losing() -> (Device, [DeviceBuffer<u32>; 2]) {
    let device = simulated_with(SimOptions::new().schedule(Schedule::Stepped), |builder| {
        builder.panic_on_race(false).lose_wait(0)
    });
    let buffers = [device_buffer(&device, &[1; 64]), device_buffer(&device, &[2; 64])];
    (device, buffers)
}

fn copies_left_behind(device: &Device) -> usize {
    let violations = sim(device).violations();
    let is_one = |violation: &&Violation| matches!(violation, Violation::HostAccessInFlight { .. });
    violations.iter().filter(is_one).count()
}

#[test]
fn a_guard_stands_still_also_where_a_wait_was_lost() -> Result<()> {
    let (device, [x, y]) = losing();
    let (a, b) = (device.stream(), device.stream());
    let mut out = device.alloc_host::<u32>(64)?;
    a.in_scope(|| x.copy_to(&mut out))?;
    b.in_scope(|| y.copy_to(&mut out))?;
    while sim(&device).step_stream(b.as_raw()).is_some() {}
    let guard = out.try_read()?;
    assert_eq!(copies_left_behind(&device), 1);
    sim(&device).run_all();
    assert_eq!(*guard, [2; 64], "the copy that was left behind was made under it");
    Ok(())
}

#[test]
fn memory_used_again_stands_still_also_where_a_wait_was_lost() -> Result<()> {
    let (device, [x, y]) = losing();
    let (a, b) = (device.stream(), device.stream());
    let mut out = device.alloc_host::<u32>(64)?;
    a.in_scope(|| x.copy_to(&mut out))?;
    wait_stepping(&device, b.as_raw(), b.in_scope(|| y.copy_to(&mut out))?);
    drop(out);
    let mut next = pinned_buffer(&device, &[3u32; 64]);
    assert_eq!(copies_left_behind(&device), 1, "it is another block");
    let guard = next.try_write()?;
    sim(&device).run_all();
    assert_eq!(*guard, [3; 64]);
    Ok(())
}

/// Runs what a stream has, and sees it finished.
fn wait_stepping(device: &Device, stream: u64, completion: headwater::Completion) {
    while sim(device).step_stream(stream).is_some() {}
    wait(completion).expect("it has run");
}
