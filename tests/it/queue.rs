//! A full queue is refused before the driver would block, and can be awaited.

use std::sync::Barrier;

use headwater::sim::{Schedule, SimOptions};
use headwater::{Device, Error, Result};

use crate::common::{
    any_device, device_buffer, elements, pinned_buffer, poll_once, run_to_end, sim, simulated_with,
    stepped, wait,
};
use crate::kernels::increment;

#[test]
fn a_full_queue_is_refused_with_its_numbers_and_nothing_is_enqueued() -> Result<()> {
    let options = SimOptions::new().schedule(Schedule::Stepped);
    let device = simulated_with(options, |builder| builder.queue_limit(4));
    let sim = sim(&device);
    let stream = device.stream();
    let mut x = stream.in_scope(|| device.zeros::<u32>(64))?;
    let pinned = pinned_buffer(&device, &[100u32; 64]);
    run_to_end(&device);
    wait(stream.synchronize())?;

    for _ in 0..4 {
        stream.in_scope(|| increment(&mut x))?;
    }
    let refusals = [
        stream.in_scope(|| increment(&mut x)),
        stream.in_scope(|| x.fill(100)),
        stream.in_scope(|| x.copy_from(&pinned)),
    ];
    for refused in refusals {
        let Err(Error::QueueFull { in_flight: 4, needed: 1, limit: 4, stream: number, .. }) =
            refused
        else {
            panic!("{refused:?}");
        };
        assert_eq!(number, stream.number());
    }
    assert_eq!(sim.pending().len(), 4);
    let mut ready = stream.ready();
    assert!(poll_once(&mut ready).is_pending());
    while sim.step().is_some() {}
    wait(ready)?;
    stream.in_scope(|| increment(&mut x))?;
    assert_eq!(elements(&x), [5; 64]);
    assert_eq!(sim.blocked_calls(), 0);
    run_to_end(&device);
    Ok(())
}

#[test]
fn a_queue_limit_that_the_driver_does_not_have_is_refused() {
    for limit in [0, 1_001, u64::MAX] {
        let opened = Device::builder().simulated().queue_limit(limit).open();
        let Err(Error::BadSetting { name: "queue_limit", given, .. }) = opened else {
            panic!("{opened:?}");
        };
        assert_eq!(given, limit.to_string());
    }
}

#[test]
fn a_thousand_operations_are_taken_and_half_of_them_make_room() -> Result<()> {
    let device = stepped();
    let sim = sim(&device);
    let stream = device.stream();
    let mut x = stream.in_scope(|| device.zeros::<u32>(4))?;
    run_to_end(&device);
    wait(stream.synchronize())?;
    for _ in 0..1_000 {
        stream.in_scope(|| increment(&mut x))?;
    }
    let refused = stream.in_scope(|| increment(&mut x));
    assert!(matches!(refused, Err(Error::QueueFull { in_flight: 1_000, limit: 1_000, .. })));

    let mut ready = stream.ready();
    assert!(poll_once(&mut ready).is_pending());
    for _ in 0..520 {
        sim.step();
    }
    wait(ready)?;
    assert_eq!(sim.pending().len(), 480, "it waits for half of the queue, not for all");
    for _ in 0..500 {
        stream.in_scope(|| increment(&mut x))?;
    }
    assert_eq!(elements(&x), [1_500; 4]);
    assert_eq!(sim.blocked_calls(), 0);
    Ok(())
}

#[test]
fn a_full_queue_holds_up_no_other_stream() -> Result<()> {
    let options = SimOptions::new().schedule(Schedule::Stepped);
    let device = simulated_with(options, |builder| builder.queue_limit(2));
    let (a, b) = (device.stream(), device.stream());
    let mut x = a.in_scope(|| device.zeros::<u32>(4))?;
    let mut y = b.in_scope(|| device.zeros::<u32>(4))?;
    // The fill and one launch: the driver takes allocations without end, so they do not count.
    a.in_scope(|| increment(&mut x))?;
    assert!(matches!(a.in_scope(|| increment(&mut x)), Err(Error::QueueFull { .. })));
    b.in_scope(|| increment(&mut y))?;
    run_to_end(&device);
    wait(a.ready())?;
    a.in_scope(|| increment(&mut x))?;
    run_to_end(&device);
    assert_eq!((elements(&x), elements(&y)), (vec![2; 4], vec![1; 4]));
    Ok(())
}

#[test]
fn a_loop_that_awaits_room_enqueues_any_number_on_any_device() -> Result<()> {
    let device = any_device();
    let stream = device.stream();
    let mut x = stream.in_scope(|| device.zeros::<u32>(64))?;
    for _ in 0..5_000 {
        match stream.in_scope(|| increment(&mut x)) {
            Ok(_) => {}
            Err(Error::QueueFull { .. }) => {
                wait(stream.ready())?;
                stream.in_scope(|| increment(&mut x))?;
            }
            Err(error) => return Err(error),
        }
    }
    assert_eq!(elements(&x), [5_000; 64]);
    if let Some(sim) = device.simulator() {
        assert_eq!(sim.blocked_calls(), 0);
    }
    Ok(())
}

