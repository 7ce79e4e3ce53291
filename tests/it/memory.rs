//! Device memory: who gets what was dropped, what is done when it runs out, budgets, and waiting in turn.

mod pressure;
mod waiting;

use headwater::sim::{Schedule, SimOptions};
use headwater::testing::assert_all_freed;
use headwater::{Device, DeviceBuffer, Error, MemoryStats, Result};

use crate::common::{
    Random, device_buffer, elements, last_waits, own_device, run_to_end, sim, simulated, stepped,
    stepped_with, wait,
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

#[test]
fn without_keeping_every_buffer_is_an_allocation_of_its_own() -> Result<()> {
    let device = stepped_with(|builder| builder.keep_memory(false));
    drop(device.alloc::<u8>(100)?);
    drop(device.alloc::<u8>(100)?);
    let calls = device.driver_calls().expect("counted");
    assert_eq!((calls.allocs, calls.frees), (2, 2));
    Ok(())
}
