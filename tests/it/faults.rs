//! Kernels that fault on a GPU. CUDA takes the device from the process for good then, so each runs
//! in a process of its own: this test binary again, with one test to run.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use headwater::{Completion, DeviceBuffer, Error, Result};

use crate::common::{
    AS_PROMISED, Wakes, eager, elements, in_own_process, in_process_of, on_gpu, own_device, until,
    wait, watched,
};
use crate::kernels::{delay, increment, out_of_bounds, trap};

/// Nanoseconds: longer than the driver takes to tell of a fault (under one second).
const SECONDS: u64 = 5_000_000_000;

fn is_lost<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::DeviceLost(_)))
}

fn in_faulting_process(fault: &str) {
    assert!(on_gpu(), "set HEADWATER_REQUIRE_GPU=1");
    in_own_process("faults::the_faulting_process", fault);
}

#[test]
#[ignore = "needs a GPU"]
fn a_trap_ends_every_wait_and_leaves_the_process_alive() {
    in_faulting_process("trap");
}

#[test]
#[ignore = "needs a GPU"]
fn an_illegal_address_ends_every_wait_and_leaves_the_process_alive() {
    in_faulting_process("out of bounds");
}

#[test]
#[ignore = "the process of other tests"]
fn the_faulting_process() -> Result<()> {
    let Some(fault) = in_process_of() else { return Ok(()) };
    watched(move || {
        let device = own_device();
        let mut x = device.zeros::<u32>(64)?;
        let mut slow = device.zeros::<u32>(1)?;
        let mut others: Vec<DeviceBuffer<u32>> =
            (0..8).map(|_| device.zeros(64)).collect::<Result<_>>()?;
        let mut pinned = device.alloc_host::<u32>(64)?;
        wait(device.current_stream().synchronize())?;

        // Waits on several streams, each registered before the fault: beside it there, and of the
        // host for memory behind it.
        let mut waits: Vec<Completion> = vec![delay(&mut slow, SECONDS)?];
        for other in &mut others {
            waits.push(device.stream().in_scope(|| {
                delay(&mut *other, SECONDS)?;
                increment(other)
            })?);
        }
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        for wait in &mut waits {
            assert!(Pin::new(wait).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        let faulting = device.stream();
        let fault = faulting.in_scope(|| match &*fault {
            "trap" => trap(&mut x),
            _ => out_of_bounds(&mut x),
        })?;
        // The driver may tell of the fault at any call from here on.
        let behind = faulting.in_scope(|| x.copy_to(&mut pinned));
        let enqueued = behind.is_ok();
        assert!(enqueued || is_lost(&behind), "{behind:?}");

        assert!(is_lost(&wait(fault)));
        let first = Instant::now();
        until("every waiter is told", || wakes.count() == waits.len());
        let last = first.elapsed();
        println!("the last was told {last:?} after the first");
        assert!(last < Duration::from_millis(10), "{last:?}");
        assert!(waits.into_iter().all(|ended| is_lost(&wait(ended))));
        assert!(is_lost(&wait(pinned.read())) || !enqueued);

        // Whatever comes later is refused, and what is dropped is left alone.
        assert!(is_lost(&increment(&mut x)));
        assert!(is_lost(&device.zeros::<u32>(4)));
        assert!(is_lost(&device.alloc_host::<u32>(4)));
        assert!(is_lost(&pinned.try_read()) || !enqueued);
        drop((x, others, slow, pinned, faulting, device));
        let simulated = eager();
        assert_eq!(elements(&simulated.zeros::<u32>(4)?), [0; 4]);
        println!("{AS_PROMISED}");
        Ok(())
    })
}
