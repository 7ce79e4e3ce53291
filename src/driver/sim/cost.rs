//! How long things take on the simulated device. Pure: numbers in, nanoseconds out.

use super::link::Transfer;
use crate::driver::KernelCost;

/// What operations and calls cost in virtual time.
///
/// All arithmetic is on integers and rounds up, so that times are the same on every machine.
/// Start from [`CostModel::h200`] or [`CostModel::t4`] and change what a test is about:
///
/// ```
/// let mut cost = headwater::sim::CostModel::h200();
/// cost.kernel_minimum_ns = 1_000_000;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CostModel {
    /// Host to device, bytes a second.
    pub h2d_bytes_per_second: u64,
    /// Device to host, bytes a second.
    pub d2h_bytes_per_second: u64,
    /// Both directions together, bytes a second: less than their sum. 0 has neither take notice of
    /// the other. A copy takes what one placed before it in the other direction leaves.
    pub both_bytes_per_second: u64,
    /// Host to device from ordinary memory, which is not page-locked; bytes a second.
    pub h2d_pageable_bytes_per_second: u64,
    /// Device to host, to ordinary memory, bytes a second.
    pub d2h_pageable_bytes_per_second: u64,
    /// From one device to another that reaches it, bytes a second each way. Where devices do not
    /// reach each other, such a copy goes over the links of both to the host.
    pub peer_bytes_per_second: u64,
    /// Within the device, bytes copied a second (each is read and written).
    pub d2d_bytes_per_second: u64,
    /// What kernels of no declared cost, and fills, touch a second.
    pub memory_bytes_per_second: u64,
    /// Arithmetic operations a second, of a kernel that declares how many it does.
    pub operations_per_second: u64,
    /// What a copy costs its engine beside its bytes.
    pub copy_latency_ns: u64,
    /// What each row of a copy of rows between host and device costs its engine beside its bytes.
    pub copy_row_ns: u64,
    /// A kernel or fill takes no less, unless it declared its time.
    pub kernel_minimum_ns: u64,
    /// Kernels that can run at once, where the threads of all fit on the device.
    pub concurrent_kernels: u32,
    /// What a launch costs the calling thread.
    pub launch_call_ns: u64,
    /// What enqueuing a copy or a fill costs the calling thread. Other calls cost nothing.
    pub copy_call_ns: u64,
    /// What enqueuing a copy of several rows costs it.
    pub copy_rows_call_ns: u64,
}

impl CostModel {
    /// One NVIDIA H200 (driver 580), as measured with raw driver calls.
    ///
    /// The arithmetic rate is what makes the overlap program's kernel, 2^22 elements × 500 rounds
    /// × 2 operations, take 0.56 ms. What a row of a copy costs on the device was not measured: it is
    /// taken for a short transaction on the link.
    pub fn h200() -> Self {
        CostModel {
            h2d_bytes_per_second: 55_400_000_000,
            d2h_bytes_per_second: 55_100_000_000,
            both_bytes_per_second: 94_800_000_000,
            h2d_pageable_bytes_per_second: 8_700_000_000,
            d2h_pageable_bytes_per_second: 14_800_000_000,
            peer_bytes_per_second: 393_000_000_000,
            d2d_bytes_per_second: 1_964_000_000_000,
            memory_bytes_per_second: 3_900_000_000_000,
            operations_per_second: 7_489_828_571_429,
            copy_latency_ns: 1_300,
            copy_row_ns: 4,
            kernel_minimum_ns: 1_500,
            concurrent_kernels: 32,
            launch_call_ns: 3_000,
            copy_call_ns: 1_300,
            copy_rows_call_ns: 2_100,
        }
    }

    /// One NVIDIA T4 (PCIe 3.0 × 16), after what the overlap program reported on one.
    ///
    /// - Arithmetic: 16 kernels of 2^22 elements × 500 rounds × 2 operations in 53 ms.
    /// - Copies: 32 of 16 MiB in 45 ms; which way is faster was not reported.
    /// - Both ways at once: not reported; the share of their sum that an H200 reaches (94.8 of
    ///   110.5).
    /// - Ordinary memory: one stream took 180 ms with it, 53 of them the kernels'; again not by
    ///   direction.
    /// - Memory: 320 GB/s by the data sheet, read and written in a copy.
    /// - What calls, latencies and minima cost was not reported with the raw driver: an H200's.
    pub fn t4() -> Self {
        CostModel {
            h2d_bytes_per_second: 11_940_000_000,
            d2h_bytes_per_second: 11_940_000_000,
            both_bytes_per_second: 20_480_000_000,
            h2d_pageable_bytes_per_second: 4_230_000_000,
            d2h_pageable_bytes_per_second: 4_230_000_000,
            // There is no link but the host's.
            peer_bytes_per_second: 11_940_000_000,
            d2d_bytes_per_second: 160_000_000_000,
            memory_bytes_per_second: 320_000_000_000,
            operations_per_second: 1_266_205_000_000,
            ..CostModel::h200()
        }
    }

    /// From page-locked memory.
    pub(super) fn h2d(&self, bytes: u64) -> Transfer {
        self.transfer(bytes, self.h2d_bytes_per_second)
    }

