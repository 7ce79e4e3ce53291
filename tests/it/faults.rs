//! Kernels that fault on a GPU. CUDA takes the device from the process for good then, so each runs
//! in a process of its own: this test binary again, with one test to run.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use headwater::{Completion, DeviceBuffer, Error, Result};

use crate::common::{
    AS_PROMISED, Child, Wakes, eager, elements, in_process_of, on_gpu, own_device, until, wait,
    watched,
};
use crate::kernels::{delay, increment, out_of_bounds, trap};
use crate::lost::failure_of;

/// Nanoseconds. The driver tells of a fault when the kernels that ran beside it have ended.
const DELAY: u64 = 300_000_000;

fn is_lost<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::DeviceLost(_)))
}

fn in_faulting_process(fault: &str) {
    assert!(on_gpu(), "set HEADWATER_REQUIRE_GPU=1");
    Child::new("faults::the_faulting_process", fault).run();
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
#[ignore = "needs a GPU"]
fn a_kernel_that_faults_alone_is_named_with_its_stream() {
    in_faulting_process("alone");
}

#[test]
#[ignore = "the process of other tests"]
fn the_faulting_process() -> Result<()> {
    let Some(fault) = in_process_of() else { return Ok(()) };
    if fault == "alone" {
        return alone();
    }
    watched(move || {
        let device = own_device();
        let mut x = device.zeros::<u32>(64)?;
        let mut slow = device.zeros::<u32>(1)?;
        let mut others: Vec<DeviceBuffer<u32>> =
            (0..8).map(|_| device.zeros(64)).collect::<Result<_>>()?;
        let mut pinned = device.alloc_host::<u32>(64)?;
        wait(device.current_stream().synchronize())?;

        // Waits beside the fault, registered before it, and behind it on its stream.
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let register =
            |wait: &mut Completion| Pin::new(wait).poll(&mut Context::from_waker(&waker));
        let mut beside: Vec<Completion> = vec![delay(&mut slow, DELAY)?];
        for other in &mut others {
            beside.push(device.stream().in_scope(|| {
                delay(&mut *other, DELAY)?;
                increment(other)
            })?);
        }
        assert!(beside.iter_mut().all(|wait| register(wait).is_pending()));
        let faulting = device.stream();
        let (name, fault) = faulting.in_scope(|| match &*fault {
            "trap" => Ok(("trap", trap(&mut x)?)),
            _ => Ok(("out_of_bounds", out_of_bounds(&mut x)?)),
        })?;
        // The driver may tell of the fault at any call from here on.
        let mut behind = Vec::new();
        for _ in 0..3 {
            match faulting.in_scope(|| increment(&mut x)) {
                Ok(wait) => behind.push(wait),
                refused => assert!(is_lost(&refused), "{refused:?}"),
            }
        }
        let copied = faulting.in_scope(|| x.copy_to(&mut pinned));
        assert!(copied.is_ok() || is_lost(&copied), "{copied:?}");
        let at_once = behind.iter_mut().filter_map(|wait| register(wait).is_ready().then_some(()));
        let at_once = at_once.count();

        let failure = failure_of(wait(fault));
        let first = Instant::now();
        let waiters = beside.len() + behind.len();
        until("every waiter is told", || wakes.count() + at_once == waiters);
        let last = first.elapsed();
        println!("the last was told {last:?} after the first");
        assert!(last < Duration::from_millis(10), "{last:?}");
        for wait_beside in beside {
            // What ran beside the fault may have finished before the driver told of it.
            let ended = wait(wait_beside);
            assert!(ended.is_ok() || is_lost(&ended), "{ended:?}");
        }
        assert!(behind.into_iter().all(|wait_behind| is_lost(&wait(wait_behind))));
        assert!(is_lost(&wait(pinned.read())) || copied.is_err());

        // All kernels that were in flight are suspects, the one that did it among them.
        println!("{failure}");
        let raw = format!(
            "number: {}",
            failure
                .suspects
                .iter()
                .find(|s| s.name == name)
                .expect("the kernel is among the suspects")
                .stream
        );
        assert!(format!("{faulting:?}").contains(&raw), "{faulting:?}: {failure}");
        assert!(
            failure.suspects.iter().all(|s| s.is_kernel || s.name == "filling device memory"),
            "{failure:?}"
        );

        // Whatever comes later is refused, and what is dropped is left alone.
        assert!(is_lost(&increment(&mut x)));
        assert!(is_lost(&device.zeros::<u32>(4)));
        assert!(is_lost(&device.alloc_host::<u32>(4)));
        assert!(is_lost(&pinned.try_read()) || copied.is_err());
        drop((x, others, slow, pinned, faulting, device));
        let simulated = eager();
        assert_eq!(elements(&simulated.zeros::<u32>(4)?), [0; 4]);
        println!("{AS_PROMISED}");
        Ok(())
    })
}

fn alone() -> Result<()> {
    watched(|| {
        let device = own_device();
        let mut x = device.zeros::<u32>(64)?;
        let mut pinned = device.alloc_host::<u32>(64)?;
        wait(device.current_stream().synchronize())?;
        let stream = device.stream();
        let start = Instant::now();
        let copied = stream.in_scope(|| {
            trap(&mut x)?;
            x.copy_to(&mut pinned)
        });
        let failure = failure_of(match copied {
            Ok(copied) => wait(copied),
            Err(error) => Err(error),
        });
        println!("{failure}, told {:?} after the launch", start.elapsed());
        let operation = failure.culprit().expect("one kernel was in flight");
        assert_eq!((operation.name, operation.number), ("trap", 1));
        assert!(failure.to_string().contains("`trap` on stream "), "{failure}");
        assert!(format!("{stream:?}").contains(&format!("number: {}", operation.stream)));
        println!("{AS_PROMISED}");
        Ok(())
    })
}
