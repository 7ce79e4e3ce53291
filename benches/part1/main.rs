//! The figures of part 1: what waiting and enqueuing cost beside the raw driver calls, how much
//! the pipeline of `overlap` overlaps, and whether an idle device is left alone.
//!
//!     part1 [--json FILE]     on a GPU; a line of JSON for each figure into FILE
//!     part1 --dry-run         on the simulated device, tiny and without figures: the code runs
//!
//! Ours and the raw calls take turns in blocks, in one thread of one process, on one context. A
//! figure is the median of its runs, its two times are those of the run in the middle.

mod allocations;
mod counts;
mod cpu;
mod launches;
mod overlap;
mod waits;

#[path = "../common/raw.rs"]
mod raw;
#[path = "../common/report.rs"]
mod report;
#[path = "../common/steps.rs"]
mod steps;

#[path = "../../tests/it/kernels.rs"]
mod kernels;

use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headwater::Device;

use raw::Raw;
use steps::{Args, Step, run_steps};

type Answer<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// How much of everything.
#[derive(Clone, Copy)]
struct Plan {
    /// Runs of a figure; odd, so that one of them is the median.
    runs: usize,
    /// Blocks of launches awaited one by one, in a run, of each kind.
    blocks: usize,
    /// Launches in a block.
    block: usize,
    /// Chains of launches that nobody awaits, in a run, of each kind.
    chains: usize,
    /// Launches in a chain: fewer than a stream takes before it blocks.
    chain: usize,
    /// Operations of each kind of which the event calls and allocations are counted.
    counted: usize,
    /// Elements in each of the pipeline's chunks.
    chunk: usize,
    /// Kernels of 1 ms to be awaited, in a run.
    waits: usize,
    /// How long to leave the device alone, and how often.
    idle: (Duration, usize),
}

const FULL: Plan = Plan {
    runs: 7,
    blocks: 16,
    block: 250,
    chains: 40,
    chain: 200,
    counted: 4_000,
    chunk: 1 << 22,
    waits: 400,
    idle: (Duration::from_secs(5), 3),
};

const DRY: Plan = Plan {
    runs: 3,
    blocks: 2,
    block: 5,
    chains: 2,
    chain: 20,
    counted: 100,
    chunk: 1 << 12,
    waits: 5,
    idle: (Duration::from_millis(50), 1),
};

/// What the measurements are made on.
struct Bench {
    device: Device,
    /// `None` in a dry run.
    raw: Option<Arc<Raw>>,
    plan: Plan,
}

/// How a future is run to its end.
enum Runtime {
    /// In a spawned task.
    Tokio(tokio::runtime::Runtime),
    /// By [`headwater::block_on`], in the thread itself.
    BlockOn,
}

impl Runtime {
    fn multi_thread() -> Answer<Self> {
        Ok(Runtime::Tokio(tokio::runtime::Builder::new_multi_thread().build()?))
    }

    fn current_thread() -> Answer<Self> {
        Ok(Runtime::Tokio(tokio::runtime::Builder::new_current_thread().build()?))
    }

    fn run<T: Send + 'static>(
        &self,
        future: impl Future<Output = Answer<T>> + Send + 'static,
    ) -> Answer<T> {
        match self {
            Runtime::Tokio(runtime) => {
                runtime.block_on(async { headwater::spawn(future).await })?
            }
            Runtime::BlockOn => headwater::block_on(future),
        }
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("part1: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Answer<()> {
    let args = Args::parse("part1")?;
    let dry = args.dry;
    let plan = if dry { DRY } else { FULL };
    let open = |counting: bool| args.open(Device::builder().count_driver_calls(counting));
    let device = open(false)?;
    let mut report = args.report(&device)?;
    let raw = if dry { None } else { Some(Arc::new(Raw::new(device.info().ordinal)?)) };

    let timed = Bench { device, raw, plan };
    let mut failed = Vec::new();
    let steps: [(&str, Step<Bench>); 4] = [
        ("launch and await", launches::awaited),
        ("enqueue", launches::enqueued),
        ("overlap", overlap::overlap),
        ("wait for 1 ms", waits::one_millisecond),
    ];
    run_steps(&timed, &steps, &mut report, &mut failed);
    // Times are taken where nobody counts, counts on a device of their own.
    drop(timed);
    let counted = Bench { device: open(true)?, raw: None, plan };
    let steps: [(&str, Step<Bench>); 2] = [("count", counts::counted), ("idle", waits::idle)];
    run_steps(&counted, &steps, &mut report, &mut failed);
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n").into()) }
}

fn micros(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}
