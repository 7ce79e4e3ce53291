//! The figures of part 3: what it costs that streams are ordered by themselves.
//!
//!     part3 [--json FILE]     on a GPU; a line of JSON for each figure into FILE
//!     part3 --dry-run         on the simulated device, tiny and without figures: the code runs
//!
//! Ours and the base take turns, in one thread of one process, on one context. A figure is the
//! median of its runs, its two times are those of the run in the middle.

mod allocated;
mod grid;
mod raw_grid;
mod slices;
mod tracker;

#[path = "../common/raw.rs"]
#[allow(dead_code, reason = "whoever includes this file uses some of it")]
mod raw;
#[path = "../common/report.rs"]
#[allow(dead_code, reason = "whoever includes this file uses some of it")]
mod report;
#[path = "../common/steps.rs"]
mod steps;

#[path = "../../tests/it/kernels.rs"]
mod kernels;

use std::process::ExitCode;
use std::time::Instant;

use headwater::Device;

use steps::{Args, Step, run_steps};

type Answer<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// How much of everything.
#[derive(Clone, Copy)]
struct Plan {
    /// Runs of a figure; odd, so that one of them is the median.
    runs: usize,
    /// Times that a grid is enqueued, in a run, by each side; the same of everything else.
    grids: usize,
    /// Operations of each stream on slices.
    rounds: usize,
    /// Rounds of arithmetic in each of these.
    work: u32,
}

const FULL: Plan = Plan { runs: 7, grids: 10, rounds: 60, work: 9_000 };
const DRY: Plan = Plan { runs: 1, grids: 1, rounds: 4, work: 1 };

/// What the measurements are made on.
struct Bench {
    device: Device,
    plan: Plan,
    dry: bool,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("part3: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Answer<()> {
    let args = Args::parse("part3")?;
    let device = args.open(Device::builder())?;
    let mut report = args.report(&device)?;
    let plan = if args.dry { DRY } else { FULL };
    let bench = Bench { device, plan, dry: args.dry };
    let steps: [(&str, Step<Bench>); 4] = [
        ("stencil grid", grid::stencil),
        ("slices", slices::slices),
        ("ranges", tracker::ranges),
        ("memory", tracker::memory),
    ];
    let mut failed = Vec::new();
    run_steps(&bench, &steps, &mut report, &mut failed);
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n").into()) }
}

fn micros(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}
