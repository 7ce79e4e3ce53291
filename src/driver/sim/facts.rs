//! What is known of an operation when it is enqueued: what it takes of the machine, in virtual
//! time. Pure.

use super::compute::Kernel;
use super::cost::CostModel;
use super::link::Direction;
use super::op::SimOpKind;
use super::options::Hardware;
use super::timeline::Takes;
use crate::driver::{CopyRows, DeviceInfo, Launch};

/// What is known of an operation from the call until it has run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) kind: SimOpKind,
    pub(super) name: &'static str,
    pub(super) bytes: u64,
    pub(super) takes: Takes,
    /// How long its call keeps the host when it is enqueued, in virtual time.
    pub(super) keeps_host: u64,
    /// It does not begin before this is open.
    pub(super) gate: Option<u64>,
}

impl Facts {
    /// A copy between host and device or within the device, or a fill.
    pub(super) fn of_copy(kind: SimOpKind, bytes: usize, cost: &CostModel) -> Self {
        let bytes = bytes as u64;
        let (name, takes) = match kind {
            SimOpKind::CopyH2D => ("copy_h2d", Takes::Host(Direction::Up, cost.h2d(bytes))),
            SimOpKind::CopyD2H => ("copy_d2h", Takes::Host(Direction::Down, cost.d2h(bytes))),
            SimOpKind::CopyD2D => ("copy_d2d", Takes::Within(cost.d2d(bytes))),
            SimOpKind::Fill | SimOpKind::Kernel | SimOpKind::CopyPeer => {
                ("fill", Takes::Within(cost.fill(bytes)))
            }
        };
        Facts { kind, name, bytes, takes, keeps_host: 0, gate: None }
    }

    pub(super) fn of_copy_rows(kind: SimOpKind, copy: &CopyRows, cost: &CostModel) -> Self {
        let facts = Facts::of_copy(kind, copy.bytes(), cost);
        let rows = copy.rows.saturating_mul(copy.planes) as u64;
        let takes = match facts.takes {
            Takes::Host(..) => facts.takes.longer(cost.rows(rows)),
            within => within,
        };
        Facts { name: copy.name(), takes, ..facts }
    }

    /// `linked`: devices have links to each other.
    pub(super) fn of_peer_copy(
        from: usize,
        to: usize,
        bytes: usize,
        cost: &CostModel,
        linked: bool,
    ) -> Self {
        let bytes = bytes as u64;
        let takes = if from == to {
            Takes::Within(cost.d2d(bytes))
        } else if linked {
            Takes::Peer { from, to, ns: cost.peer(bytes) }
        } else {
            Takes::PeerThroughHost { from, to, transfer: cost.peer_through_host(bytes) }
        };
        let (kind, name) = (SimOpKind::CopyPeer, "copy_peer");
        Facts { kind, name, bytes, takes, keeps_host: 0, gate: None }
    }

    pub(super) fn of_launch(launch: &Launch<'_>, cost: &CostModel, hardware: &Hardware) -> Self {
        let touched = launch.accesses.iter().map(|access| access.bytes() as u64);
        let bytes = touched.fold(0, u64::saturating_add);
        let (blocks, threads_each) = (product(launch.grid), product(launch.block));
        let kernel = Kernel {
            ns: cost.kernel(launch.cost, bytes),
            threads: blocks.saturating_mul(threads_each),
            waves: blocks.div_ceil(hardware.blocks(threads_each)),
        };
        Facts {
            kind: SimOpKind::Kernel,
            name: launch.name,
            bytes,
            takes: Takes::Multiprocessors(kernel),
            keeps_host: 0,
            gate: launch.gate,
        }
    }
}

/// Whether a launch is one that the device can take.
pub(super) fn accepts(info: &DeviceInfo, launch: &Launch<'_>) -> bool {
    let fits = |size: [u32; 3], limit: [u32; 3]| {
        size.iter().zip(limit).all(|(&size, limit)| (1..=limit).contains(&size))
    };
    fits(launch.grid, info.max_grid)
        && fits(launch.block, info.max_block)
        && product(launch.block) <= u64::from(info.max_block_threads)
        && launch.shared_bytes <= info.max_shared_bytes
}

fn product(size: [u32; 3]) -> u64 {
    size.iter().fold(1, |all, &one| all.saturating_mul(u64::from(one)))
}
