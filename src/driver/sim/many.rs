//! A machine of simulated devices, and opening one of them.

use std::fmt;
use std::sync::Arc;

use super::compute::LEVELS;
use super::control::Simulator;
use super::device::SimDriver;
use super::machine::Machine;
use super::options::SimOptions;
use crate::driver::{DeviceInfo, Driver};

/// CUDA's priorities: the least urgent and the most, one for each level of urgency.
pub(super) const PRIORITIES: (i32, i32) = (0, 1 - LEVELS as i32);

/// A machine with one simulated device, and the handle that drives it.
///
/// When the last driver handle goes, what can still run under the schedule runs, the rest is
/// dropped, and the executor thread ends. Page-locked memory not freed goes with the machine.
pub(crate) fn open(options: SimOptions) -> (Arc<dyn Driver>, Simulator) {
    SimMachine::with(1, options).device(0)
}

/// Simulated devices of one machine: of one kind, on one virtual clock, with page-locked memory and
/// one schedule for all. Clones are the same machine.
///
/// Each device has its own memory, engines and link to the host, and ends for itself. Devices after
/// an H200 have a link between each two of them and reach each other's memory; see
/// [`SimOptions::peer_links`].
///
/// It is there for as long as it or a device opened on it is.
///
/// ```
/// use headwater::Device;
/// use headwater::sim::{SimMachine, SimOptions};
///
/// let machine = SimMachine::new(2, SimOptions::new())?;
/// let first = Device::builder().simulated_on(&machine, 0).open()?;
/// let second = Device::builder().simulated_on(&machine, 1).open()?;
/// assert_eq!(first.info().peers, [1]);
/// assert_eq!(second.info().ordinal, 1);
/// # Ok::<_, headwater::Error>(())
/// ```
#[derive(Clone)]
pub struct SimMachine {
    options: Arc<SimOptions>,
    user: User,
}

impl SimMachine {
    /// Devices that a machine can have.
    pub(crate) const MOST_DEVICES: usize = 1_024;

    /// `devices` is 1 to [`SimMachine::MOST_DEVICES`].
    pub(crate) fn with(devices: usize, options: SimOptions) -> Self {
        let user = User::new(Machine::new(devices, &options));
        SimMachine { options: Arc::new(options), user }
    }

    /// How many devices it has: their ordinals are below it.
    pub fn devices(&self) -> usize {
        self.user.machine.devices()
    }

    /// Drives and watches all devices at once. What it says of a device's own (memory, streams) is
    /// the sum.
    pub fn simulator(&self) -> Simulator {
        Simulator::new(Arc::clone(&self.user.machine), None)
    }

    /// `None` where there is no such device.
    pub(crate) fn open(&self, ordinal: usize) -> Option<(Arc<dyn Driver>, Simulator)> {
        (ordinal < self.devices()).then(|| self.device(ordinal))
    }

    fn device(&self, ordinal: usize) -> (Arc<dyn Driver>, Simulator) {
        let simulator = Simulator::new(Arc::clone(&self.user.machine), Some(ordinal));
        if let Some(to) = &self.options.simulator_to {
            let _ = to.send(simulator.clone());
        }
        let driver = SimDriver::new(self.user.clone(), &self.options, self.info(ordinal));
        (Arc::new(driver), simulator)
    }

    fn info(&self, ordinal: usize) -> DeviceInfo {
        let SimOptions { name, hardware, total_memory, .. } = &*self.options;
        let others = (0..self.devices()).filter(|&other| other != ordinal && hardware.peer_links);
        DeviceInfo {
            name: name.clone(),
            ordinal,
            simulated: true,
            compute_capability: hardware.compute_capability,
            total_memory: *total_memory,
            copy_engines: hardware.copy_engines,
            concurrent_kernels: true,
            multiprocessors: hardware.multiprocessors,
            max_block_threads: 1_024,
            max_grid: [i32::MAX as u32, 65_535, 65_535],
            max_block: [1_024, 1_024, 64],
            max_shared_bytes: 49_152,
            priorities: Some(PRIORITIES),
            peers: others.collect(),
            hardware_queues: 32,
            driver_version: 0,
        }
    }
}

impl fmt::Debug for SimMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimMachine")
            .field("name", &self.options.name)
            .field("devices", &self.devices())
            .finish_non_exhaustive()
    }
}

/// Keeps a machine working.
pub(super) struct User {
    pub(super) machine: Arc<Machine>,
}

impl User {
    fn new(machine: Arc<Machine>) -> Self {
        machine.lock().users += 1;
        User { machine }
    }
}

impl Clone for User {
    fn clone(&self) -> Self {
        User::new(Arc::clone(&self.machine))
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let mut state = self.machine.lock();
        state.users -= 1;
        self.machine.release(state);
    }
}
