//! The multiprocessors: which kernels run beside each other, and which goes first. Pure.
//!
//! A kernel takes as many threads as it has, or all that the device holds, for as long as it is said
//! to take. Kernels run beside each other while their threads fit and there are not too many of
//! them.
//!
//! Priorities take effect where a block ends. A kernel runs in *waves*, each of the blocks that the
//! device holds at once, all equally long. A more urgent kernel waits for the end of a wave of the
//! less urgent ones that are in its way, not for their end. From there on the device does more than
//! it can: an end that was told does not change. What the urgent one took is made up for behind
//! those it took it from: the device is taken for as long, so that the less urgent ones placed
//! after that come later by as much.

use std::array;
use std::collections::VecDeque;

use super::steps::{Load, Steps};

/// Levels of urgency, from 0: as many as CUDA's priorities 0 … -5.
pub(super) const LEVELS: usize = 6;

/// Kernels that an urgent one can find in its way: the last ones placed.
const PLACED_KEPT: usize = 4_096;

/// What a kernel asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kernel {
    pub(super) ns: u64,
    pub(super) threads: u64,
    /// Waves of blocks, at least 1.
    pub(super) waves: u64,
}

/// What a kernel was given.
#[derive(Clone, Copy, Debug)]
struct Placed {
    start: u64,
    end: u64,
    /// Length of a wave, at least 1.
    wave: u64,
    load: Load,
    level: usize,
}

impl Placed {
    /// The first end of a wave at `time` or later; it runs then.
    fn next_boundary(&self, time: u64) -> u64 {
        let into = time.saturating_sub(self.start);
        let at = into.div_ceil(self.wave).saturating_mul(self.wave);
        self.start.saturating_add(at).min(self.end)
    }
}

#[derive(Debug)]
pub(super) struct Multiprocessors {
    /// All that is taken at a time.
    most: Load,
    /// By level: what kernels of that level and of more urgent ones take. More than `most` only
    /// where a more urgent one does not wait for a less urgent one.
    taken: [Steps; LEVELS],
    /// In the order placed, those that may still be in someone's way.
    placed: VecDeque<Placed>,
}

impl Multiprocessors {
    /// `threads` are held at once, of at most so many kernels.
    pub(super) fn new(kernels: u32, threads: u64) -> Self {
        Multiprocessors {
            most: Load::new(kernels.max(1), threads.max(1)),
            taken: array::from_fn(|_| Steps::default()),
            placed: VecDeque::new(),
        }
    }

    /// Takes what a kernel needs, `earliest` or later: start and end. Nothing is placed before
    /// `floor` from here on.
    pub(super) fn place(
        &mut self,
        kernel: Kernel,
        level: usize,
        earliest: u64,
        floor: u64,
    ) -> (u64, u64) {
        self.forget_before(floor);
        let level = level.min(LEVELS - 1);
        let load = Load::new(1, kernel.threads.min(self.most.amount));
        let start = self.start(kernel.ns, load, level, earliest);
        let end = start.saturating_add(kernel.ns);
        let owed = if level > 0 { self.owed(start, end, load, level) } else { None };
        let wave = kernel.ns.div_ceil(kernel.waves.max(1)).max(1);
        self.take(Placed { start, end, wave, load, level });
        if let Some((ns, behind)) = owed {
            // As the rest of the one that was held up: urgent ones do not wait for all of it.
            let load = Load::new(0, self.most.amount);
            let start = self.start(ns, load, behind.level, behind.end);
            self.take(Placed { start, end: start.saturating_add(ns), load, ..behind });
        }
        (start, end)
    }

    fn forget_before(&mut self, floor: u64) {
        for taken in &mut self.taken {
            // What ends at the floor makes room there: see `yielded`.
            taken.forget_before(floor.saturating_sub(1));
        }
        while self.placed.len() > PLACED_KEPT
            || self.placed.front().is_some_and(|placed| placed.end <= floor)
        {
            self.placed.pop_front();
        }
    }

    fn start(&self, ns: u64, load: Load, level: usize, earliest: u64) -> u64 {
        let fit = |earliest| self.taken[level].first_fit(earliest, ns, load, self.most);
        let mut start = fit(earliest);
        loop {
            let yielded = self.yielded(start, load, level);
            start = fit(yielded);
            if start == yielded {
                return start;
            }
        }
    }

