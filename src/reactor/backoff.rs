//! When to look next at work that is not done yet.
//!
//! Pure: durations in, durations out. The constants answer to what was measured on an H200 (the
//! table "Waiting" in DESIGN.md).

use std::time::Duration;

/// Polls closer together than this cost more CPU (6-7 us a sleep) than they gain.
const SHORTEST_STEP: Duration = Duration::from_micros(20);
/// The same where the duration is known and the first look comes just before its end.
const SHORTEST_KNOWN_STEP: Duration = Duration::from_micros(35);
/// No wait is seen later than this because of the steps alone.
const LONGEST_STEP: Duration = Duration::from_micros(500);
/// A sleep ends about this much late.
const WAKE_LATENCY: Duration = Duration::from_micros(6);
/// Durations shorter than this are spun for by the first poll.
const SPIN_BELOW: Duration = Duration::from_micros(25);

/// What is known of how long an operation takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    mean: Duration,
    deviation: Duration,
}

impl Estimate {
    /// Whether a spin of a few microseconds is likely to see the end.
    pub(super) fn is_short(&self) -> bool {
        self.mean < SPIN_BELOW
    }
}

/// How long to sleep before the next look at work that has run for `elapsed`.
pub(super) fn next_look(elapsed: Duration, estimate: Option<Estimate>) -> Duration {
    let Some(Estimate { mean, deviation }) = estimate else {
        return (elapsed / 8).clamp(SHORTEST_STEP, LONGEST_STEP);
    };
    let first = mean.saturating_sub(deviation * 3 / 2 + WAKE_LATENCY);
    if elapsed + SHORTEST_STEP < first {
        return first - elapsed;
    }
    let step = if elapsed > mean * 2 { elapsed / 16 } else { mean / 32 };
    step.clamp(SHORTEST_KNOWN_STEP, LONGEST_STEP)
}

/// Moving estimates by kind of operation: a small direct-mapped table.
#[derive(Debug, Default)]
pub(super) struct Estimates {
    slots: [Option<(u32, Estimate)>; 8],
}

impl Estimates {
    pub(super) fn of(&self, key: u32) -> Option<Estimate> {
        self.slots[Self::slot(key)].filter(|s| s.0 == key).map(|s| s.1)
    }

    pub(super) fn learn(&mut self, key: u32, took: Duration) {
        let slot = &mut self.slots[Self::slot(key)];
        match slot {
            Some((known, e)) if *known == key => {
                let error = took.abs_diff(e.mean);
                let share = error / 4;
                e.mean = if took > e.mean { e.mean + share } else { e.mean - share };
                e.deviation = (e.deviation * 3 + error) / 4;
            }
            _ => *slot = Some((key, Estimate { mean: took, deviation: took / 2 })),
        }
    }

    fn slot(key: u32) -> usize {
        (key.wrapping_mul(0x9e37_79b9) >> 29) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn steps_grow_with_the_time_waited_and_stay_bounded() {
        assert_eq!(next_look(Duration::ZERO, None), SHORTEST_STEP);
        assert_eq!(next_look(MS, None), MS / 8);
        assert_eq!(next_look(MS * 1000, None), LONGEST_STEP);
    }

    #[test]
    fn a_known_duration_is_slept_through_until_just_before_its_end() {
        let mut estimates = Estimates::default();
        for _ in 0..50 {
            estimates.learn(7, MS);
        }
        let estimate = estimates.of(7);
        let first = next_look(Duration::ZERO, estimate);
        assert!(first > MS * 9 / 10 && first < MS, "{first:?}");
        assert_eq!(next_look(MS, estimate), SHORTEST_KNOWN_STEP);
        assert!(next_look(MS * 100, estimate) == LONGEST_STEP);
    }

    #[test]
    fn the_estimate_follows_and_keys_do_not_mix() {
        let mut estimates = Estimates::default();
        estimates.learn(1, MS);
        for _ in 0..40 {
            estimates.learn(1, MS * 3);
        }
        let mean = estimates.of(1).map(|e| e.mean).unwrap_or_default();
        assert!(mean > MS * 29 / 10, "{mean:?}");
        assert_eq!(estimates.of(2), None);
        assert!(estimates.of(1).is_some_and(|e| !e.is_short()));
    }
}