    /// To page-locked memory.
    pub(super) fn d2h(&self, bytes: u64) -> Transfer {
        self.transfer(bytes, self.d2h_bytes_per_second)
    }

    /// From ordinary memory.
    pub(super) fn h2d_pageable(&self, bytes: u64) -> Transfer {
        self.transfer(bytes, self.h2d_pageable_bytes_per_second)
    }

    /// To ordinary memory.
    pub(super) fn d2h_pageable(&self, bytes: u64) -> Transfer {
        self.transfer(bytes, self.d2h_pageable_bytes_per_second)
    }

    /// How long a call keeps the host that copies ordinary memory to where the device fetches it.
    pub(super) fn staging(&self, bytes: u64) -> u64 {
        time(bytes, self.h2d_pageable_bytes_per_second)
    }

    /// What so many rows cost beside their bytes.
    pub(super) fn rows(&self, rows: u64) -> u64 {
        rows.saturating_mul(self.copy_row_ns)
    }

    /// By the links of two devices to the host.
    pub(super) fn peer_through_host(&self, bytes: u64) -> Transfer {
        let (up, down) = (self.h2d_bytes_per_second, self.d2h_bytes_per_second);
        let rate = [up, down].into_iter().filter(|rate| *rate > 0).min().unwrap_or(0);
        self.transfer(bytes, rate)
    }

    fn transfer(&self, bytes: u64, rate: u64) -> Transfer {
        Transfer { bytes, rate, latency: self.copy_latency_ns }
    }

    pub(super) fn d2d(&self, bytes: u64) -> u64 {
        self.copy_latency_ns.saturating_add(time(bytes, self.d2d_bytes_per_second))
    }

    pub(super) fn peer(&self, bytes: u64) -> u64 {
        self.copy_latency_ns.saturating_add(time(bytes, self.peer_bytes_per_second))
    }

    pub(super) fn fill(&self, bytes: u64) -> u64 {
        time(bytes, self.memory_bytes_per_second).max(self.kernel_minimum_ns)
    }

    /// `bytes` is what the kernel declares to touch in all.
    pub(super) fn kernel(&self, declared: KernelCost, bytes: u64) -> u64 {
        match declared {
            KernelCost::Nanoseconds(ns) => ns,
            KernelCost::Arithmetic(operations) => {
                time(operations, self.operations_per_second).max(self.kernel_minimum_ns)
            }
            KernelCost::Unknown => {
                time(bytes, self.memory_bytes_per_second).max(self.kernel_minimum_ns)
            }
        }
    }
}

impl Default for CostModel {
    fn default() -> Self {
        CostModel::h200()
    }
}

/// Nanoseconds for `amount` at `per_second`, rounded up. A rate of 0 is taken as "costs nothing".
fn time(amount: u64, per_second: u64) -> u64 {
    if per_second == 0 {
        return 0;
    }
    let ns = (u128::from(amount) * 1_000_000_000).div_ceil(u128::from(per_second));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_overlap_programs_kernels_take_the_times_reported() {
        let rounds = KernelCost::Arithmetic((1 << 22) * 500 * 2);
        assert_eq!(CostModel::h200().kernel(rounds, 0), 560_000);
        // 53 ms / 16
        assert_eq!(CostModel::t4().kernel(rounds, 0), 3_312_500);
    }

    #[test]
    fn the_t4s_rates_follow_from_what_was_reported() {
        let cost = CostModel::t4();
        let per_second = |amount: u64, ms: u64| amount as f64 * 1e3 / ms as f64;
        let is = |rate: u64, reported: f64| (rate as f64 / reported - 1.0).abs() < 2e-3;
        assert!(is(cost.h2d_bytes_per_second, per_second(512 << 20, 45)));
        assert!(is(cost.d2h_bytes_per_second, per_second(512 << 20, 45)));
        let both = 2.0 * per_second(512 << 20, 45) * 94.8 / 110.5;
        assert!(is(cost.both_bytes_per_second, both));
        assert!(is(cost.h2d_pageable_bytes_per_second, per_second(512 << 20, 180 - 53)));
    }

    #[test]
    fn a_way_that_costs_nothing_does_not_hold_up_the_other() {
        let free = CostModel { h2d_bytes_per_second: 0, ..CostModel::h200() };
        assert_eq!(free.peer_through_host(5).rate, free.d2h_bytes_per_second);
    }

    #[test]
    fn a_kernel_takes_its_minimum_unless_it_declared_a_time() {
        let cost = CostModel::h200();
        assert_eq!(cost.kernel(KernelCost::Unknown, 64), 1_500);
        assert_eq!(cost.kernel(KernelCost::Arithmetic(1), 0), 1_500);
        assert_eq!(cost.kernel(KernelCost::Nanoseconds(7), 0), 7);
        assert_eq!(cost.kernel(KernelCost::Unknown, 3_900_000_000), 1_000_000);
    }

    #[test]
    fn no_rate_and_no_amount_overflows() {
        assert_eq!(time(u64::MAX, 1), u64::MAX);
        assert_eq!(time(5, 0), 0);
    }
}
