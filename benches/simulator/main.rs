//! How fast the simulated device is, with and without the race checker.
//!
//! `cargo bench --bench simulator` tells operations a second. `-- --operations N --race-check` runs so
//! many operations once and tells nothing: `.ci/instructions` counts what they take.

#![allow(unsafe_code, reason = "declares a kernel")]

use std::time::Instant;

use headwater::sim::{Schedule, SimOptions};
use headwater::{Device, DeviceBuffer, Error, Result, Stream};

#[headwater::kernels(ptx = include_str!("../../kernels/probe.ptx"))]
// SAFETY: thread i < n touches x[i] only; n is the length of x.
unsafe extern "C" {
    #[launch(items = x.len(), block = 256)]
    #[args(x, x.len() as u32)]
    #[twin(increment_on_host)]
    safe fn increment(x: &mut [u32]);
}

fn increment_on_host(x: &mut [u32]) {
    for x in x {
        *x = x.wrapping_add(1);
    }
}

/// Streams that take turns on a few buffers: every operation conflicts with one of another stream.
struct Load {
    streams: Vec<Stream>,
    buffers: Vec<DeviceBuffer<u32>>,
}

impl Load {
    fn new(device: &Device) -> Result<Self> {
        let streams: Vec<_> = (0..4).map(|_| device.stream()).collect();
        let buffers = (0..6).map(|_| device.zeros(64)).collect::<Result<_>>()?;
        Ok(Load { streams, buffers })
    }

    fn run(&mut self, operations: usize) -> Result<()> {
        for i in 0..operations {
            let stream = &self.streams[i % self.streams.len()];
            let x = i % self.buffers.len();
            loop {
                match stream.in_scope(|| increment(&mut self.buffers[x])) {
                    Err(Error::QueueFull { .. }) => headwater::block_on(stream.ready())?,
                    enqueued => break drop(enqueued?),
                }
            }
        }
        for stream in &self.streams {
            headwater::block_on(stream.synchronize())?;
        }
        Ok(())
    }
}

fn device(schedule: Schedule, race_check: bool) -> Result<Device> {
    let options = SimOptions::new().schedule(schedule);
    let builder = Device::builder().simulated_with(options).single_stream(false);
    builder.race_check(race_check).open()
}

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--operations") {
        let operations = arguments.get(at + 1).and_then(|count| count.parse().ok());
        let Some(operations) = operations else { panic!("--operations takes a number") };
        // In lock-step, so that the host's threads make no difference.
        let race_check = arguments.iter().any(|argument| argument == "--race-check");
        let device = device(Schedule::Lazy, race_check)?;
        return Load::new(&device)?.run(operations);
    }
    measure()
}

fn measure() -> Result<()> {
    const OPERATIONS: usize = 200_000;
    const RUNS: usize = 5;
    for race_check in [false, true] {
        let device = device(Schedule::Eager, race_check)?;
        let mut load = Load::new(&device)?;
        let mut rates = Vec::new();
        for _ in 0..RUNS {
            let start = Instant::now();
            load.run(OPERATIONS)?;
            rates.push(OPERATIONS as f64 / start.elapsed().as_secs_f64());
        }
        rates.sort_by(f64::total_cmp);
        let checked = if race_check { "checked for races" } else { "not checked" };
        println!(
            "{checked}: {:.0} operations/s ({:.0} to {:.0})",
            rates[RUNS / 2],
            rates[0],
            rates[RUNS - 1]
        );
        assert_eq!(device.races().unwrap_or_default(), []);
    }
    Ok(())
}
