//! The checker against the definition: random steps, judged by brute force as well.

mod definition;
mod steps;

use self::definition::Definition;
use self::steps::{Random, Seen, device_of, seen};
use super::*;

/// Whether there is a race by then, by the checker and by the definition.
fn judge(checker: &mut Checker, definition: &mut Definition, seen: &Seen) -> (bool, bool) {
    let mut by_definition = false;
    match seen {
        Seen::Step(step) => {
            checker.step(device_of(step), step);
            by_definition |= definition.races(step);
        }
        Seen::Refused(end, meanwhile) => {
            let take_back = checker.step(device_of(end), end);
            for step in meanwhile {
                checker.step(device_of(step), step);
                by_definition |= definition.races(step);
            }
            checker.take_back(take_back);
        }
    }
    (!checker.races().is_empty(), by_definition)
}

#[test]
fn the_first_race_of_random_steps_is_the_first_by_the_definition() {
    let (mut racy, mut clean, mut refused, mut freed) = (0, 0, 0, 0);
    let mut of_pitches = [0, 0];
    for seed in 0..3_000 {
        let mut random = Random(seed);
        let count = 10 + random.below(80) as usize;
        let all = seen(&mut random, count);
        // How much is forgotten, and when, changes nothing.
        for always_kept in [0, 1, HISTORY_ALWAYS_KEPT] {
            let (mut checker, mut definition) =
                (Checker::that_keeps(always_kept), Definition::default());
            let mut race = false;
            for (at, one) in all.iter().enumerate() {
                let (found, by_definition) = judge(&mut checker, &mut definition, one);
                let told =
                    || format!("seed {seed}, keeping {always_kept}, at {at}: {:#?}", &all[..=at]);
                assert_eq!(found, by_definition, "{}", told());
                refused += usize::from(matches!(one, Seen::Refused(..)));
                race = found;
                if race {
                    freed += usize::from(checker.races()[0].freed);
                    break;
                }
            }
            for (all, here) in of_pitches.iter_mut().zip(definition.of_pitches) {
                *all += usize::from(here > 0);
            }
            match race {
                true => racy += 1,
                false => clean += 1,
            }
        }
    }
    let counts = [racy, clean, refused, freed, of_pitches[0], of_pitches[1]];
    assert!(counts.iter().all(|&count| count > 40), "{counts:?}");
}
