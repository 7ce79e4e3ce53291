//! Waiting for kernels that take a while, and not waiting for anything.

use std::time::Instant;

use headwater::{Device, DeviceBuffer};

use crate::kernels::delay;
use crate::report::Report;
use crate::{Answer, Bench, Plan, Runtime, cpu};

const MILLISECOND: u64 = 1_000_000;

/// Share of a processor core that a task takes, all threads of the process counted, while it
/// awaits kernels of 1 ms, give or take a tenth.
pub(crate) fn one_millisecond(bench: &Bench, report: &mut Report) -> Answer<()> {
    let runtimes = [
        ("extra_wait_1ms_cpu", Runtime::multi_thread()?),
        ("extra_wait_1ms_block_on_cpu", Runtime::BlockOn),
    ];
    for (id, runtime) in &runtimes {
        let mut runs = Vec::new();
        for seed in 0..bench.plan.runs as u64 {
            runs.push(runtime.run(await_delays(bench.device.clone(), bench.plan.waits, seed))?);
        }
        report.number(id, "% of a core", &runs)?;
    }
    Ok(())
}

async fn await_delays(device: Device, waits: usize, seed: u64) -> Answer<f64> {
    let mut witness: DeviceBuffer<u32> = device.zeros(1)?;
    let mut random = seed;
    // The first ones teach how long it takes.
    let warm_up = waits.min(20);
    let mut begun = (Instant::now(), cpu::used());
    for wait in 0..warm_up + waits {
        if wait == warm_up {
            begun = (Instant::now(), cpu::used());
        }
        // Knuth's MMIX generator: good enough above, and the same everywhere.
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let tenth = MILLISECOND / 10;
        let nanoseconds = MILLISECOND - tenth + (random >> 33) % (2 * tenth);
        delay(&mut witness, nanoseconds)?.await?;
    }
    let (wall, used) = (begun.0.elapsed(), cpu::used() - begun.1);
    Ok(100.0 * used.as_secs_f64() / wall.as_secs_f64())
}

/// Event queries while nothing is waited for, after work that was.
pub(crate) fn idle(bench: &Bench, report: &mut Report) -> Answer<()> {
    let (length, times) = bench.plan.idle;
    let runtime = Runtime::multi_thread()?;
    let calls = || bench.device.driver_calls().ok_or("the device does not count its driver calls");
    let (mut queries, mut used) = (Vec::new(), Vec::new());
    for _ in 0..times {
        runtime.run(work(bench.device.clone(), bench.plan))?;
        let before = (calls()?, cpu::used());
        std::thread::sleep(length);
        used.push((cpu::used() - before.1).as_secs_f64() * 1e3);
        queries.push(calls()?.since(&before.0).event_queries as f64);
    }
    report.number("idle_queries", "queries", &queries)?;
    report.number("extra_idle_cpu", "ms", &used)
}

/// Tasks that await, launches that nobody does, and a wait that is given up.
async fn work(device: Device, plan: Plan) -> Answer<()> {
    let tasks: Vec<_> = (0..16)
        .map(|_| headwater::spawn(await_delays(device.clone(), plan.waits.min(20), 0)))
        .collect();
    for task in tasks {
        task.await??;
    }
    let mut witness: DeviceBuffer<u32> = device.zeros(1)?;
    for _ in 0..plan.chain {
        drop(delay(&mut witness, 1_000)?);
    }
    // Polled, so that it is looked after, then dropped before it is ready.
    let mut abandoned = delay(&mut witness, MILLISECOND)?;
    let _ = futures::poll!(&mut abandoned);
    drop(abandoned);
    device.current_stream().synchronize().await?;
    Ok(())
}
