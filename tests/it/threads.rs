//! Threads and tasks that share buffers, streams and devices compute what one thread would.

use std::sync::{Arc, Barrier, Mutex};

use headwater::testing::assert_all_freed;
use headwater::{Device, DeviceBuffer, Error, HostBuffer, Result, Stream};

use crate::common::{
    Random, any_device, device_buffer, eager, elements, own_device_with, pinned_buffer, run_to_end,
    sim, simulated_with, stepped, until, wait, while_stepped_at_random,
};
use crate::kernels::{copy_u32, increment};

const THREADS: u64 = 4;

/// A buffer and what it holds.
type Shared = Mutex<(DeviceBuffer<u32>, u32)>;

/// Operations on shared buffers in an order that locks fix, on whatever stream each thread has.
fn work_on(device: &Device, buffers: &[Shared], seed: u64) -> Result<()> {
    let mut random = Random::new(seed);
    let mut pinned: HostBuffer<u32> = device.alloc_host(64)?;
    for _ in 0..100 {
        let [x, y] = random.two_below(buffers.len());
        match random.below(4) {
            0 => {
                let mut to = buffers[x].lock().expect("no panic");
                drop(increment(&mut to.0)?);
                to.1 += 1;
            }
            1 => {
                let (low, high) = (x.min(y), x.max(y));
                let from = buffers[low].lock().expect("no panic");
                let mut to = buffers[high].lock().expect("no panic");
                let _ = copy_u32(&from.0, &mut to.0)?.is_finished()?;
                to.1 = from.1;
            }
            2 => {
                let mut to = buffers[x].lock().expect("no panic");
                to.1 = random.next() as u32;
                let value = to.1;
                std::mem::forget(to.0.fill(value)?);
            }
            _ => {
                let from = buffers[x].lock().expect("no panic");
                from.0.copy_to(&mut pinned)?;
                let expected = from.1;
                drop(from);
                assert_eq!(*wait(pinned.read())?, [expected; 64]);
            }
        }
    }
    Ok(())
}

fn threads_share_buffers(device: &Device, rounds: u64) -> Result<()> {
    for round in 0..rounds {
        let buffers: Vec<Shared> =
            (0..3).map(|_| Mutex::new((device_buffer(device, &[0; 64]), 0))).collect();
        let start = Barrier::new(THREADS as usize);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (buffers, start) = (&buffers, &start);
                    scope.spawn(move || {
                        start.wait();
                        work_on(device, buffers, round * THREADS + thread)
                    })
                })
                .collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
        })?;
        for buffer in buffers {
            let (buffer, expected) = buffer.into_inner().expect("no panic");
            assert_eq!(elements(&buffer), [expected; 64]);
        }
    }
    Ok(())
}

#[test]
fn threads_that_share_buffers_get_the_bytes_of_their_order() -> Result<()> {
    threads_share_buffers(&any_device(), 20)?;
    let device = eager();
    threads_share_buffers(&device, 20)?;
    run_to_end(&device);
    assert_all_freed(&device);
    Ok(())
}

#[test]
fn threads_that_share_buffers_do_so_whatever_the_device_runs_first() -> Result<()> {
    let device = stepped();
    while_stepped_at_random(&device, || threads_share_buffers(&device, 10))?;
    run_to_end(&device);
    assert_all_freed(&device);
    Ok(())
}

#[test]
fn threads_that_read_at_once_all_see_what_is_being_written() -> Result<()> {
    let device = any_device();
    let start = Barrier::new(2);
    for round in 0..100 {
        let mut x = device.alloc::<u32>(256)?;
        x.fill(round)?;
        let mut seen = [device.alloc::<u32>(256)?, device.alloc::<u32>(256)?];
        std::thread::scope(|scope| {
            for y in &mut seen {
                let (start, x) = (&start, &x);
                scope.spawn(move || {
                    start.wait();
                    copy_u32(x, y).map(drop).expect("enqueuing");
                });
            }
        });
        drop(x);
        for y in &seen {
            assert_eq!(elements(y), [round; 256]);
        }
    }
    Ok(())
}

