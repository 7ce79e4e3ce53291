//! The figures of part 4: what memory costs, and how fast it is moved.
//!
//!     part4 [--json FILE]     on a GPU; a line of JSON for each figure into FILE
//!     part4 --dry-run         on the simulated device, tiny and without figures: the code runs
//!
//! Ours and the base take turns, in one process, on one context. A figure is the median of its runs,
//! its two times are those of the run in the middle; over several sizes, those of the worst size. Beside
//! numba the base is a process of its own, on the same GPU and in turn with ours.

mod allocations;
mod numba;
mod ordinary;
mod pinned;
mod prefetched;
mod raw_copies;

#[path = "../part1/cpu.rs"]
mod cpu;
#[path = "../common/raw.rs"]
#[allow(dead_code, reason = "whoever includes this file uses some of it")]
mod raw;
#[path = "../common/report.rs"]
#[allow(dead_code, reason = "whoever includes this file uses some of it")]
mod report;
#[path = "../common/steps.rs"]
mod steps;

#[path = "../../examples/common/clock.rs"]
mod clock;
#[path = "../../examples/common/kernels.rs"]
mod kernels;
#[path = "../../examples/common/pageable.rs"]
mod pageable;
#[path = "../../examples/common/pipeline.rs"]
mod pipeline;

use std::process::ExitCode;
use std::time::Instant;

use headwater::Device;

use raw_copies::RawCopies;
use report::{Pair, Ratio, Report};
use steps::{Args, Step, run_steps};

type Answer<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// How much of everything.
#[derive(Clone, Copy)]
struct Plan {
    /// Runs of a figure; odd, so that one of them is the median.
    runs: usize,
    /// Sizes of pinned copies, and how many bytes are moved of each by copies of that size.
    copies: &'static [usize],
    moved: usize,
    /// Bytes of ordinary memory.
    ordinary: usize,
    /// Sizes of allocations, and how many of each in a run.
    allocations: &'static [usize],
    rounds: usize,
    /// Bytes and number of prefetched batches, and rounds of arithmetic on each.
    batch: usize,
    batches: usize,
    work: u32,
    /// Elements of a chunk of the pipeline.
    chunk: usize,
}

const FULL: Plan = Plan {
    runs: 7,
    copies: &[1 << 20, 16 << 20, 256 << 20, 1 << 30],
    moved: 1 << 30,
    ordinary: 512 << 20,
    allocations: &[4 << 10, 1 << 20, 64 << 20],
    rounds: 2_000,
    batch: 64 << 20,
    batches: 24,
    work: 2_750,
    chunk: 1 << 22,
};

const DRY: Plan = Plan {
    runs: 1,
    copies: &[1 << 12, 1 << 14],
    moved: 1 << 15,
    ordinary: 1 << 20,
    allocations: &[1 << 10],
    rounds: 10,
    batch: 1 << 12,
    batches: 4,
    work: 1,
    chunk: 1 << 12,
};

/// What the measurements are made on.
struct Bench {
    device: Device,
    /// `None` in a dry run.
    raw: Option<RawCopies>,
    plan: Plan,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("part4: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Answer<()> {
    let args = Args::parse("part4")?;
    let device = args.open(Device::builder())?;
    let mut report = args.report(&device)?;
    let plan = if args.dry { DRY } else { FULL };
    let raw = if args.dry { None } else { Some(RawCopies::new(device.info().ordinal)?) };
    let bench = Bench { device, raw, plan };
    let steps: [(&str, Step<Bench>); 5] = [
        ("pinned copies", pinned::copies),
        ("ordinary memory", ordinary::copies),
        ("allocations", allocations::allocations),
        ("prefetch", prefetched::hidden),
        ("overlap beside numba", numba::overlap),
    ];
    let mut failed = Vec::new();
    run_steps(&bench, &steps, &mut report, &mut failed);
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n").into()) }
}

fn micros(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}

/// Reports the worst of several sizes: by the median of its runs.
fn worst(
    report: &mut Report,
    (id, ratio): (&str, Ratio),
    base_is: &str,
    sizes: Vec<(usize, Vec<Pair>)>,
) -> Answer<()> {
    let badness = |pairs: &[Pair]| {
        let costs: Vec<f64> = pairs.iter().map(|pair| pair.ours / pair.base).collect();
        report::percentile(&costs, 0.5)
    };
    for (size, pairs) in &sizes {
        let middle = badness(pairs);
        println!("  {id}: {} KiB: ours takes {middle:.3} times as long", size >> 10);
    }
    let worst = sizes.into_iter().max_by(|a, b| badness(&a.1).total_cmp(&badness(&b.1)));
    let (size, pairs) = worst.ok_or("no sizes")?;
    report.ratio(id, ratio, &format!("{base_is}; {} KiB, the worst size", size >> 10), &pairs)
}
