//! What a simulated device can be told when it is opened.

use std::sync::mpsc::Sender;
use std::time::Duration;

use super::control::Simulator;
use super::cost::CostModel;
use super::fault::Fault;
use super::schedule::Schedule;

/// Options of a simulated device. Each method returns the options changed.
#[derive(Clone, Debug)]
#[must_use]
pub struct SimOptions {
    pub(super) name: String,
    pub(super) schedule: Schedule,
    pub(super) total_memory: u64,
    pub(super) queue_limit: usize,
    pub(super) cost: CostModel,
    /// In the order given.
    pub(super) faults: Vec<Fault>,
    /// `None`: as the schedule has it.
    pub(super) stall_limit: Option<Duration>,
    pub(super) simulator_to: Option<Sender<Simulator>>,
}

impl SimOptions {
    /// An eager device with an H200's costs, 16 GiB, and CUDA's queue limit of 1,021.
    pub fn new() -> Self {
        SimOptions {
            name: "simulated device (H200 cost model)".into(),
            schedule: Schedule::Eager,
            total_memory: 16 << 30,
            queue_limit: 1_021,
            cost: CostModel::h200(),
            faults: Vec::new(),
            stall_limit: None,
            simulator_to: None,
        }
    }

    /// The device's name. Should say that it is simulated.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// When operations run. [`Simulator::set_schedule`](super::Simulator::set_schedule) changes it
    /// later.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule;
        self
    }

    /// Bytes of device memory. Nominal: the host gives memory only to blocks that are touched.
    pub fn total_memory(mut self, bytes: u64) -> Self {
        self.total_memory = bytes;
        self
    }

    /// Launches, copies and fills a stream takes before the next call blocks. At least 1.
    pub fn queue_limit(mut self, operations: usize) -> Self {
        self.queue_limit = operations.max(1);
        self
    }

    /// What operations cost in virtual time.
    pub fn cost(mut self, cost: CostModel) -> Self {
        self.cost = cost;
        self
    }

    /// One more fault, there from the first call on: the calls that open a device are the first
    /// ones. [`Simulator::inject`](super::Simulator::inject) adds to them later.
    pub fn fault(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }

    /// How long, in real time, the device may be [`stuck`](super::Simulator::stuck) while someone
    /// waits for it: it ends then as if by [`Simulator::give_up`](super::Simulator::give_up), so that
    /// nobody waits for ever. Ten seconds if not said; under [`Schedule::Stepped`], where a test
    /// that has not stepped yet looks the same, no limit. [`Duration::MAX`] is no limit either.
    ///
    /// Looked at by event queries, and by calls that wait for room in a queue. A call that lets the
    /// device move, under a schedule in lock-step, waits no longer than so for an operation to
    /// run: a twin that blocks for ever does not take the caller with it.
    pub fn stall_limit(mut self, limit: Duration) -> Self {
        self.stall_limit = Some(limit);
        self
    }

    /// Has every opening with these options send the device's handle before the first call is made:
    /// it is there also where opening fails. Nothing comes of it where the receiver is gone.
    pub fn send_simulator(mut self, to: Sender<Simulator>) -> Self {
        self.simulator_to = Some(to);
        self
    }
}

impl Default for SimOptions {
    fn default() -> Self {
        SimOptions::new()
    }
}
