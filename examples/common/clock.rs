//! What time it is where the work runs.

use std::time::{Duration, Instant};

use headwater::Device;

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
