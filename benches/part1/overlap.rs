//! The pipeline of the example `overlap` against what the machine allows.

use std::time::Duration;

use crate::kernels::pipeline as kernels;
use crate::report::{Pair, Ratio, Report};
use crate::{Answer, Bench};

#[path = "../../examples/common/clock.rs"]
mod clock;
#[path = "../../examples/common/pipeline.rs"]
mod pipeline;

const CHUNKS: usize = 16;
const STREAMS: usize = 4;

/// On four streams. The bound: the slowest of the parts alone (uploads, downloads, both at once,
/// kernels), after the first upload and before the last download, all taken in the same run.
pub(crate) fn overlap(bench: &Bench, report: &mut Report) -> Answer<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let runs = runtime.block_on(runs(bench))?;
    let base_is = "max(H2D, D2H, both at once, kernels) + first upload + last download";
    report.ratio("overlap_4_of_bound", Ratio::OfBase, base_is, &runs)
}

async fn runs(bench: &Bench) -> Answer<Vec<Pair>> {
    let mut pipeline =
        pipeline::Pipeline::new(&bench.device, CHUNKS, bench.plan.chunk, STREAMS).await?;
    for _ in 0..2 {
        pipeline.run(STREAMS).await?; // warm up
        pipeline.check().await?;
    }
    let mut runs = Vec::new();
    for run in 0..bench.plan.runs {
        // The check before has left the device alone for a while.
        pipeline.copies_both_ways().await?;
        // Half of the parts before what they bound and half after, in turn.
        let early = run % 2 == 0;
        let mut measured = Duration::ZERO;
        if !early {
            measured = pipeline.run(STREAMS).await?;
            pipeline.check().await?;
            pipeline.copies_both_ways().await?;
        }
        let up = pipeline.uploads_alone().await?;
        let down = pipeline.downloads_alone().await?;
        let both = pipeline.copies_both_ways().await?;
        let kernels = pipeline.kernels_alone().await?;
        if early {
            measured = pipeline.run(STREAMS).await?;
            pipeline.check().await?;
        }
        let slowest = up.max(down).max(both).max(kernels);
        let bound = slowest + (up + down) / CHUNKS as u32;
        println!(
            "  up {:.2}, down {:.2}, both {:.2}, kernels {:.2}: bound {:.2}, measured {:.2} ms",
            ms(up),
            ms(down),
            ms(both),
            ms(kernels),
            ms(bound),
            ms(measured)
        );
        runs.push(Pair { ours: ms(measured) * 1e3, base: ms(bound) * 1e3 });
    }
    Ok(runs)
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
