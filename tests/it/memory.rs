//! Device memory: who gets what was dropped, what is done when it runs out, budgets, and waiting in turn.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};

use futures::future::join_all;
use headwater::sim::{DriverCall, Fault, Schedule, SimOptions};
use headwater::testing::assert_all_freed;
use headwater::{AllocWait, Device, DeviceBuffer, DriverError, Error, MemoryStats, Result};

use crate::common::{
    Random, Wakes, device_buffer, elements, last_waits, own_device, poll_once, run_to_end, sim,
    simulated, simulated_with, stepped, stepped_with, unattended, wait,
};
use crate::kernels::{copy_u32, increment};

const KIB: usize = 1 << 10;

/// A stepped device of so many bytes.
fn small(bytes: u64) -> Device {
    simulated(SimOptions::new().schedule(Schedule::Stepped).total_memory(bytes))
}

fn allocs(device: &Device) -> u64 {
    device.driver_calls().expect("counted").allocs
}

/// Of `len` bytes, written on a stream of its own, which has not come to that.
fn in_flight(device: &Device, len: usize) -> Result<DeviceBuffer<u8>> {
    device.stream().in_scope(|| device.zeros(len))
}

fn is_out_of_memory<T>(asked: Result<T>) -> bool {
    matches!(asked, Err(Error::OutOfMemory { .. }))
}

#[test]
fn a_stream_gets_its_own_memory_again_at_once_without_a_call() -> Result<()> {
    let device = stepped();
    device.stream().in_scope(|| {
        let mut x = device.zeros::<u32>(1000)?;
        increment(&mut x)?;
        drop(x);
        let before = device.driver_calls().expect("counted");
        let mut y = device.alloc::<u32>(999)?; // of about the size
        let calls = device.driver_calls().expect("counted").since(&before);
        assert_eq!(calls, Default::default());
        y.fill(7)?;
        run_to_end(&device);
        assert_eq!(elements(&y), [7; 999]);
        Ok(())
    })
}

#[test]
fn memory_that_was_anothers_is_new_memory() -> Result<()> {
    let device = stepped();
    drop(device_buffer(&device, &[7u32; 64]));
    let x = device.alloc::<u32>(64)?;
    assert_eq!(allocs(&device), 1);
    let mut y = device.alloc::<u32>(64)?;
    assert!(matches!(copy_u32(&x, &mut y), Err(Error::Uninitialised { .. })));
    Ok(())
}

#[test]
fn another_stream_gets_memory_once_its_users_are_finished_and_not_while_there_is_more() -> Result<()>
{
    let device = stepped();
    drop(in_flight(&device, KIB)?);
    let other = in_flight(&device, KIB)?;
    assert_eq!(allocs(&device), 2, "it would wait for the one before");
    run_to_end(&device);
    let third = in_flight(&device, KIB)?;
    assert_eq!(allocs(&device), 2, "the one that is not used any more");
    assert!(!last_waits(sim(&device)));
    drop((other, third));
    assert_all_freed(&device);
    Ok(())
}

// pytorch#181191: a freed block that two streams had used was not to be had before the host had waited.
#[test]
fn under_pressure_memory_in_flight_is_used_again_behind_a_wait_on_the_device() -> Result<()> {
    let device = simulated_with(SimOptions::new().schedule(Schedule::Stepped), |builder| {
        builder.memory_limit(4 * KIB as u64)
    });
    let mut x = in_flight(&device, 4 * KIB)?;
    device.stream().in_scope(|| x.fill(1))?;
    drop(x);
    let y = in_flight(&device, 4 * KIB)?;
    assert!(last_waits(sim(&device)), "for both users of the memory");
    let MemoryStats { in_use, reserved_high_water, .. } = device.memory();
    assert_eq!((in_use, reserved_high_water, allocs(&device)), (4096, 4096, 1), "once the size");
    run_to_end(&device);
    assert_eq!(elements(&y), [0; 4096]);
    Ok(())
}

