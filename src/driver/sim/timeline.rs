//! When the machine's engines are taken. Pure: no lock, no thread, no clock of its own.
//!
//! Each device has an engine for copies within it, its multiprocessors, and a link to the host with
//! a copy engine for each direction; between devices that reach each other there is one for each
//! pair and direction. Operations are placed in the order in which they execute, each as early as it
//! can be from then on; an end that was told does not change.

use rustc_hash::FxHashMap;

use super::compute::{Kernel, Multiprocessors};
use super::cost::CostModel;
use super::link::{self, Direction, HostLink, Transfer};
use super::steps::Engine;

/// What can run beside each other on the simulated device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SimEngine {
    /// Copies from host to device.
    CopyH2D,
    /// Copies from device to host.
    CopyD2H,
    /// Copies within the device, and fills.
    CopyD2D,
    /// Kernels.
    Compute,
    /// Copies from one device to another: one engine for each two devices and direction. Where
    /// devices do not reach each other, such a copy takes the copy engines of both.
    CopyPeer,
}

/// What an operation takes of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// One direction of its device's link to the host.
    Host(Direction, Transfer),
    /// The engine for copies within its device, for so many ns.
    Within(u64),
    Multiprocessors(Kernel),
    /// The link from one device to another, for so many ns.
    Peer {
        from: usize,
        to: usize,
        ns: u64,
    },
    /// The links to the host of two devices that have none to each other.
    PeerThroughHost {
        from: usize,
        to: usize,
        transfer: Transfer,
    },
}

impl Takes {
    /// The same for `more` ns longer. Of what moves bytes, before the first byte moves.
    pub(super) fn longer(self, more: u64) -> Self {
        let late = |transfer: Transfer| Transfer {
            latency: transfer.latency.saturating_add(more),
            ..transfer
        };
        match self {
            Takes::Host(direction, transfer) => Takes::Host(direction, late(transfer)),
            Takes::Within(ns) => Takes::Within(ns.saturating_add(more)),
            Takes::Multiprocessors(kernel) => {
                let ns = kernel.ns.saturating_add(more);
                Takes::Multiprocessors(Kernel { ns, ..kernel })
            }
            Takes::Peer { from, to, ns } => Takes::Peer { from, to, ns: ns.saturating_add(more) },
            Takes::PeerThroughHost { from, to, transfer } => {
                Takes::PeerThroughHost { from, to, transfer: late(transfer) }
            }
        }
    }

    pub(super) fn engine(&self) -> SimEngine {
        match self {
            Takes::Host(Direction::Up, _) => SimEngine::CopyH2D,
            Takes::Host(Direction::Down, _) => SimEngine::CopyD2H,
            Takes::Within(_) => SimEngine::CopyD2D,
            Takes::Multiprocessors(_) => SimEngine::Compute,
            Takes::Peer { .. } | Takes::PeerThroughHost { .. } => SimEngine::CopyPeer,
        }
    }
}

/// All engines of a machine.
#[derive(Debug)]
pub(super) struct Timeline {
    /// By device.
    within: Vec<Engine>,
    multiprocessors: Vec<Multiprocessors>,
    host: Vec<HostLink>,
    /// From one device to another; made when it is first taken.
    peers: FxHashMap<(usize, usize), Engine>,
}

impl Timeline {
    /// Of so many devices, each of which holds so many threads.
    pub(super) fn new(devices: usize, cost: &CostModel, threads: u64) -> Self {
        let kernels = cost.concurrent_kernels;
        Timeline {
            within: (0..devices).map(|_| Engine::default()).collect(),
            multiprocessors: (0..devices).map(|_| Multiprocessors::new(kernels, threads)).collect(),
            host: (0..devices).map(|_| HostLink::new(cost.both_bytes_per_second)).collect(),
            peers: FxHashMap::default(),
        }
    }

    /// Places an operation of a stream of `device` and of urgency `level`, `earliest` or later: start
    /// and end. Nothing at all will be placed before `floor` any more.
    pub(super) fn place(
        &mut self,
        device: usize,
        takes: Takes,
        level: usize,
        earliest: u64,
        floor: u64,
    ) -> (u64, u64) {
        match takes {
            Takes::Host(direction, transfer) => {
                link::place(&mut self.host, &[(device, direction)], transfer, earliest, floor)
            }
            Takes::Within(ns) => self.within[device].place(earliest, ns, floor),
            Takes::Multiprocessors(kernel) => {
                self.multiprocessors[device].place(kernel, level, earliest, floor)
            }
            Takes::Peer { from, to, ns } => {
                self.peers.entry((from, to)).or_default().place(earliest, ns, floor)
            }
            Takes::PeerThroughHost { from, to, transfer } => {
                let path = [(from, Direction::Down), (to, Direction::Up)];
                link::place(&mut self.host, &path, transfer, earliest, floor)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline() -> Timeline {
        Timeline::new(3, &CostModel::h200(), 1_000)
    }

    #[test]
    fn devices_have_engines_of_their_own() {
        let mut timeline = timeline();
        let transfer = Transfer { bytes: 1, rate: 1_000_000_000, latency: 9 };
        let kernel = Kernel { ns: 10, threads: 1_000, waves: 1 };
        for device in 0..3 {
            for takes in [
                Takes::Within(10),
                Takes::Host(Direction::Up, transfer),
                Takes::Host(Direction::Down, transfer),
                Takes::Multiprocessors(kernel),
            ] {
                assert_eq!(timeline.place(device, takes, 0, 0, 0), (0, 10), "{device} {takes:?}");
                assert_eq!(timeline.place(device, takes, 0, 0, 0), (10, 20), "{device} {takes:?}");
            }
        }
    }

    #[test]
    fn each_two_devices_have_a_link_each_way() {
        let mut timeline = timeline();
        for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 1)] {
            let takes = Takes::Peer { from, to, ns: 10 };
            assert_eq!(timeline.place(from, takes, 0, 0, 0), (0, 10));
            assert_eq!(timeline.place(to, takes, 0, 0, 0), (10, 20), "whoever makes the copy");
        }
    }

    #[test]
    fn a_copy_through_the_host_keeps_the_copy_engines_of_both_devices() {
        let mut timeline = timeline();
        let transfer = Transfer { bytes: 100, rate: 10_000_000_000, latency: 0 };
        let through = Takes::PeerThroughHost { from: 0, to: 2, transfer };
        assert_eq!(timeline.place(0, through, 0, 0, 0), (0, 10));
        assert_eq!(timeline.place(0, Takes::Host(Direction::Down, transfer), 0, 0, 0), (10, 20));
        assert_eq!(timeline.place(2, Takes::Host(Direction::Up, transfer), 0, 0, 0), (10, 20));
        assert_eq!(timeline.place(1, Takes::Host(Direction::Up, transfer), 0, 0, 0), (0, 10));
    }
}
