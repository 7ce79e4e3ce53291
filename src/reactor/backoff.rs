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
/// However long an operation is expected to take, looks are no further apart: the estimate may be of
/// something else, and a look is how a device's failure is heard of. 0.2 % of a core.
const LONGEST_BLIND: Duration = Duration::from_millis(5);
/// A sleep ends about this much late.
const WAKE_LATENCY: Duration = Duration::from_micros(6);
/// Durations shorter than this are spun for by the first poll.
const SPIN_BELOW: Duration = Duration::from_micros(25);
/// After so many looks too far apart to tell, one spin finds out whether it was short after all.
const VAGUE_LOOKS: u8 = 8;

/// What is known of how long an operation takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    mean: Duration,
    deviation: Duration,
    /// Looks since the last that told the duration to within half of the mean.
    vague: u8,
}

impl Estimate {
    /// Whether a spin of a few microseconds is likely to see the end.
    pub(super) fn is_short(&self) -> bool {
        self.mean < SPIN_BELOW || self.vague >= VAGUE_LOOKS && self.mean < SPIN_BELOW * 4
    }
}

/// How long to sleep before the next look at work that has run for `elapsed`.
pub(super) fn next_look(elapsed: Duration, estimate: Option<Estimate>) -> Duration {
    let Some(Estimate { mean, deviation, .. }) = estimate else {
        return (elapsed / 8).clamp(SHORTEST_STEP, LONGEST_STEP);
    };
    let first = mean.saturating_sub(deviation * 3 / 2 + WAKE_LATENCY);
    if elapsed + SHORTEST_STEP < first {
        return (first - elapsed).min(LONGEST_BLIND);
    }
    let step = if elapsed > mean * 2 { elapsed / 16 } else { mean / 32 };
    // Where ends are known well, looks about the expected one are as close together: a copy of 20 ms that
    // is seen 0.5 ms late goes at 0.975 of its rate.
    let expected = elapsed < mean + deviation * 2 + SHORTEST_KNOWN_STEP * 2;
    let step = if expected { step.min(deviation / 4) } else { step };
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

    /// Takes in an operation that was still running at `running` and finished at `finished`.
    ///
    /// What lies between is not known: an estimate in there is as good as any and stays as it is,
    /// so that looks far apart do not pass for long operations. It is trusted less, so that the next look comes
    /// earlier: who looks late only would never learn that the operation has become shorter.
    pub(super) fn learn(&mut self, key: u32, running: Duration, finished: Duration) {
        let slot = &mut self.slots[Self::slot(key)];
        match slot {
            Some((known, e)) if *known == key => {
                let vague = finished - running > e.mean / 2;
                e.vague = if vague { e.vague.saturating_add(1) } else { 0 };
                let took = e.mean.clamp(running, finished);
                let error = took.abs_diff(e.mean);
                let error = if vague { error.max((finished - running) / 2) } else { error };
                let share = took.abs_diff(e.mean) / 4;
                e.mean = if took > e.mean { e.mean + share } else { e.mean - share };
                e.deviation = (e.deviation * 3 + error) / 4;
            }
            _ => {
                let mean = (running + finished) / 2;
                let deviation = (mean / 8).max((finished - running) / 2);
                *slot = Some((key, Estimate { mean, deviation, vague: 0 }));
            }
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
    fn an_operation_that_has_become_shorter_is_found_out_though_nobody_looked_in_time() {
        let mut estimates = Estimates::default();
        for _ in 0..50 {
            estimates.learn(7, MS * 4, MS * 4 + MS / 8);
        }
        // It takes half as long from here on, and is asked for when the estimate says.
        let end = MS * 2;
        let mut wait = || {
            let (mut running, mut elapsed) = (Duration::ZERO, Duration::ZERO);
            while elapsed < end {
                running = elapsed;
                elapsed += next_look(elapsed, estimates.of(7));
            }
            estimates.learn(7, running, elapsed);
            elapsed
        };
        let first = wait();
        assert!(first > MS * 7 / 2, "{first:?}");
        for _ in 0..15 {
            wait();
        }
        let late = wait() - end;
        assert!(late < MS / 4, "{late:?}");
    }

    #[test]
    fn looks_about_a_well_known_end_are_close_together_and_not_for_long() {
        let known = Estimate { mean: MS * 20, deviation: MS / 50, vague: 0 };
        for elapsed in [MS * 20 - MS / 50, MS * 20, MS * 20 + MS / 20] {
            assert_eq!(next_look(elapsed, Some(known)), SHORTEST_KNOWN_STEP);
        }
        assert_eq!(next_look(MS * 21, Some(known)), LONGEST_STEP);
        let unsure = Estimate { deviation: MS * 4, ..known };
        assert_eq!(next_look(MS * 20, Some(unsure)), LONGEST_STEP);
    }

    #[test]
    fn a_known_duration_is_slept_through_until_just_before_its_end() {
        let mut estimates = Estimates::default();
        for _ in 0..50 {
            estimates.learn(7, MS, MS);
        }
        let estimate = estimates.of(7);
        let first = next_look(Duration::ZERO, estimate);
        assert!(first > MS * 9 / 10 && first < MS, "{first:?}");
        assert_eq!(next_look(MS, estimate), SHORTEST_KNOWN_STEP);
        assert!(next_look(MS * 100, estimate) == LONGEST_STEP);
    }

    #[test]
    fn an_estimate_is_not_believed_for_long_without_a_look() {
        let mut estimates = Estimates::default();
        (0..50).for_each(|_| estimates.learn(7, MS * 300, MS * 300));
        for elapsed in [Duration::ZERO, MS, MS * 100, MS * 200] {
            assert_eq!(next_look(elapsed, estimates.of(7)), MS * 5);
        }
    }

    #[test]
    fn the_estimate_follows_and_keys_do_not_mix() {
        let mut estimates = Estimates::default();
        estimates.learn(1, MS, MS);
        for _ in 0..40 {
            estimates.learn(1, MS * 3, MS * 3);
        }
        let mean = estimates.of(1).map(|e| e.mean).unwrap_or_default();
        assert!(mean > MS * 29 / 10, "{mean:?}");
        assert_eq!(estimates.of(2), None);
        assert!(estimates.of(1).is_some_and(|e| !e.is_short()));
    }

    #[test]
    fn late_looks_at_short_operations_do_not_make_them_long() {
        const US: Duration = Duration::from_micros(1);
        let short = |e: &Estimates| e.of(1).is_some_and(|e| e.is_short());
        let mut estimates = Estimates::default();
        estimates.learn(1, US * 7, US * 8);
        // One that was long, then a rest without spinning: each seen by the first late look.
        estimates.learn(1, US * 20, US * 40);
        for _ in 0..100 {
            estimates.learn(1, Duration::ZERO, US * 35);
        }
        assert!(short(&estimates));
        // A slow first one: looks then come before the end that is expected, and find it over.
        let mut estimates = Estimates::default();
        estimates.learn(1, US * 200, US * 220);
        for _ in 0..40 {
            let look = next_look(Duration::ZERO, estimates.of(1));
            match short(&estimates) {
                true => estimates.learn(1, US * 7, US * 8),
                false => estimates.learn(1, Duration::ZERO, look.max(US * 8)),
            }
        }
        assert!(estimates.of(1).is_some_and(|e| e.mean < US * 12), "{:?}", estimates.of(1));
    }
}
