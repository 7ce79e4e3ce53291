//! What operations call and allocate, counted on one stream.
//!
//! The driver's own allocations are not seen on a GPU, where it has an allocator of its own. The
//! simulated one allocates as the crate does: a dry run's counts are of both.

use headwater::{Completion, Device};

use crate::kernels::empty;
use crate::launches::buffers;
use crate::raw::LEN;
use crate::report::Report;
use crate::{Answer, Bench, Plan, Runtime, allocations};

/// Event calls and heap allocations, for each operation.
pub(crate) fn counted(bench: &Bench, report: &mut Report) -> Answer<()> {
    if bench.device.info().simulated {
        println!("  (simulated: allocations are the driver's too, and no figures)");
    }
    let runtime = Runtime::multi_thread()?;
    let (mut events, mut allocated) = (Vec::new(), Vec::new());
    for _ in 0..bench.plan.runs {
        let run = runtime.run(count_calls(bench.device.clone(), bench.plan))?;
        events.push(run.0);
        allocated.push(run.1);
    }
    report.number("extra_enqueue_event_calls", "calls a launch", &events)?;
    report.number("extra_enqueue_allocations", "allocations a launch", &allocated)?;
    let mut each = KINDS.map(|_| Vec::new());
    for _ in 0..bench.plan.runs {
        let run = runtime.run(count_each(bench.device.clone(), bench.plan))?;
        for (counts, count) in each.iter_mut().zip(run) {
            counts.push(count);
        }
    }
    for ((id, unit), counts) in KINDS.iter().zip(&each) {
        report.number(id, unit, counts)?;
    }
    Ok(())
}

/// Launches that nobody waits for, without a pause.
async fn count_calls(device: Device, plan: Plan) -> Answer<(f64, f64)> {
    let calls = || device.driver_calls().ok_or("the device does not count its driver calls");
    let (a, mut b) = buffers(&device)?;
    for _ in 0..plan.chain {
        drop(empty(&a, &mut b)?);
    }
    let (calls_before, allocations_before) = (calls()?, allocations::so_far());
    for _ in 0..plan.counted {
        drop(empty(&a, &mut b)?);
    }
    let allocated = allocations::so_far() - allocations_before;
    let calls = calls()?.since(&calls_before);
    device.current_stream().synchronize().await?;
    let events = calls.event_records
        + calls.event_queries
        + calls.event_creates
        + calls.event_destroys
        + calls.stream_waits;
    let launches = plan.counted as f64;
    Ok((events as f64 / launches, allocated as f64 / launches))
}

/// Operations whose allocations alone are counted: figure and unit.
const KINDS: [(&str, &str); 5] = [
    ("extra_launch_await_allocations", "allocations a launch and await"),
    ("extra_copy_up_allocations", "allocations a copy"),
    ("extra_copy_down_allocations", "allocations a copy"),
    ("extra_alloc_free_allocations", "allocations an alloc and free"),
    ("extra_fill_allocations", "allocations a fill"),
];

/// Allocations an operation, all threads counted, in the order of [`KINDS`].
async fn count_each(device: Device, plan: Plan) -> Answer<[f64; KINDS.len()]> {
    let (a, mut b) = buffers(&device)?;
    let (mut up, mut down) = (device.alloc_host::<f32>(LEN)?, device.alloc_host::<f32>(LEN)?);
    up.write().await?.fill(1.0);
    Ok([
        count(&device, plan, || Ok(Some(empty(&a, &mut b)?))).await?,
        count(&device, plan, || Ok(unawaited(b.copy_from(&up)?))).await?,
        count(&device, plan, || Ok(unawaited(a.copy_to(&mut down)?))).await?,
        count(&device, plan, || {
            drop(device.alloc::<f32>(LEN)?);
            Ok(None)
        })
        .await?,
        count(&device, plan, || Ok(unawaited(b.fill(1.0)?))).await?,
    ])
}

fn unawaited(_: Completion) -> Option<Completion> {
    None
}

/// Allocations an operation, in chains between which the device is drained. A completion that the
/// operation returns is awaited.
async fn count(
    device: &Device,
    plan: Plan,
    mut operation: impl FnMut() -> headwater::Result<Option<Completion>>,
) -> Answer<f64> {
    let chains = plan.counted.div_ceil(plan.chain);
    let mut allocated = 0;
    for chain in 0..=chains {
        let before = allocations::so_far();
        for _ in 0..plan.chain {
            if let Some(done) = operation()? {
                done.await?;
            }
        }
        if chain > 0 {
            // The first only warms up.
            allocated += allocations::so_far() - before;
        }
        device.current_stream().synchronize().await?;
    }
    Ok(allocated as f64 / (chains * plan.chain) as f64)
}