    /// When there is room, at `time` or later, as far as less urgent kernels are in the way then.
    fn yielded(&self, time: u64, load: Load, level: usize) -> u64 {
        if level == 0 {
            return time;
        }
        let without = |from: Load, load: Load| Load {
            operations: from.operations.saturating_sub(load.operations),
            amount: from.amount.saturating_sub(load.amount),
        };
        // What less urgent ones did not get until now is not theirs yet.
        let over = without(self.taken[0].at(time.saturating_sub(1)), self.most);
        let mut taken = without(self.taken[0].at(time), over).plus(load);
        if taken.fits(self.most) {
            return time;
        }
        let mut in_the_way: Vec<_> = self
            .less_urgent(time, time.saturating_add(1), level)
            .map(|placed| (placed.next_boundary(time), placed.load))
            .collect();
        in_the_way.sort_by_key(|(boundary, _)| *boundary);
        for (boundary, load) in in_the_way {
            taken = without(taken, load);
            if taken.fits(self.most) {
                return boundary;
            }
        }
        time
    }

    /// How long the whole device would take for what a more urgent kernel takes from less urgent
    /// ones, and the one of these behind which that is made up for.
    fn owed(&self, start: u64, end: u64, load: Load, level: usize) -> Option<(u64, Placed)> {
        let most = self.most.amount;
        let over = |amount: u64| u128::from(amount.saturating_sub(most));
        let (mut thread_ns, mut now) = (0_u128, start);
        while now < end {
            let next = self.taken[0].next_change(now).map_or(end, |next| next.min(end));
            let taken = self.taken[0].at(now).amount;
            let more = over(taken.saturating_add(load.amount)) - over(taken);
            thread_ns = thread_ns.saturating_add(more * u128::from(next - now));
            now = next;
        }
        if thread_ns == 0 {
            return None;
        }
        // The least urgent one gives way, and of those the last to end.
        let behind = self.less_urgent(start, end, level);
        let behind = behind.max_by_key(|placed| (LEVELS - placed.level, placed.end))?;
        let ns = u64::try_from(thread_ns.div_ceil(u128::from(most))).unwrap_or(u64::MAX);
        Some((ns, *behind))
    }

    fn less_urgent(&self, start: u64, end: u64, level: usize) -> impl Iterator<Item = &Placed> {
        let runs = move |placed: &&Placed| placed.start < end && start < placed.end;
        self.placed.iter().filter(runs).filter(move |placed| placed.level < level)
    }

