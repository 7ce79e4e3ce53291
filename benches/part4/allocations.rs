//! Allocating device memory and freeing it, beside the driver's stream-ordered calls.

use std::time::Instant;

use headwater::Device;

use crate::report::{Pair, Ratio, Report};
use crate::{Answer, Bench, micros, worst};

const BASE_IS: &str =
    "cuMemAllocFromPoolAsync + cuMemFreeAsync on one stream, of a pool with the same settings";

pub(crate) fn allocations(bench: &Bench, report: &mut Report) -> Answer<()> {
    let rounds = bench.plan.rounds;
    let mut sizes = Vec::new();
    for &bytes in bench.plan.allocations {
        let mut runs = Vec::new();
        for run in 0..=bench.plan.runs {
            let ours = ours(&bench.device, bytes, rounds)?;
            let base = match &bench.raw {
                Some(raw) => raw.allocations(bytes, rounds)?,
                None => f64::NAN,
            };
            // The first warms up.
            if run > 0 {
                runs.push(Pair { ours, base });
            }
        }
        sizes.push((bytes, runs));
    }
    if bench.raw.is_none() {
        report.ours_alone("alloc_free", sizes[0].1.iter().map(|pair| pair.ours));
        return Ok(());
    }
    worst(report, ("alloc_free", Ratio::OfOurs), BASE_IS, sizes)
}

/// Microseconds of an allocation and its drop.
fn ours(device: &Device, bytes: usize, rounds: usize) -> Answer<f64> {
    let start = Instant::now();
    for _ in 0..rounds {
        drop(device.alloc::<u8>(bytes)?);
    }
    Ok(micros(start) / rounds as f64)
}
