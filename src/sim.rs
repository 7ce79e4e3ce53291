//! The simulated device: its options, its cost model, and the handle by which a test drives it.
//!
//! Under [`Schedule::Stepped`] nothing runs until the test says so, so nothing that
//! is awaited ends either: enqueue, look, step, then await.
//!
//! ```
//! use headwater::sim::{Schedule, SimOptions};
//! use headwater::{Device, Result};
//!
//! # fn main() -> Result<()> {
//! let options = SimOptions::new().schedule(Schedule::Stepped);
//! // On many streams, whatever HEADWATER_SINGLE_STREAM says.
//! let device = Device::builder().simulated_with(options).single_stream(false).open()?;
//! let Some(sim) = device.simulator() else { unreachable!("it was opened as one") };
//!
//! let (a, b) = (device.stream(), device.stream());
//! let mut x = a.in_scope(|| device.zeros::<u32>(1000))?;
//! let mut y = b.in_scope(|| device.zeros::<u32>(1000))?;
//! // Both could run now: neither waits for the other.
//! assert!(sim.pending().iter().all(|op| op.runnable));
//! sim.run_all();
//!
//! // One that touches both waits for both, whatever stream it is on.
//! b.in_scope(|| y.fill(1))?;
//! a.in_scope(|| x.copy_from(&y))?;
//! let runnable: Vec<_> = sim.pending().iter().map(|op| (op.stream, op.runnable)).collect();
//! assert_eq!(runnable, [(b.as_raw(), true), (a.as_raw(), false)]);
//! sim.run_all();
//! headwater::block_on(a.synchronize())
//! # }
//! ```
//!
//! Under [`Schedule::Lazy`] an operation runs only if something needs it, under
//! [`Schedule::Random`] in any order that streams and waits allow, by a seed: what waits too little
//! gets wrong bytes there. A device that does not move any more says [who waits for
//! whom](Simulator::stuck), and ends after a [while](SimOptions::stall_limit).
//!
//! Times are virtual, by the [`CostModel`]: a launch costs the host 3 us, so shorter
//! kernels never overlap in [`timeline`](Simulator::timeline). Declare what a kernel takes
//! (`nanoseconds = …` or `arithmetic = …`), or assert on what is runnable, as above. Between tasks
//! the times also depend on the host's threads: see [`timeline`](Simulator::timeline).
//!
//! Several devices are opened on one [`SimMachine`].
//!
//! What a program makes of a driver that refuses, or of a device that fails, is slow, or never ends
//! an operation, is tried with a [`Fault`]. A test that passed has no
//! [`violations`](Simulator::violations).

pub use crate::driver::sim::{
    CostModel, Fault, Injected, Pageable, Schedule, SimEngine, SimMachine, SimOp, SimOpKind,
    SimOptions, SimSpan, Simulator, Stuck, StuckStream, Violation, WaitsFor,
};
use crate::error::{Error, Result};

impl SimMachine {
    /// A machine of 1 to 1,024 devices with these options. None is open yet; a fault of the options
    /// is the machine's, and counts the calls of all devices.
    ///
    /// # Errors
    ///
    /// [`Error::BadSetting`] for another number of devices.
    pub fn new(devices: usize, options: SimOptions) -> Result<SimMachine> {
        if !(1..=SimMachine::MOST_DEVICES).contains(&devices) {
            let given = devices.to_string();
            return Err(Error::BadSetting { name: "devices", given, allowed: "1 to 1024" });
        }
        Ok(SimMachine::with(devices, options))
    }
}
pub use crate::driver::{DevicePtr, DriverCall};
