//! Kernels that fault on a GPU. CUDA takes the device from the process for good then, so each runs
//! in a process of its own: this test binary again, with one test to run.

use std::time::{Duration, Instant};

use headwater::{Completion, DeviceBuffer, Error, Result, block_on};

use crate::common::{
    AS_PROMISED, eager, elements, in_own_process, in_process_of, on_gpu, own_device, wait, watched,
};
use crate::kernels::{delay, increment, out_of_bounds, trap};

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

        // Waits on several streams: behind the fault, beside it, and of the host for memory.
        let mut waits: Vec<Completion> = vec![delay(&mut slow, 200_000_000)?];
        for other in &mut others {
            waits.push(device.stream().in_scope(|| {
                delay(&mut *other, 100_000_000)?;
                increment(other)
            })?);
        }
        let faulting = device.stream();
        waits.push(faulting.in_scope(|| match &*fault {
            "trap" => trap(&mut x),
            _ => out_of_bounds(&mut x),
        })?);
        waits.push(faulting.in_scope(|| increment(&mut x))?);
        faulting.in_scope(|| x.copy_to(&mut pinned))?;

        let start = Instant::now();
        assert!(matches!(wait(pinned.read()), Err(Error::DeviceLost(_))));
        let first = start.elapsed();
        let ended = block_on(futures::future::join_all(waits));
        let last = start.elapsed();
        println!("the first wait ended after {first:?}, the last after {last:?}");
        assert!(ended.iter().all(|end| matches!(end, Err(Error::DeviceLost(_)))), "{ended:?}");
        assert!(last - first < Duration::from_millis(10), "{first:?}, {last:?}");

        // Whatever comes later is refused, and what is dropped is left alone.
        assert!(matches!(increment(&mut x), Err(Error::DeviceLost(_))));
        assert!(matches!(device.zeros::<u32>(4), Err(Error::DeviceLost(_))));
        assert!(matches!(device.alloc_host::<u32>(4), Err(Error::DeviceLost(_))));
        assert!(matches!(pinned.try_read(), Err(Error::DeviceLost(_))));
        drop((x, others, slow, pinned, faulting, device));
        let simulated = eager();
        assert_eq!(elements(&simulated.zeros::<u32>(4)?), [0; 4]);
        println!("{AS_PROMISED}");
        Ok(())
    })
}
