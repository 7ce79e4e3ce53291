//! Copies between the device and pinned memory, beside the driver's.

use std::time::Instant;

use headwater::{DeviceBuffer, HostBuffer, block_on};

use crate::report::{Pair, Ratio, Report};
use crate::{Answer, Bench, micros, worst};

const BASE_IS: &str = "as many cuMemcpyHtoDAsync or DtoHAsync, then cuStreamSynchronize";

/// Copies of each size, enqueued one behind the other, until the last is done.
pub(crate) fn copies(bench: &Bench, report: &mut Report) -> Answer<()> {
    let (mut up, mut down) = (Vec::new(), Vec::new());
    for &bytes in bench.plan.copies {
        let mut host = bench.device.alloc_host::<u8>(bytes)?;
        host.blocking_write()?.fill(1);
        let mut device = bench.device.zeros::<u8>(bytes)?;
        let memory = bench.raw.as_ref().map(|raw| raw.memory(bytes)).transpose()?;
        let times = (bench.plan.moved / bytes).max(1);
        for (is_up, sizes) in [(true, &mut up), (false, &mut down)] {
            let mut runs = Vec::new();
            for run in 0..=bench.plan.runs {
                let ours = ours(&mut device, &mut host, is_up, times)?;
                let base = match (&bench.raw, &memory) {
                    (Some(raw), Some(memory)) => raw.copies(memory, is_up, times)?,
                    _ => f64::NAN,
                };
                // The first warms up.
                if run > 0 {
                    runs.push(Pair { ours, base });
                }
            }
            sizes.push((bytes, runs));
        }
        if let (Some(raw), Some(memory)) = (&bench.raw, memory) {
            raw.give_back(memory)?;
        }
        drop((host, device));
        block_on(bench.device.trim(0))?;
    }
    if bench.raw.is_none() {
        report.ours_alone("pinned_h2d", up[0].1.iter().map(|pair| pair.ours));
        return Ok(());
    }
    worst(report, ("pinned_h2d", Ratio::OfBase), BASE_IS, up)?;
    worst(report, ("pinned_d2h", Ratio::OfBase), BASE_IS, down)
}

fn ours(
    device: &mut DeviceBuffer<u8>,
    host: &mut HostBuffer<u8>,
    up: bool,
    times: usize,
) -> Answer<f64> {
    let start = Instant::now();
    for _ in 0..times - 1 {
        match up {
            true => device.copy_from(host)?,
            false => device.copy_to(host)?,
        };
    }
    let last = if up { device.copy_from(host)? } else { device.copy_to(host)? };
    block_on(last)?;
    Ok(micros(start))
}
