//! What a simulated device can be told when it is opened.

use std::sync::mpsc::Sender;
use std::time::Duration;

use super::control::Simulator;
use super::cost::CostModel;
use super::fault::Fault;
use super::schedule::Schedule;

/// What a device is, beside its costs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hardware {
    pub(super) compute_capability: (u32, u32),
    pub(super) multiprocessors: u32,
    /// Threads a multiprocessor holds.
    pub(super) threads_each: u32,
    pub(super) copy_engines: u32,
    /// Devices of one machine reach each other's memory.
    pub(super) peer_links: bool,
}

impl Hardware {
    /// Threads the device holds.
    pub(super) fn threads(&self) -> u64 {
        u64::from(self.multiprocessors) * u64::from(self.threads_each)
    }

    /// Blocks of so many threads that the device holds, as far as threads limit that; at least 1.
    pub(super) fn blocks(&self, threads: u64) -> u64 {
        let each = u64::from(self.threads_each) / threads.max(1);
        (u64::from(self.multiprocessors) * each).max(1)
    }
}

/// What a copy does whose host memory is *pageable*: ordinary memory, not page-locked.
///
/// CUDA leaves open whether such a copy is done when its call returns. This crate makes none, so the
/// choice is seen below it only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pageable {
    /// As CUDA usually does. A copy to the device takes the bytes as they are at the call, which
    /// costs the host the time that it takes to move them. A copy from the device has its call wait
    /// until it is done; where nothing more runs as the schedule stands ([`Stepped`], a closed
    /// gate) the call returns all the same, and the copy runs later.
    ///
    /// [`Stepped`]: super::Schedule::Stepped
    Staged,
    /// As late as CUDA may: the call returns at once, and the memory is read or written when the copy
    /// runs.
    #[default]
    Delayed,
}

/// Options of a simulated device. Each method returns the options changed.
#[derive(Clone, Debug)]
#[must_use]
pub struct SimOptions {
    pub(super) name: String,
    pub(super) hardware: Hardware,
    pub(super) schedule: Schedule,
    pub(super) total_memory: u64,
    pub(super) queue_limit: usize,
    pub(super) cost: CostModel,
    pub(super) pageable: Pageable,
    pub(super) shared_fate: bool,
    /// In the order given.
    pub(super) faults: Vec<Fault>,
    /// `None`: as the schedule has it.
    pub(super) stall_limit: Option<Duration>,
    pub(super) simulator_to: Option<Sender<Simulator>>,
}

impl SimOptions {
    /// An eager device after the H200: [`SimOptions::h200`].
    pub fn new() -> Self {
        SimOptions::h200()
    }

    /// An eager device after NVIDIA's H200: its multiprocessors, compute capability and
    /// [costs](CostModel::h200), 16 GiB (it has 141 GB), and CUDA's queue limit of 1,021.
    pub fn h200() -> Self {
        SimOptions {
            name: "simulated device (H200 cost model)".into(),
            hardware: Hardware {
                compute_capability: (9, 0),
                multiprocessors: 132,
                threads_each: 2_048,
                copy_engines: 3,
                peer_links: true,
            },
            schedule: Schedule::Eager,
            total_memory: 16 << 30,
            queue_limit: 1_021,
            cost: CostModel::h200(),
            pageable: Pageable::default(),
            shared_fate: true,
            faults: Vec::new(),
            stall_limit: None,
            simulator_to: None,
        }
    }

    /// An eager device after NVIDIA's T4: 40 multiprocessors, compute capability 7.5, 16 GiB, its
    /// [costs](CostModel::t4), and CUDA's queue limit of 1,021.
    pub fn t4() -> Self {
        SimOptions {
            name: "simulated device (T4 cost model)".into(),
            hardware: Hardware {
                compute_capability: (7, 5),
                multiprocessors: 40,
                threads_each: 1_024,
                copy_engines: 3,
                peer_links: false,
            },
            cost: CostModel::t4(),
            ..SimOptions::h200()
        }
    }

    /// The device's name. Should say that it is simulated.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Whether the devices of a [`SimMachine`](super::SimMachine) reach each other's memory, by a link
    /// between each two of them. As H200s do and T4s do not. Where they do not, a copy from one to
    /// another goes over the links of both to the host.
    pub fn peer_links(mut self, on: bool) -> Self {
        self.hardware.peer_links = on;
        self
    }

    /// When operations run. [`Simulator::set_schedule`](super::Simulator::set_schedule) changes it
    /// later.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule;
        self
    }

    /// Bytes of device memory, of each device. Nominal: the host gives memory only to blocks that
    /// are touched.
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

    /// Whether a device that fails takes the others of its machine with it. It does, as on CUDA: on a
    /// host of two H200s (driver 580) an illegal address or a trap on the one had every call for the
    /// other answer the same error, though the two had nothing to do with each other.
    pub fn shared_fate(mut self, on: bool) -> Self {
        self.shared_fate = on;
        self
    }

    /// What copies do whose host memory is not page-locked.
    pub fn pageable(mut self, pageable: Pageable) -> Self {
        self.pageable = pageable;
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
    /// Time counts while somebody looks again and again. Looked at by event queries, and by calls
    /// that wait for room in a queue. Whoever waits is told
    /// [`LAUNCH_TIMEOUT`](crate::DriverError::LAUNCH_TIMEOUT), that the device is lost; who waited
    /// for whom is logged as an error (`tracing`), and kept among the
    /// [`violations`](super::Simulator::violations).
    ///
    /// It also bounds how long an operation is waited for that does not return, ten seconds if not said
    /// under any schedule: a call that lets the device move, under a schedule in lock-step, and the
    /// methods of [`Simulator`](super::Simulator) that block go on without it. A twin that
    /// blocks for ever takes no caller with it. A device does not end for that by itself:
    /// [`stuck`](super::Simulator::stuck) names the operation.
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
