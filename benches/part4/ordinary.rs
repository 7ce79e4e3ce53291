//! Ordinary memory to the device and back, beside pinned memory.

use std::sync::Arc;
use std::time::Instant;

use headwater::{DeviceBuffer, block_on};

use crate::report::{Pair, Ratio, Report};
use crate::{Answer, Bench, cpu, micros};

const BASE_IS: &str = "cuMemcpyHtoDAsync or DtoHAsync of as much pinned memory";

/// Memory whose pages were touched before, both ways. Fresh memory on the way down is told beside it.
pub(crate) fn copies(bench: &Bench, report: &mut Report) -> Answer<()> {
    let bytes = bench.plan.ordinary;
    let source: Arc<[u8]> = (0..bytes).map(|i| i as u8).collect();
    let mut device = bench.device.zeros::<u8>(bytes)?;
    let memory = bench.raw.as_ref().map(|raw| raw.memory(bytes)).transpose()?;
    let mut back = vec![0u8; bytes];
    let (mut up, mut down, mut fresh, mut burnt) = (vec![], vec![], vec![], vec![]);
    for run in 0..=bench.plan.runs {
        let base = |up| match (&bench.raw, &memory) {
            (Some(raw), Some(memory)) => raw.copies(memory, up, 1),
            _ => Ok(f64::NAN),
        };
        let cpu = cpu::used();
        let ours = refill(&mut device, &source)?;
        let cpu_up = cpu::used() - cpu;
        let base_up = base(true)?;
        let cpu = cpu::used();
        let start = Instant::now();
        back = block_on(device.to_vec_in(back))?;
        let ours_down = micros(start);
        let cpu_down = cpu::used() - cpu;
        let base_down = base(false)?;
        if back[..] != source[..] {
            return Err("the bytes that came back are not those that went".into());
        }
        back.fill(0);
        let start = Instant::now();
        drop(block_on(device.to_vec())?);
        let ours_fresh = micros(start);
        // The first warms up.
        if run > 0 {
            up.push(Pair { ours, base: base_up });
            down.push(Pair { ours: ours_down, base: base_down });
            fresh.push(Pair { ours: ours_fresh, base: base_down });
            burnt.push((cpu_up + cpu_down).as_secs_f64() * 1e3 / (2.0 * bytes as f64 / 1e9));
        }
    }
    if let (Some(raw), Some(memory)) = (&bench.raw, memory) {
        raw.give_back(memory)?;
    }
    if bench.raw.is_none() {
        report.ours_alone("pageable_h2d", up.iter().map(|pair| pair.ours));
        return Ok(());
    }
    let rate = |pairs: &[Pair]| {
        pairs.iter().map(|pair| bytes as f64 / pair.ours / 1e3).fold(0.0, f64::max)
    };
    println!("  at best {:.1} GB/s up, {:.1} down", rate(&up), rate(&down));
    report.ratio("pageable_h2d", Ratio::OfBase, BASE_IS, &up)?;
    report.ratio("pageable_d2h", Ratio::OfBase, BASE_IS, &down)?;
    report.ratio("pageable_d2h_fresh_pages", Ratio::OfBase, BASE_IS, &fresh)?;
    report.number("pageable_cpu_per_gb", "ms", &burnt)
}

fn refill(device: &mut DeviceBuffer<u8>, source: &Arc<[u8]>) -> Answer<f64> {
    let start = Instant::now();
    block_on(device.refill(source.clone()))?;
    Ok(micros(start))
}
