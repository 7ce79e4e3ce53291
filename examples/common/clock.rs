//! What time it is where the work runs, and how long it took there.
#![allow(dead_code, reason = "whoever includes this file asks for one or the other")]

use std::time::{Duration, Instant};

use headwater::{Device, Elapsed, Result, Stream};

/// Wall time on a GPU; on a simulated device the virtual time of its host.
pub(crate) struct Clock<'a> {
    device: &'a Device,
    wall: Instant,
    /// The simulated host's clock, in nanoseconds.
    virtual_ns: u64,
}

impl<'a> Clock<'a> {
    pub(crate) fn start(device: &'a Device) -> Self {
        let virtual_ns = device.simulator().map_or(0, |simulator| simulator.host_now());
        Clock { device, wall: Instant::now(), virtual_ns }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        match self.device.simulator() {
            Some(simulator) => Duration::from_nanos(simulator.host_now() - self.virtual_ns),
            None => self.wall.elapsed(),
        }
    }
}

/// Device time of what `enqueue` puts on `stream`, by events.
pub(crate) async fn device_time(
    stream: &Stream,
    enqueue: impl FnOnce() -> Result<()>,
) -> Result<Duration> {
    let start = stream.record_timed()?;
    stream.in_scope(enqueue)?;
    let end = stream.record_timed()?;
    (&end).await?;
    match end.elapsed_since(&start)? {
        Elapsed::Time(time) => Ok(time),
        other => panic!("both events were recorded with timing and awaited, yet: {other:?}"),
    }
}