    fn take(&mut self, placed: Placed) {
        for taken in &mut self.taken[..=placed.level] {
            taken.add(placed.start, placed.end, placed.load);
        }
        self.placed.push_back(placed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: u64 = 1_000;
    const URGENT: usize = 5;

    fn device() -> Multiprocessors {
        Multiprocessors::new(3, DEVICE)
    }

    fn kernel(ns: u64, threads: u64) -> Kernel {
        Kernel { ns, threads, waves: threads.div_ceil(DEVICE) }
    }

    #[test]
    fn kernels_run_beside_each_other_while_their_threads_fit() {
        let mut device = device();
        assert_eq!(device.place(kernel(10, 400), 0, 0, 0), (0, 10));
        assert_eq!(device.place(kernel(20, 600), 0, 0, 0), (0, 20));
        assert_eq!(device.place(kernel(5, 1), 0, 0, 0), (10, 15), "they fill the device");
        assert_eq!(device.place(kernel(5, 399), 0, 0, 0), (10, 15));
        assert_eq!(device.place(kernel(5, 401), 0, 0, 0), (20, 25));
    }

    #[test]
    fn no_more_kernels_run_at_once_than_there_are_places() {
        let mut device = device();
        let ends: Vec<_> = (0..4).map(|_| device.place(kernel(10, 1), 0, 0, 0)).collect();
        assert_eq!(ends, [(0, 10), (0, 10), (0, 10), (10, 20)]);
    }

    #[test]
    fn a_kernel_larger_than_the_device_takes_all_of_it() {
        let mut device = device();
        assert_eq!(device.place(kernel(10, u64::MAX), 0, 0, 0), (0, 10));
        assert_eq!(device.place(kernel(10, 1), 0, 0, 0), (10, 20));
    }

    #[test]
    fn an_urgent_kernel_starts_where_a_wave_of_a_less_urgent_one_ends() {
        let mut device = device();
        assert_eq!(device.place(kernel(100, 5 * DEVICE), 0, 0, 0), (0, 100));
        // Waves end at 20, 40, ….
        assert_eq!(device.place(kernel(10, 1), URGENT, 25, 0), (40, 50));
        assert_eq!(device.place(kernel(10, DEVICE), URGENT, 60, 0), (60, 70), "just there");
        assert_eq!(device.place(kernel(5, DEVICE), URGENT, 61, 0), (70, 75), "right behind it");
        assert_eq!(device.place(kernel(5, DEVICE), URGENT, 76, 0), (80, 85));
    }

    #[test]
    fn an_urgent_kernel_waits_for_nothing_where_there_is_room() {
        let mut device = device();
        device.place(kernel(100, DEVICE / 2), 0, 0, 0);
        assert_eq!(device.place(kernel(10, DEVICE / 2), URGENT, 25, 0), (25, 35));
        assert_eq!(device.place(kernel(10, DEVICE / 2), 0, 0, 0), (0, 10));
        assert_eq!(device.place(kernel(10, DEVICE / 2), 0, 100, 0), (100, 110), "nothing is owed");
    }

    #[test]
    fn an_urgent_kernel_waits_for_as_many_of_several_as_are_in_its_way() {
        let mut device = device();
        let half = Kernel { ns: 100, threads: DEVICE / 2, waves: 4 };
        device.place(half, 0, 0, 0); // waves end at 25, 50, …
        device.place(Kernel { waves: 2, ..half }, 0, 0, 0); // at 50
        assert_eq!(device.place(kernel(1, DEVICE / 2), URGENT, 1, 0), (25, 26));
        assert_eq!(device.place(kernel(1, DEVICE), URGENT, 27, 0), (50, 51));
    }

    #[test]
    fn what_an_urgent_kernel_took_is_made_up_for_behind_the_one_it_took_it_from() {
        let mut device = device();
        device.place(kernel(100, DEVICE), 0, 0, 0);
        device.place(kernel(100, DEVICE), 0, 0, 0);
        // Half of the device for 40 ns, from the end of the first one's only wave on.
        assert_eq!(device.place(kernel(40, DEVICE / 2), URGENT, 10, 0), (100, 140));
        assert_eq!(device.place(kernel(100, DEVICE), 0, 0, 0), (220, 320));
        assert_eq!(device.place(kernel(5, DEVICE), URGENT, 205, 0), (220, 225), "it is one wave");
    }

    #[test]
    fn what_is_owed_costs_nothing_where_the_device_stood_idle_since() {
        let mut device = device();
        device.place(kernel(100, 10 * DEVICE), 0, 0, 0);
        assert_eq!(device.place(kernel(40, DEVICE), URGENT, 10, 0), (10, 50));
        assert_eq!(device.place(kernel(10, DEVICE), 0, 200, 0), (200, 210));
        assert_eq!(device.place(kernel(10, DEVICE), 0, 100, 0), (140, 150));
    }

    #[test]
    fn each_level_goes_before_those_below_it_and_after_those_above() {
        let mut device = device();
        let long = kernel(100, 10 * DEVICE);
        assert_eq!(device.place(long, 1, 0, 0), (0, 100));
        assert_eq!(device.place(kernel(10, DEVICE), 1, 5, 0), (100, 110));
        assert_eq!(device.place(kernel(10, DEVICE), 2, 5, 0), (10, 20));
        assert_eq!(device.place(kernel(10, DEVICE), 3, 5, 0), (10, 20), "it does not wait for 2");
        assert_eq!(device.place(kernel(10, DEVICE), 0, 5, 0), (130, 140), "20 are owed");
    }

    #[test]
    fn what_is_remembered_of_kernels_is_bounded() {
        let mut device = device();
        for _ in 0..PLACED_KEPT + 1_000 {
            device.place(kernel(10, DEVICE), 0, 0, 0);
        }
        assert_eq!(device.placed.len(), PLACED_KEPT + 1);
        device.place(kernel(10, DEVICE), 0, 0, u64::MAX / 2);
        assert_eq!(device.placed.len(), 1);
    }
}