#[test]
fn memory_of_other_sizes_that_nobody_uses_is_given_back_where_there_is_no_more() -> Result<()> {
    let device = small(4 * KIB as u64);
    let kept: Vec<_> = (0..4).map(|_| in_flight(&device, KIB)).collect::<Result<_>>()?;
    run_to_end(&device);
    wait(device.synchronize())?;
    drop(kept);
    let x = device.zeros::<u8>(3 * KIB)?;
    let MemoryStats { in_use, cached, .. } = device.memory();
    assert_eq!((in_use, cached), (3072, 1024), "no more was given back than it takes");
    drop(x);
    assert_all_freed(&device);
    Ok(())
}

#[test]
fn memory_of_other_sizes_in_flight_is_given_back_behind_a_wait_where_there_is_no_more() -> Result<()>
{
    let device = small(4 * KIB as u64);
    let users: Vec<_> = (0..4).map(|_| in_flight(&device, KIB)).collect::<Result<_>>()?;
    drop(users);
    let x = in_flight(&device, 4 * KIB)?;
    assert!(last_waits(sim(&device)));
    run_to_end(&device);
    assert_eq!(elements(&x), [0; 4096]);
    Ok(())
}

#[test]
fn where_the_driver_refuses_for_want_of_memory_its_pool_is_trimmed_and_it_is_asked_again()
-> Result<()> {
    let device = stepped();
    let out = Fault::of_call(DriverCall::Alloc, DriverError::OUT_OF_MEMORY);
    sim(&device).inject(out.clone());
    drop(device.alloc::<u8>(KIB)?);
    let calls = device.driver_calls().expect("counted");
    assert_eq!((calls.pool_trims, calls.allocs), (1, 2));
    // And told, with what there is, where that does not help.
    drop(in_flight(&device, 2 * KIB)?);
    sim(&device).inject(out.always());
    let Err(Error::OutOfMemory { requested, free, in_flight, cached, limit, .. }) =
        device.alloc::<u8>(8 * KIB)
    else {
        panic!("it was refused")
    };
    assert_eq!((requested, in_flight, cached), (8192, 0, 0), "what was kept was given back");
    // The last free may not have run when the pool was trimmed.
    assert!(free.is_some_and(|free| free >= (16 << 30) - 3072), "{free:?}");
    assert_eq!(limit, 16 << 30);
    Ok(())
}

#[test]
fn a_refused_step_of_running_out_loses_no_memory() -> Result<()> {
    for call in
        [DriverCall::Free, DriverCall::PoolTrim, DriverCall::StreamWait, DriverCall::EventRecord]
    {
        let device = small(4 * KIB as u64);
        drop((0..4).map(|_| in_flight(&device, KIB)).collect::<Result<Vec<_>>>()?);
        sim(&device).inject(Fault::of_call(call, DriverError::NOT_SUPPORTED).always());
        let asked = device.alloc::<u8>(4 * KIB);
        sim(&device).clear_faults();
        let MemoryStats { in_flight, cached, in_use, .. } = device.memory();
        let granted = asked.is_ok();
        assert_eq!(in_flight + cached + in_use, 4096, "{call:?}: {granted}");
        drop(asked);
        assert!(in_flight_again(&device).is_ok(), "{call:?}");
        assert_all_freed(&device);
    }
    Ok(())
}

fn in_flight_again(device: &Device) -> Result<()> {
    run_to_end(device);
    let x = in_flight(device, 4 * KIB)?;
    run_to_end(device);
    assert_eq!(elements(&x), [0; 4096]);
    Ok(())
}

#[test]
fn what_can_never_be_is_refused_at_once_and_the_driver_is_not_asked() -> Result<()> {
    let device = small(4 * KIB as u64);
    let _x = device.alloc::<u8>(1)?;
    let before = allocs(&device);
    assert!(is_out_of_memory(device.alloc::<u8>(4 * KIB + 1)));
    let mut waiting = device.alloc_wait::<u8>(4 * KIB + 1);
    assert!(matches!(poll_once(&mut waiting), Poll::Ready(Err(Error::OutOfMemory { .. }))));
    let tenant = device.tenant(100);
    let mut waiting = tenant.in_scope(|| device.alloc_wait::<u8>(101));
    assert!(matches!(poll_once(&mut waiting), Poll::Ready(Err(Error::OverBudget { .. }))));
    assert_eq!(allocs(&device), before);
    Ok(())
}

