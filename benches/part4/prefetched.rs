//! How much of the copying hides behind the work, where batches are prefetched.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use headwater::{Completion, Device, DeviceBuffer, Elapsed, Prefetch, Stream};

use crate::clock::device_time;
use crate::kernels::mix;
use crate::report::Report;
use crate::{Answer, Bench};

/// The first steps fill the pipeline, and are not timed.
const UNTIMED: usize = 2;

/// The share of the shorter of copy and work that a step is not longer than the work alone. By events on the device:
/// from the start of one step's work to the end of the last one's, the work alone, and a copy of as much pinned
/// memory, which is shorter than the upload that is hidden.
pub(crate) fn hidden(bench: &Bench, report: &mut Report) -> Answer<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let mut runs = Vec::new();
    for run in 0..=bench.plan.runs {
        let hidden = runtime.block_on(one(bench))?;
        // The first warms up.
        if run > 0 {
            runs.push(hidden);
        }
    }
    if bench.raw.is_none() {
        report.ours_alone("prefetch_hidden", runs.into_iter());
        return Ok(());
    }
    report.number("prefetch_hidden", "of the shorter", &runs)
}

async fn one(bench: &Bench) -> Answer<f64> {
    let (device, plan) = (&bench.device, bench.plan);
    let batch: Arc<[u8]> = (0..plan.batch).map(|i| (i % 251) as u8 + 1).collect();
    let stream = device.stream();
    let (copy, work) = alone(device, &stream, plan.batch, plan.work).await?;
    let sources = stream::iter((0..plan.batches).map(|_| batch.clone()));
    let mut batches = std::pin::pin!(Prefetch::new(device, sources).enumerate());
    let mut before: Option<(DeviceBuffer<u8>, Completion)> = None;
    let mut start = None;
    while let Some((step, batch)) = batches.next().await {
        let mut batch = batch?;
        if step == UNTIMED {
            start = Some(stream.record_timed()?);
        }
        let done = stream.in_scope(|| work_on(&mut batch, plan.work))?;
        // One step is on the device while the next one is enqueued.
        if let Some((batch, done)) = before.replace((batch, done)) {
            done.await?;
            drop(batch);
        }
    }
    let end = stream.record_timed()?;
    (&end).await?;
    let start = start.ok_or("too few batches")?;
    let Elapsed::Time(all) = end.elapsed_since(&start)? else { return Err("no times".into()) };
    let step = all.as_secs_f64() / (plan.batches - UNTIMED) as f64;
    let (copy, work) = (copy.as_secs_f64(), work.as_secs_f64());
    let ms = |seconds: f64| seconds * 1e3;
    println!("  copy {:.3}, work {:.3}, step {:.3} ms", ms(copy), ms(work), ms(step));
    Ok(1.0 - (step - work).max(0.0) / copy.min(work))
}

/// Device times of a copy of pinned memory, and of the work on a batch, each with nothing beside it.
async fn alone(
    device: &Device,
    stream: &Stream,
    bytes: usize,
    rounds: u32,
) -> Answer<(Duration, Duration)> {
    const TIMES: u32 = 4;
    let mut host = device.alloc_host::<u8>(bytes)?;
    host.write().await?.fill(1);
    let mut batch = stream.in_scope(|| device.zeros::<u8>(bytes))?;
    let copies = || (0..TIMES).try_for_each(|_| batch.copy_from(&host).map(drop));
    let copy = device_time(stream, copies).await?;
    let works = || (0..TIMES).try_for_each(|_| work_on(&mut batch, rounds).map(drop));
    let work = device_time(stream, works).await?;
    Ok((copy / TIMES, work / TIMES))
}

fn work_on(batch: &mut DeviceBuffer<u8>, rounds: u32) -> headwater::Result<Completion> {
    mix(batch.cast_mut::<u32>()?, rounds)
}
