//! What a simulated device can be told when it is opened.

use super::cost::CostModel;
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
}

impl Default for SimOptions {
    fn default() -> Self {
        SimOptions::new()
    }
}