#[test]
fn one_place_in_the_queue_is_room_for_a_buffer_and_its_fill() -> Result<()> {
    let device = simulated_with(SimOptions::new(), |builder| builder.queue_limit(1));
    for _ in 0..200 {
        wait(device.current_stream().ready())?;
        device.zeros::<u32>(64)?;
    }
    Ok(())
}

#[test]
fn a_fill_of_several_calls_takes_as_many_places() -> Result<()> {
    let options = SimOptions::new().schedule(Schedule::Stepped);
    let device = simulated_with(options, |builder| builder.queue_limit(5));
    let mut x = device.zeros::<[u32; 4]>(64)?;
    x.fill([1, 2, 3, 4])?; // four calls beside the one
    let refused = x.fill([5, 6, 7, 8]);
    assert!(
        matches!(refused, Err(Error::QueueFull { in_flight: 5, needed: 4, limit: 5, .. })),
        "{refused:?}"
    );
    assert_eq!(sim(&device).pending().len(), 5);
    run_to_end(&device);
    wait(device.current_stream().ready())?;
    assert_eq!(elements(&x), [[1, 2, 3, 4]; 64]);
    Ok(())
}

#[test]
fn room_is_for_what_was_refused() -> Result<()> {
    // A fill of four calls does not fit beside three, though one more call would.
    let options = SimOptions::new().schedule(Schedule::Stepped);
    let device = simulated_with(options, |builder| builder.queue_limit(6));
    let sim = sim(&device);
    let mut x = device.alloc::<[u32; 4]>(64)?;
    for _ in 0..3 {
        x.fill([0; 4])?;
    }
    assert!(matches!(x.fill([1, 2, 3, 4]), Err(Error::QueueFull { .. })));
    let mut ready = device.current_stream().ready();
    assert!(poll_once(&mut ready).is_pending());
    assert_eq!(sim.run_all(), 3);
    wait(ready)?;
    x.fill([1, 2, 3, 4])?;
    run_to_end(&device);
    Ok(())
}

#[test]
fn what_is_refused_takes_no_place_in_the_queue() -> Result<()> {
    // No memory on the device: each allocation is refused by the driver after it got its ticket.
    let options = SimOptions::new().schedule(Schedule::Stepped).total_memory(4096);
    let device = simulated_with(options, |builder| builder.queue_limit(8));
    let mut x = device.zeros::<u32>(1_000)?;
    for _ in 0..100 {
        assert!(matches!(device.alloc::<u32>(1_000), Err(Error::OutOfMemory { .. })));
    }
    assert_eq!(device.current_stream().in_flight(), 1);
    increment(&mut x)?;
    assert_eq!(device.current_stream().in_flight(), 2);
    run_to_end(&device);
    Ok(())
}

#[test]
fn allocations_that_have_finished_hide_no_operation_in_flight() -> Result<()> {
    let device = stepped();
    let stream = device.current_stream();
    let mut x = device.zeros::<u32>(64)?;
    let buffers = (0..100).map(|_| device.alloc::<u32>(64)).collect::<Result<Vec<_>>>()?;
    let allocated = stream.record()?;
    for _ in 0..50 {
        increment(&mut x)?;
    }
    sim(&device).step();
    assert!(allocated.is_finished()?);
    assert_eq!(stream.in_flight(), 50);
    run_to_end(&device);
    drop(buffers);
    Ok(())
}

#[test]
fn the_limit_holds_while_another_thread_sees_work_finish() -> Result<()> {
    let options = SimOptions::new().schedule(Schedule::Stepped);
    let device = simulated_with(options, |builder| builder.queue_limit(4));
    let stream = device.stream();
    let mut x = device_buffer(&device, &[0u32; 4]);
    for round in 0..600 {
        // Finished allocations, as far as someone asks, and four operations that are not.
        let allocate = || (0..6).map(|_| device.alloc::<u32>(4)).collect::<Result<Vec<_>>>();
        let allocated = stream.in_scope(allocate)?;
        let event = stream.record()?;
        for _ in 0..3 {
            stream.in_scope(|| increment(&mut x)).map(drop)?;
        }
        let held = stream.in_scope(|| increment(&mut x))?; // recorded by who comes next
        let start = Barrier::new(2);
        let taken = std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                (0..round % 40 * 20).for_each(|_| std::hint::spin_loop());
                event.is_finished()
            });
            start.wait();
            (0..round / 40 * 20).for_each(|_| std::hint::spin_loop());
            stream.in_scope(|| increment(&mut x)).map(drop)
        });
        assert!(matches!(taken, Err(Error::QueueFull { .. })), "round {round}: {taken:?}");
        drop((allocated, held));
        run_to_end(&device);
        wait(stream.synchronize())?;
    }
    Ok(())
}
