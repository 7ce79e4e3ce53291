//! Waiting in turn for device memory, or for a budget.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};

use futures::future::join_all;
use headwater::sim::{DriverCall, Fault, Schedule, SimOptions};
use headwater::{AllocWait, Device, DeviceBuffer, DriverError, Error, MemoryStats, Result};

use super::{KIB, in_flight, is_out_of_memory, small};
use crate::common::{
    Wakes, elements, last_waits, poll_once, run_to_end, sim, simulated, simulated_with, stepped,
    unattended, wait,
};
use crate::kernels::increment;

/// Polls with a waker that counts.
fn poll_counted<T: headwater::Pod>(
    request: &mut AllocWait<T>,
    wakes: &Arc<Wakes>,
) -> Poll<Result<DeviceBuffer<T>>> {
    let waker = wakes.clone().into();
    Pin::new(request).poll(&mut Context::from_waker(&waker))
}

#[test]
fn who_waits_for_memory_is_woken_when_a_buffer_is_dropped() -> Result<()> {
    let device = small(4 * KIB as u64);
    let x = in_flight(&device, 3 * KIB)?;
    let mut waiting = device.alloc_wait::<u8>(4 * KIB);
    let wakes = Arc::new(Wakes::default());
    assert!(poll_counted(&mut waiting, &wakes).is_pending());
    assert_eq!((wakes.count(), device.memory().waiting), (0, 1));
    drop(x);
    assert_eq!(wakes.count(), 1);
    let Poll::Ready(granted) = poll_counted(&mut waiting, &wakes) else { panic!("there is room") };
    let mut granted = granted?;
    granted.fill(3)?;
    assert!(last_waits(sim(&device)), "for what is in flight: nobody waited on the host");
    run_to_end(&device);
    assert_eq!(elements(&granted), [3; 4096]);
    Ok(())
}

#[test]
fn no_later_request_is_served_before_one_that_waits_however_small() -> Result<()> {
    let device = small(4 * KIB as u64);
    let x = device.alloc::<u8>(2 * KIB)?;
    let y = device.alloc::<u8>(KIB)?;
    let mut large = device.alloc_wait::<u8>(4 * KIB);
    assert!(poll_once(&mut large).is_pending());
    let mut small = device.alloc_wait::<u8>(1);
    assert!(poll_once(&mut small).is_pending(), "there is room, and it is not its turn");
    drop(device.alloc::<u8>(1)?); // does not wait, and takes what it finds
    drop(x);
    assert!(poll_once(&mut small).is_pending() && poll_once(&mut large).is_pending());
    drop(y);
    let Poll::Ready(large) = poll_once(&mut large) else { panic!("all is free") };
    assert!(poll_once(&mut small).is_pending(), "all is taken");
    drop(large?);
    assert!(matches!(poll_once(&mut small), Poll::Ready(Ok(_))));
    Ok(())
}

#[test]
fn a_request_that_is_dropped_leaves_its_turn_to_the_next_also_when_it_was_called() -> Result<()> {
    for called in [false, true] {
        let device = small(4 * KIB as u64);
        let x = device.alloc::<u8>(4 * KIB)?;
        let (mut first, mut second) =
            (device.alloc_wait::<u8>(4 * KIB), device.alloc_wait::<u8>(KIB));
        let wakes = Arc::new(Wakes::default());
        assert!(
            poll_once(&mut first).is_pending() && poll_counted(&mut second, &wakes).is_pending()
        );
        if called {
            drop(x);
            assert_eq!(wakes.count(), 0, "the first was");
            drop(first);
        } else {
            drop(first);
            assert_eq!(wakes.count(), 1, "it is its turn now");
            assert!(poll_counted(&mut second, &wakes).is_pending());
            drop(x);
        }
        assert!(wakes.count() >= 1);
        assert!(matches!(poll_counted(&mut second, &wakes), Poll::Ready(Ok(_))));
        assert_eq!(device.memory().waiting, 0);
    }
    Ok(())
}

#[test]
fn who_waits_for_a_budget_holds_up_its_tenant_alone() -> Result<()> {
    let device = stepped();
    let tenant = device.tenant(2048);
    let x = tenant.in_scope(|| device.alloc::<u8>(2048))?;
    let mut first = tenant.in_scope(|| device.alloc_wait::<u8>(2048));
    let mut second = tenant.in_scope(|| device.alloc_wait::<u8>(256));
    assert!(poll_once(&mut first).is_pending() && poll_once(&mut second).is_pending());
    assert!(matches!(poll_once(&mut device.alloc_wait::<u8>(1 << 20)), Poll::Ready(Ok(_))));
    drop(x);
    assert!(poll_once(&mut second).is_pending());
    let Poll::Ready(first) = poll_once(&mut first) else { panic!("there is room") };
    drop(first?);
    assert!(matches!(poll_once(&mut second), Poll::Ready(Ok(_))));
    Ok(())
}

#[test]
fn who_waits_for_memory_hears_of_the_loss_of_the_device() -> Result<()> {
    let device = small(4 * KIB as u64);
    let mut x = device.zeros::<u8>(4 * KIB)?;
    let mut waiting = [(); 2].map(|()| device.alloc_wait::<u8>(KIB));
    let wakes = Arc::new(Wakes::default());
    assert!(waiting.iter_mut().all(|waiting| poll_counted(waiting, &wakes).is_pending()));
    sim(&device).fail(DriverError::LAUNCH_FAILED);
    assert!(x.fill(1).is_err(), "the loss is heard of");
    assert_eq!(wakes.count(), 2);
    for waiting in &mut waiting {
        assert!(matches!(poll_counted(waiting, &wakes), Poll::Ready(Err(Error::DeviceLost(_)))));
    }
    Ok(())
}

