//! How long things take on the simulated device. Pure: numbers in, nanoseconds out.

use crate::driver::KernelCost;

/// What operations and calls cost in virtual time.
///
/// All arithmetic is on integers and rounds up, so that times are the same on every machine.
/// Start from [`CostModel::h200`] and change what a test is about:
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
    /// Within the device, bytes copied a second (each is read and written).
    pub d2d_bytes_per_second: u64,
    /// What kernels of no declared cost, and fills, touch a second.
    pub memory_bytes_per_second: u64,
    /// Arithmetic operations a second, of a kernel that declares how many it does.
    pub operations_per_second: u64,
    /// What a copy costs its engine beside its bytes.
    pub copy_latency_ns: u64,
    /// A kernel or fill takes no less, unless it declared its time.
    pub kernel_minimum_ns: u64,
    /// Kernels that can run at once, each smaller than half of the device.
    pub concurrent_kernels: u32,
    /// What a launch costs the calling thread.
    pub launch_call_ns: u64,
    /// What enqueuing a copy or a fill costs the calling thread. Other calls cost nothing.
    pub copy_call_ns: u64,
}

impl CostModel {
    /// One NVIDIA H200 (driver 580), as measured with raw driver calls.
    ///
    /// The arithmetic rate is what makes the overlap program's kernel, 2^22 elements × 500 rounds
    /// × 2 operations, take 0.56 ms.
    pub fn h200() -> Self {
        CostModel {
            h2d_bytes_per_second: 55_400_000_000,
            d2h_bytes_per_second: 55_100_000_000,
            d2d_bytes_per_second: 1_964_000_000_000,
            memory_bytes_per_second: 3_900_000_000_000,
            operations_per_second: 7_489_828_571_429,
            copy_latency_ns: 1_300,
            kernel_minimum_ns: 1_500,
            concurrent_kernels: 32,
            launch_call_ns: 3_000,
            copy_call_ns: 1_300,
        }
    }

    pub(super) fn h2d(&self, bytes: u64) -> u64 {
        self.copy_latency_ns.saturating_add(time(bytes, self.h2d_bytes_per_second))
    }

    pub(super) fn d2h(&self, bytes: u64) -> u64 {
        self.copy_latency_ns.saturating_add(time(bytes, self.d2h_bytes_per_second))
    }

    pub(super) fn d2d(&self, bytes: u64) -> u64 {
        self.copy_latency_ns.saturating_add(time(bytes, self.d2d_bytes_per_second))
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
    fn the_overlap_programs_stages_take_their_measured_times() {
        let cost = CostModel::h200();
        let rounds = KernelCost::Arithmetic((1 << 22) * 500 * 2);
        assert_eq!(cost.kernel(rounds, 0), 560_000);
        assert_eq!(cost.h2d(1 << 24), 1_300 + 302_838);
        assert_eq!(cost.d2h(1 << 24), 1_300 + 304_487);
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