#[test]
fn the_statistics_follow_memory_from_use_to_the_system() -> Result<()> {
    let device = stepped();
    let told = || {
        let MemoryStats { in_use, in_flight, cached, reserved_high_water, .. } = device.memory();
        [in_use, in_flight, cached, reserved_high_water]
    };
    assert_eq!(told(), [0; 4]);
    let (x, y) = (in_flight(&device, 4 * KIB)?, in_flight(&device, 2 * KIB)?);
    assert_eq!(told(), [6144, 0, 0, 6144]);
    drop(x);
    assert_eq!(told(), [2048, 4096, 0, 6144]);
    run_to_end(&device);
    wait(device.synchronize())?;
    assert_eq!(told(), [2048, 0, 4096, 6144]);
    assert_eq!(wait(device.trim(4096))?, 0, "so much may stay");
    assert_eq!(wait(device.trim(0))?, 4096);
    assert_eq!(told(), [2048, 0, 0, 6144]);
    assert_eq!(sim(&device).live_device_bytes(), 2048);
    drop(y);
    assert_eq!(wait(device.trim(0))?, 2048);
    assert_eq!((told(), sim(&device).live_device_bytes()), ([0, 0, 0, 6144], 0));
    Ok(())
}

#[test]
fn a_trim_leaves_what_is_in_flight() -> Result<()> {
    let device = stepped();
    drop(in_flight(&device, KIB)?);
    assert_eq!(wait(device.trim(0))?, 0);
    run_to_end(&device);
    assert_eq!(wait(device.trim(0))?, 1024);
    Ok(())
}

#[test]
fn sixty_percent_again_and_again_on_another_task_is_never_out_of_memory() -> Result<()> {
    let device = small(10 * KIB as u64);
    let mut size = 6 * KIB;
    for round in 0..100 {
        // Of sizes that are no other's class, so that the driver is asked each time.
        size -= round % 2 * KIB / 2;
        drop(in_flight(&device, size)?);
        size = 6 * KIB;
        if round % 3 == 0 {
            sim(&device).step();
        }
    }
    assert!(device.memory().reserved_high_water <= 10 * KIB as u64);
    Ok(())
}

