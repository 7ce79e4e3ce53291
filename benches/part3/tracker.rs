//! What keeping track costs: time for an operation among many ranges, memory for a buffer.

use std::time::Instant;

use headwater::{Device, DeviceBuffer, Stream};

use crate::kernels::empty;
use crate::raw::{LEN, Raw};
use crate::report::{Report, percentile};
use crate::{Answer, Bench, allocated};

/// Operations between which nothing is waited for: fewer than two streams take.
const OPERATIONS: usize = 1_000;

/// Launches of an empty kernel on ranges of one buffer in turn, by two streams of which each has every
/// other range: nothing is waited for, and the buffer is not private to one stream, but where there is one
/// range.
struct Ranges {
    streams: [Stream; 2],
    /// Each stream's own.
    read: [DeviceBuffer<f32>; 2],
    buffer: DeviceBuffer<f32>,
}

impl Ranges {
    fn new(device: &Device, ranges: usize) -> Answer<Self> {
        let streams = [device.stream(), device.stream()];
        let read = [device.zeros(LEN)?, device.zeros(LEN)?];
        let ranges = Ranges { streams, read, buffer: device.zeros(ranges * LEN)? };
        // Else it is handed over to the streams in flight, and is memory that several share.
        headwater::block_on(device.synchronize())?;
        Ok(ranges)
    }

    /// Nanoseconds an operation.
    fn run(&mut self) -> Answer<f64> {
        let ranges = self.buffer.len() / LEN;
        let start = Instant::now();
        for operation in 0..OPERATIONS {
            let range = operation % ranges;
            let place = self.buffer.slice_mut(range * LEN..(range + 1) * LEN)?;
            let stream = &self.streams[range % 2];
            drop(stream.in_scope(|| empty(&self.read[range % 2], place))?);
        }
        let nanoseconds = crate::micros(start) * 1e3 / OPERATIONS as f64;
        for stream in &self.streams {
            headwater::block_on(stream.synchronize())?;
        }
        Ok(nanoseconds)
    }
}

/// Beyond what the raw launch takes, for an operation among 1 to 1,000 live ranges.
pub(crate) fn ranges(bench: &Bench, report: &mut Report) -> Answer<()> {
    let raw = if bench.dry { None } else { Some(Raw::new(bench.device.info().ordinal)?) };
    for ranges in [1, 4, 16, 64, 1_000] {
        let mut memory = Ranges::new(&bench.device, ranges)?;
        let mut runs = Vec::new();
        for _ in 0..=bench.plan.runs {
            let (mut ours, mut base) = (Vec::new(), Vec::new());
            for _ in 0..bench.plan.grids {
                ours.push(memory.run()?);
                if let Some(raw) = &raw {
                    base.push(launches(raw)?);
                }
            }
            let base = if raw.is_some() { percentile(&base, 0.5) } else { 0.0 };
            runs.push(percentile(&ours, 0.5) - base);
        }
        runs.remove(0); // only to warm up
        let id = format!("extra_tracker_ns_{ranges}_ranges");
        match raw {
            Some(_) => report.number(&id, "ns beyond cuLaunchKernel", &runs)?,
            None => report.ours_alone(&id, runs.into_iter()),
        }
    }
    Ok(())
}

/// Nanoseconds a raw launch.
fn launches(raw: &Raw) -> Answer<f64> {
    let _current = raw.enter()?;
    let start = Instant::now();
    for _ in 0..OPERATIONS {
        raw.launch()?;
    }
    let nanoseconds = crate::micros(start) * 1e3 / OPERATIONS as f64;
    raw.synchronize()?;
    Ok(nanoseconds)
}

/// Bytes of host memory for a buffer: the handle and what is behind it, fresh and with 1,000 ranges in
/// flight.
pub(crate) fn memory(bench: &Bench, report: &mut Report) -> Answer<()> {
    const BUFFERS: usize = 1_000;
    let device = &bench.device;
    if device.info().simulated {
        println!("  (simulated: what the driver keeps is in it, and these are no figures)");
    }
    let (mut fresh, mut many) = (Vec::new(), Vec::new());
    for _ in 0..bench.plan.runs {
        let before = allocated::now();
        let mut buffers = Vec::with_capacity(BUFFERS);
        for _ in 0..BUFFERS {
            buffers.push(device.alloc::<f32>(LEN)?);
        }
        fresh.push((allocated::now() - before) as f64 / BUFFERS as f64);
        drop(buffers);
        headwater::block_on(device.synchronize())?;
        let mut ranges = Ranges::new(device, 1_000)?;
        ranges.run()?;
        let before = allocated::now();
        drop(ranges.buffer);
        many.push((before - allocated::now()) as f64);
        headwater::block_on(device.synchronize())?;
    }
    report.number("extra_tracked_buffer_bytes", "bytes", &fresh)?;
    report.number("extra_tracked_buffer_1000_ranges_bytes", "bytes", &many)
}
