//! Launches of an empty kernel: awaited one by one, and enqueued in chains.

use std::sync::Arc;
use std::time::Instant;

use headwater::{Device, DeviceBuffer};

use crate::kernels::empty;
use crate::raw::{LEN, Raw};
use crate::report::{Pair, Ratio, Report, percentile};
use crate::{Answer, Bench, Plan, Runtime, micros};

const SYNCHRONIZE: &str = "cuLaunchKernel + cuStreamSynchronize";

/// From before the launch until the end is known, in microseconds.
#[derive(Default)]
struct Latencies {
    ours: Vec<f64>,
    /// By `cuStreamSynchronize`.
    synchronized: Vec<f64>,
    /// By `cuEventRecord`, then `cuEventQuery` again and again.
    spun: Vec<f64>,
}

impl Latencies {
    /// Ours and the synchronizing base at a percentile.
    fn pair(&self, share: f64) -> Pair {
        let (ours, base) = (&self.ours, &self.synchronized);
        Pair { ours: percentile(ours, share), base: percentile(base, share) }
    }
}

/// Launch and await, on each runtime.
pub(crate) fn awaited(bench: &Bench, report: &mut Report) -> Answer<()> {
    let runtimes: [(&str, &str, Runtime); 3] = [
        ("launch_await_multi_thread", "multi_thread", Runtime::multi_thread()?),
        ("launch_await_current_thread", "current_thread", Runtime::current_thread()?),
        // Asked for by a later part: not under the name of its row.
        ("extra_launch_await_block_on", "block_on", Runtime::BlockOn),
    ];
    for (id, name, runtime) in &runtimes {
        let mut runs = Vec::new();
        for _ in 0..bench.plan.runs {
            let (device, raw) = (bench.device.clone(), bench.raw.clone());
            runs.push(runtime.run(await_in_turn(device, raw, bench.plan))?);
        }
        if bench.raw.is_none() {
            report.ours_alone(id, runs.iter().map(|run| percentile(&run.ours, 0.5)));
            continue;
        }
        let pairs = |share| runs.iter().map(|run| run.pair(share)).collect::<Vec<_>>();
        report.ratio(id, Ratio::OfOurs, SYNCHRONIZE, &pairs(0.5))?;
        let p99 = format!("extra_launch_await_p99_{name}");
        report.ratio(&p99, Ratio::OfOurs, SYNCHRONIZE, &pairs(0.99))?;
        let spun: Vec<_> = runs
            .iter()
            .map(|run| Pair { base: percentile(&run.spun, 0.5), ..run.pair(0.5) })
            .collect();
        let by_spin = format!("extra_launch_await_of_spin_{name}");
        let base_is = "cuLaunchKernel + cuEventRecord + spin on cuEventQuery";
        report.ratio(&by_spin, Ratio::OfOurs, base_is, &spun)?;
    }
    Ok(())
}

/// Blocks of each kind in turn, in one task; each block begins with what came last before.
async fn await_in_turn(device: Device, raw: Option<Arc<Raw>>, plan: Plan) -> Answer<Latencies> {
    let (a, mut b) = buffers(&device)?;
    let mut out = Latencies::default();
    for list in [&mut out.ours, &mut out.synchronized, &mut out.spun] {
        list.reserve((plan.blocks + 1) * plan.block);
    }
    for block in 0..=plan.blocks {
        for kind in 0..3 {
            match (kind + block) % 3 {
                0 => {
                    for _ in 0..plan.block {
                        let start = Instant::now();
                        empty(&a, &mut b)?.await?;
                        out.ours.push(micros(start));
                    }
                }
                1 => await_raw(&raw, plan.block, &mut out.synchronized, Raw::synchronize)?,
                _ => await_raw(&raw, plan.block, &mut out.spun, Raw::record_and_spin)?,
            }
        }
        if block == 0 {
            // Only to warm up.
            for list in [&mut out.ours, &mut out.synchronized, &mut out.spun] {
                list.clear();
            }
        }
    }
    Ok(out)
}

fn await_raw(
    raw: &Option<Arc<Raw>>,
    launches: usize,
    out: &mut Vec<f64>,
    finish: impl Fn(&Raw) -> Answer<()>,
) -> Answer<()> {
    let Some(raw) = raw else { return Ok(()) };
    let _current = raw.enter()?;
    for _ in 0..launches {
        let start = Instant::now();
        raw.launch()?;
        finish(raw)?;
        out.push(micros(start));
    }
    Ok(())
}

/// What enqueuing costs where nobody awaits, in a spawned task.
pub(crate) fn enqueued(bench: &Bench, report: &mut Report) -> Answer<()> {
    let id = "enqueue_launch";
    let runtime = Runtime::multi_thread()?;
    let mut runs = Vec::new();
    for _ in 0..bench.plan.runs {
        let (device, raw) = (bench.device.clone(), bench.raw.clone());
        runs.push(runtime.run(enqueue_in_turn(device, raw, bench.plan))?);
    }
    if bench.raw.is_none() {
        report.ours_alone(id, runs.iter().map(|run| run.ours));
        return Ok(());
    }
    report.ratio(id, Ratio::OfOurs, "cuLaunchKernel", &runs)
}

/// Microseconds a launch: the medians of the chains. The streams are drained between the chains,
/// outside the times.
async fn enqueue_in_turn(device: Device, raw: Option<Arc<Raw>>, plan: Plan) -> Answer<Pair> {
    let (a, mut b) = buffers(&device)?;
    let (mut ours, mut base) = (Vec::new(), Vec::new());
    let each = |start: Instant| micros(start) / plan.chain as f64;
    for chain in 0..=plan.chains {
        for kind in 0..2 {
            if (kind + chain) % 2 == 0 {
                let start = Instant::now();
                for _ in 0..plan.chain {
                    drop(empty(&a, &mut b)?);
                }
                ours.push(each(start));
                device.current_stream().synchronize().await?;
            } else if let Some(raw) = &raw {
                let _current = raw.enter()?;
                let start = Instant::now();
                for _ in 0..plan.chain {
                    raw.launch()?;
                }
                base.push(each(start));
                raw.synchronize()?;
            }
        }
        if chain == 0 {
            // Only to warm up.
            ours.clear();
            base.clear();
        }
    }
    Ok(Pair { ours: percentile(&ours, 0.5), base: percentile(&base, 0.5) })
}

/// As the raw side has them.
pub(crate) fn buffers(device: &Device) -> Answer<(DeviceBuffer<f32>, DeviceBuffer<f32>)> {
    Ok((device.zeros(LEN)?, device.zeros(LEN)?))
}
