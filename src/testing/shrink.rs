//! The least that a schedule has to deviate for a program to fail. Pure.

/// Up to here one after the other: the answer is then exact.
const EACH_UP_TO: u32 = 32;

/// The least `limit` up to `most` for which `fails`, where it does for `most`. Exact up to 32; above it
/// is one whose predecessor did not fail, found by doubling and halving, since whether a limit
/// fails need not grow with it.
pub(super) fn least(most: u32, mut fails: impl FnMut(u32) -> bool) -> u32 {
    if let Some(exact) = (0..most.min(EACH_UP_TO)).find(|&limit| fails(limit)) {
        return exact;
    }
    let mut passes = most.min(EACH_UP_TO).saturating_sub(1);
    let mut failing = most;
    let mut step = EACH_UP_TO;
    while passes.saturating_add(step) < failing {
        match fails(passes + step) {
            true => failing = passes + step,
            false => passes += step,
        }
        step = step.saturating_mul(2);
    }
    while failing > passes.saturating_add(1) && most > EACH_UP_TO {
        let half = passes + (failing - passes) / 2;
        match fails(half) {
            true => failing = half,
            false => passes = half,
        }
    }
    failing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_is_found_in_few_trials() {
        for most in [0, 1, 5, 31, 32, 33, 100, 10_000] {
            for at in (0..=most).step_by(1 + most as usize / 50) {
                let mut trials = 0;
                let found = least(most, |limit| {
                    trials += 1;
                    assert!(limit < most, "that it fails there is known");
                    limit >= at
                });
                assert_eq!(found, at, "of {most}");
                assert!(trials <= 64, "{trials} trials for {at} of {most}");
            }
        }
    }

    #[test]
    fn what_fails_by_itself_takes_one_trial() {
        let mut trials = 0;
        let always = |_| {
            trials += 1;
            true
        };
        assert_eq!(least(1_000, always), 0);
        assert_eq!(trials, 1);
    }
}