// cupy#8068: pools of streams that were gone kept their memory.
#[test]
fn memory_of_a_task_that_ended_is_there_for_others_with_nothing_declared() -> Result<()> {
    let device = own_device();
    let work = |device: Device| async move {
        let x = device.zeros::<u32>(1 << 16)?;
        x.slice(..1)?.to_vec().await.map(drop)
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
    let runtime = runtime.expect("a runtime");
    for _ in 0..100 {
        runtime.block_on(async { tokio::spawn(work(device.clone())).await.expect("no panic") })?;
    }
    let MemoryStats { in_use, reserved_high_water, .. } = device.memory();
    assert_eq!((in_use, reserved_high_water), (0, 1 << 18), "as much as one task has");
    Ok(())
}

#[test]
fn rounds_of_allocating_using_and_freeing_are_flat() -> Result<()> {
    let rounds = if cfg!(debug_assertions) { 20_000 } else { 1_000_000 };
    let device = own_device();
    for round in 0..rounds {
        let mut x = device.alloc::<u32>(64 + round % 7)?;
        loop {
            match x.fill(1) {
                Err(Error::QueueFull { .. }) => wait(device.current_stream().ready())?,
                filled => break filled.map(drop)?,
            }
        }
    }
    let MemoryStats { in_use, reserved_high_water, .. } = device.memory();
    // 256 to 280 bytes are of two sizes.
    assert_eq!((in_use, reserved_high_water, allocs(&device)), (0, 768, 2));
    Ok(())
}

// cuda-oxide#89: memory of a pool was freed by the wrong call.
#[test]
fn ten_thousand_random_buffers_are_freed_once_each_by_their_own_call() -> Result<()> {
    let device = own_device();
    let mut random = Random::new(89);
    let mut held: Vec<DeviceBuffer<u32>> = Vec::new();
    let mut parts = Vec::new();
    for _ in 0..10_000 {
        match random.below(6) {
            0 | 1 => held.push(device.alloc(1 + random.below(5_000))?),
            2 if !held.is_empty() => drop(held.swap_remove(random.below(held.len()))),
            3 if !held.is_empty() => {
                let x = held.swap_remove(random.below(held.len()));
                parts.extend(x.into_parts(1 + random.below(4)).map_err(|refused| refused.error)?);
            }
            4 if !parts.is_empty() => drop(parts.swap_remove(random.below(parts.len()))),
            5 if !held.is_empty() => {
                let at = random.below(held.len());
                let len = held[at].len();
                let (low, high) = held[at].split_at(len / 2)?;
                assert_eq!(low.len() + high.len(), len);
            }
            _ => {}
        }
        if random.below(1_000) == 0 {
            wait(device.trim(0))?;
        }
    }
    drop((held, parts));
    wait(device.synchronize())?;
    wait(device.trim(0))?;
    let calls = device.driver_calls().expect("counted");
    assert!(calls.allocs > 100);
    assert_eq!(calls.frees, calls.allocs);
    assert_eq!((calls.host_allocs, calls.host_frees), (0, 0));
    Ok(())
}

#[test]
fn a_tenant_has_its_budget_and_no_more() -> Result<()> {
    let device = stepped();
    let tenant = device.tenant(2048);
    let alloc = |len: usize| tenant.in_scope(|| device.alloc::<u8>(len));
    let x = alloc(1024)?;
    let y = alloc(1024)?;
    assert!(matches!(alloc(1), Err(Error::OverBudget { in_use: 2048, budget: 2048, .. })));
    let _outside = device.alloc::<u8>(1 << 20)?;
    drop(x);
    assert_eq!((tenant.memory().in_use, tenant.memory().high_water), (1024, 2048));
    let z = alloc(1024)?; // though what was there is in flight as far as is known
    // Wherever it goes, and in scopes of others.
    std::thread::spawn(move || drop((y, z))).join().expect("no panic");
    assert_eq!(tenant.memory().in_use, 0);
    let inner = tenant.in_scope(|| device.stream().in_scope(|| device.alloc::<u8>(4096)));
    assert!(matches!(inner, Err(Error::OverBudget { .. })));
    let other = device.tenant(1 << 20);
    let other = tenant.in_scope(|| other.in_scope(|| device.alloc::<u8>(4096)));
    assert!(other.is_ok(), "the innermost tenant counts");
    Ok(())
}

#[test]
fn tasks_spawned_in_a_tenants_scope_are_the_tenants() -> Result<()> {
    let device = own_device();
    let tenant = device.tenant(1 << 20);
    let task = |device: Device| async move { device.alloc::<u8>(1 << 19) };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let x = runtime.block_on(tenant.scope(async { headwater::spawn(task(device.clone())).await }));
    let x = x.expect("no panic")?;
    assert_eq!(tenant.memory().in_use, 1 << 19);
    drop(x);
    assert_eq!(tenant.memory().in_use, 0);
    Ok(())
}

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

#[test]
fn without_keeping_every_buffer_is_an_allocation_of_its_own() -> Result<()> {
    let device = stepped_with(|builder| builder.keep_memory(false));
    drop(device.alloc::<u8>(100)?);
    drop(device.alloc::<u8>(100)?);
    let calls = device.driver_calls().expect("counted");
    assert_eq!((calls.allocs, calls.frees), (2, 2));
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

#[test]
fn what_has_finished_since_it_was_looked_at_is_not_waited_for_under_pressure() -> Result<()> {
    let device = small(4 * KIB as u64);
    let mut x = device.stream().in_scope(|| device.alloc::<u8>(3 * KIB))?;
    let mut filled = device.stream().in_scope(|| x.fill(1))?;
    assert!(poll_once(&mut filled).is_pending(), "an event is recorded");
    run_to_end(&device); // of which nobody is told
    drop((filled, x));
    let waits = || device.driver_calls().expect("counted").stream_waits;
    let before = waits();
    let _y = in_flight(&device, 4 * KIB)?;
    assert_eq!(waits(), before);
    Ok(())
}

#[test]
fn what_nobody_uses_is_given_back_rather_than_what_is_in_flight() -> Result<()> {
    let device = small(4 * KIB as u64);
    let unused = in_flight(&device, 2 * KIB)?;
    run_to_end(&device);
    wait(device.synchronize())?;
    drop((unused, in_flight(&device, 1792)?));
    let _x = in_flight(&device, 1536)?;
    assert!(!last_waits(sim(&device)));
    Ok(())
}