#[test]
fn where_nothing_of_ours_can_come_back_waiting_is_an_error() -> Result<()> {
    let device = stepped();
    sim(&device).inject(Fault::of_call(DriverCall::Alloc, DriverError::OUT_OF_MEMORY).always());
    let mut waiting = device.alloc_wait::<u8>(KIB);
    assert!(matches!(poll_once(&mut waiting), Poll::Ready(Err(Error::OutOfMemory { .. }))));
    assert_eq!(device.memory().waiting, 0);
    Ok(())
}

#[test]
fn many_tasks_fighting_over_a_small_device_all_finish() -> Result<()> {
    const TASKS: usize = 200;
    let options = unattended().total_memory(64 * KIB as u64);
    let device = simulated(options);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
    let runtime = runtime.expect("a runtime");
    let most = Arc::new(AtomicUsize::new(0));
    let task = |device: Device, i: usize| async move {
        let len = [60 * KIB, 17 * KIB, 1, 5_000, 33 * KIB][i % 5] / 4;
        let mut x = device.alloc_wait::<u32>(len.max(1)).await?;
        x.fill(i as u32)?;
        increment(&mut x)?;
        let got = x.to_vec().await?;
        assert!(got.iter().all(|v| *v == i as u32 + 1));
        Ok::<_, Error>(got.len())
    };
    runtime.block_on(async {
        let tasks = (0..TASKS).map(|i| tokio::spawn(task(device.clone(), i)));
        for ended in join_all(tasks).await {
            most.fetch_max(ended.expect("no panic")?, SeqCst);
        }
        Ok::<_, Error>(())
    })?;
    assert_eq!(most.load(SeqCst), 15 * KIB);
    let MemoryStats { in_use, waiting, reserved_high_water, .. } = device.memory();
    assert_eq!((in_use, waiting), (0, 0));
    assert!(reserved_high_water <= 64 * KIB as u64);
    Ok(())
}

/// The driver has what was given back to it when its stream has come to that.
#[test]
fn who_waits_for_memory_waits_for_what_the_driver_was_given_back_and_does_not_have_yet()
-> Result<()> {
    let device = simulated_with(
        SimOptions::new().schedule(Schedule::Stepped).total_memory(4 * KIB as u64),
        |builder| builder.keep_memory(false),
    );
    let x = in_flight(&device, 4 * KIB)?;
    let mut waiting = device.stream().in_scope(|| device.alloc_wait::<u8>(4 * KIB));
    assert!(poll_once(&mut waiting).is_pending());
    drop(x); // nobody has a buffer any more
    assert!(poll_once(&mut waiting).is_pending());
    run_to_end(&device);
    assert_eq!(wait(waiting)?.len(), 4 * KIB);
    Ok(())
}

#[test]
fn a_budget_is_of_what_is_asked_for_and_tells_who_waits_for_it() -> Result<()> {
    let device = stepped();
    let tenant = device.tenant(1_100_000);
    let all = tenant.in_scope(|| device.alloc::<u8>(1_100_000))?; // though its block is larger
    let mut waiting = tenant.in_scope(|| device.alloc_wait::<u8>(1));
    let mut other = device.tenant(1).in_scope(|| device.alloc_wait::<u8>(1));
    assert!(poll_once(&mut waiting).is_pending());
    assert!(matches!(poll_once(&mut other), Poll::Ready(Ok(_))));
    assert_eq!((tenant.memory().in_use, tenant.memory().waiting), (1_100_000, 1));
    drop(all);
    let Poll::Ready(one) = poll_once(&mut waiting) else { panic!("there is room") };
    let one = one?;
    assert_eq!((tenant.memory().in_use, tenant.memory().waiting), (one.len() as u64, 0));
    Ok(())
}

#[test]
fn a_charge_that_came_to_nothing_calls_who_waits_for_the_budget() -> Result<()> {
    let device = small(4 * KIB as u64);
    let tenant = device.tenant(2 * KIB as u64);
    let _others = device.alloc::<u8>(3 * KIB)?;
    let mine = tenant.in_scope(|| device.alloc::<u8>(KIB))?;
    let mut waiting = tenant.in_scope(|| device.alloc_wait::<u8>(2 * KIB));
    let wakes = Arc::new(Wakes::default());
    assert!(poll_counted(&mut waiting, &wakes).is_pending(), "half of the budget is taken");
    // Within the budget, and more than there is; nobody is woken by what it tried itself.
    assert!(is_out_of_memory(tenant.in_scope(|| device.alloc::<u8>(KIB))));
    assert_eq!(wakes.count(), 0, "there is no room for it yet");
    drop(mine);
    assert_eq!(wakes.count(), 1);
    // What it had given back to the driver is there.
    for _ in 0..3 {
        assert!(poll_counted(&mut waiting, &wakes).is_pending());
        wait(device.synchronize())?;
    }
    let called = wakes.count();
    assert!(poll_counted(&mut waiting, &wakes).is_pending(), "the device has no room");
    assert_eq!(wakes.count(), called, "it does not call itself");
    Ok(())
}