#[test]
fn threads_may_ask_for_one_stream_at_once() -> Result<()> {
    let device = any_device();
    let mut x = device_buffer(&device, &[0u32; 16]);
    for _ in 0..200 {
        // Each is held, so each has an event of its own.
        let held: Vec<_> = (0..256).map(|_| increment(&mut x)).collect::<Result<_>>()?;
        let start = Barrier::new(THREADS as usize);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    start.wait();
                    for done in &held {
                        until("finished", || done.is_finished().expect("asking"));
                    }
                });
            }
        });
    }
    assert_eq!(elements(&x), [51_200; 16]);
    Ok(())
}

#[test]
fn threads_may_share_one_stream() -> Result<()> {
    let device = any_device();
    let stream = device.stream();
    std::thread::scope(|scope| {
        for thread in 0..THREADS as u32 {
            let (device, stream) = (&device, &stream);
            scope.spawn(move || {
                stream.in_scope(|| {
                    let mut x = device_buffer(device, &[thread; 64]);
                    for _ in 0..100 {
                        let done = increment(&mut x).expect("enqueuing");
                        wait(done).expect("running");
                    }
                    assert_eq!(elements(&x), [thread + 100; 64]);
                });
            });
        }
    });
    Ok(())
}

#[test]
fn tasks_that_share_a_buffer_to_read_do_not_disturb_each_other() -> Result<()> {
    let device = any_device();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    let x = Arc::new(device_buffer(&device, &[5u32; 256]));
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let (device, x) = (device.clone(), x.clone());
            runtime.spawn(async move {
                let mut mine = device.alloc::<u32>(256)?;
                copy_u32(&*x, &mut mine)?;
                increment(&mut mine)?;
                mine.to_vec().await
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(wait(task).expect("no panic")?, [6; 256]);
    }
    Ok(())
}

/// A program of two tasks whose order is fixed by what they await.
fn program(device: &Device, streams: [Stream; 3]) -> Result<Vec<u32>> {
    let mut x = device_buffer(device, &[1u32; 64]);
    let mut y = device.zeros::<u32>(64)?;
    let mut pinned = pinned_buffer(device, &[9u32; 64]);
    let [a, b, c] = streams;
    for round in 0..20 {
        a.in_scope(|| increment(&mut x))?;
        b.in_scope(|| copy_u32(&x, &mut y))?;
        c.in_scope(|| increment(&mut y))?;
        a.in_scope(|| y.copy_to(&mut pinned))?;
        c.in_scope(|| x.copy_from(&pinned))?;
        if round % 5 == 4 {
            wait(pinned.write())?[0] = round;
        }
    }
    Ok(elements(&x))
}

#[test]
fn on_one_stream_a_program_computes_the_same_bytes() -> Result<()> {
    let many = own_device_with(|builder| builder.single_stream(false));
    let one = own_device_with(|builder| builder.single_stream(true));
    let streams = |device: &Device| [device.stream(), device.stream(), device.stream()];
    assert_eq!(program(&many, streams(&many))?, program(&one, streams(&one))?);
    let [a, b, c] = streams(&one);
    assert!(a.same_stream(&b) && b.same_stream(&c) && c.same_stream(&one.current_stream()));
    assert!(one.driver_calls().is_some_and(|calls| calls.stream_waits == 0));
    assert!(many.driver_calls().is_some_and(|calls| calls.stream_waits > 0));
    if let Some(sim) = one.simulator() {
        let spans = sim.timeline();
        assert!(spans.iter().all(|span| span.stream == spans[0].stream));
    }
    Ok(())
}

#[test]
fn a_queue_filled_by_many_threads_is_refused_to_some_and_never_blocks() -> Result<()> {
    let options = headwater::sim::SimOptions::new().queue_limit(24);
    let device = simulated_with(options, |builder| builder.queue_limit(16));
    let stream = device.stream();
    let taken = Mutex::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut x = device_buffer(&device, &[0u32; 16]);
                let mut mine = 0;
                while mine < 300 {
                    match stream.in_scope(|| increment(&mut x)) {
                        Ok(_) => mine += 1,
                        Err(Error::QueueFull { .. }) => wait(stream.ready()).expect("ready"),
                        Err(error) => panic!("{error}"),
                    }
                }
                assert_eq!(elements(&x), [300; 16]);
                *taken.lock().expect("no panic") += mine;
            });
        }
    });
    assert_eq!(taken.into_inner().expect("no panic"), 1_200);
    assert_eq!(sim(&device).blocked_calls(), 0);
    Ok(())
}
