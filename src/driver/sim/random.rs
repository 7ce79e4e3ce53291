//! The choices of a random schedule, by a seed. Pure.

use super::schedule::{Next, Ready};
use crate::random::{SplitMix64, mix};

/// Draws how many of the ready items run in a turn, and which.
///
/// Tame is: one in each turn, the first in the order enqueued. A choice that differs is a
/// *deviation*: a pause, however many turns it lasts; one more in a turn; another than the first.
/// There is a limit of them: with a lower limit the same seed makes the same choices up to there,
/// and tame ones after it.
#[derive(Debug)]
pub(super) struct Dice {
    numbers: SplitMix64,
    limit: u32,
    deviations: u32,
    /// Turns in which nothing is to run yet, unless it is owed; in the one after them something is.
    pause: Option<u32>,
    /// Of eight turns, in how many nothing runs: seeds are quick and slow ones.
    idle_of_8: u64,
    /// Mostly, the same streams go first: an order in which each stream is as likely as another
    /// never holds one back for long. Half of the seeds are such.
    favourites: Option<u64>,
}

impl Dice {
    pub(super) fn new(seed: u64, limit: u32) -> Self {
        let mut numbers = SplitMix64::new(seed);
        let idle_of_8 = [3, 5, 7, 7][numbers.below(4) as usize];
        let favourites = (numbers.below(2) == 1).then(|| numbers.next());
        Dice { numbers, limit, deviations: 0, pause: None, idle_of_8, favourites }
    }

    pub(super) fn deviations(&self) -> u32 {
        self.deviations
    }

    /// What runs next in a turn in which `ran` items did; `None` where the turn is over. `owed`:
    /// at least one is to run, if any can.
    pub(super) fn choose(&mut self, ready: &Ready, ran: u32, owed: bool) -> Option<Next> {
        let items = ready.items();
        let (_, oldest) = items.first()?;
        if ran == 0 {
            let pause = self.pause.take();
            let pause = if owed { 0 } else { pause.unwrap_or_else(|| self.pause()) };
            if pause > 0 {
                self.pause = Some(pause - 1);
                return None;
            }
        } else if self.may_deviate() && self.numbers.below(2) == 0 {
            self.deviations += 1;
        } else {
            return None;
        }
        if !self.may_deviate() {
            return Some(*oldest);
        }
        let index = self.which(&items);
        self.deviations += u32::from(index > 0);
        items.get(index).map(|&(_, next)| next)
    }

    /// Turns in which nothing runs, from this one on.
    fn pause(&mut self) -> u32 {
        let mut turns = 0;
        while self.may_deviate() && self.numbers.below(8) < self.idle_of_8 {
            turns += 1;
        }
        self.deviations += u32::from(turns > 0);
        turns
    }

    fn may_deviate(&self) -> bool {
        self.deviations < self.limit
    }

    /// `items` is not empty.
    fn which(&mut self, items: &[(u64, Next)]) -> usize {
        let any = self.numbers.below(items.len() as u64) as usize;
        match self.favourites {
            Some(salt) if self.numbers.below(8) > 0 => {
                let rank = |&index: &usize| mix(salt ^ items[index].1.stream());
                (0..items.len()).max_by_key(rank).unwrap_or(any)
            }
            _ => any,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn ready(seqs: &[u64]) -> Ready {
        Ready { work: seqs.iter().map(|&seq| (seq, 100 + seq)).collect(), ..Ready::default() }
    }

    /// The streams chosen in so many turns among the same three items; 0 at the end of a turn.
    fn turns(seed: u64, limit: u32, turns: usize) -> (Vec<u64>, u32) {
        let (mut dice, ready) = (Dice::new(seed, limit), ready(&[1, 2, 3]));
        let mut chosen = Vec::new();
        for _ in 0..turns {
            for ran in 0.. {
                match dice.choose(&ready, ran, false) {
                    Some(next) => chosen.push(next.stream()),
                    None => break,
                }
            }
            chosen.push(0);
        }
        (chosen, dice.deviations())
    }

    #[test]
    fn the_same_seed_makes_the_same_choices_and_another_makes_others() {
        assert_eq!(turns(7, u32::MAX, 50), turns(7, u32::MAX, 50));
        let different: HashSet<_> = (0..100).map(|seed| turns(seed, u32::MAX, 50)).collect();
        assert_eq!(different.len(), 100);
    }

    #[test]
    fn without_deviations_the_oldest_item_runs_in_each_turn() {
        assert_eq!(turns(7, 0, 3), (vec![101, 0, 101, 0, 101, 0], 0));
    }

    #[test]
    fn a_lower_limit_keeps_the_first_choices_and_makes_no_more_deviations() {
        for seed in 0..100 {
            let (free, all) = turns(seed, u32::MAX, 50);
            assert_eq!(turns(seed, all, 50), (free.clone(), all), "no limit was met");
            for limit in 0..all {
                let (limited, made) = turns(seed, limit, 50);
                assert_eq!(made, limit);
                let same = free.iter().zip(&limited).take_while(|(a, b)| a == b).count();
                assert!(same >= limit as usize / 2, "each choice is at most two deviations");
            }
        }
    }

    #[test]
    fn a_turn_runs_nothing_or_several_and_any_of_them() {
        let mut lengths = HashSet::new();
        let mut streams = HashSet::new();
        for seed in 0..50 {
            let (chosen, _) = turns(seed, u32::MAX, 20);
            lengths.extend(chosen.split(|&stream| stream == 0).map(<[u64]>::len));
            streams.extend(chosen);
        }
        assert!([0, 1, 2, 3].iter().all(|length| lengths.contains(length)));
        assert_eq!(streams, HashSet::from([0, 101, 102, 103]));
    }

    #[test]
    fn something_runs_where_it_is_owed_if_anything_can() {
        for seed in 0..100 {
            let mut dice = Dice::new(seed, u32::MAX);
            assert!(dice.choose(&ready(&[4, 5]), 0, true).is_some());
            assert_eq!(dice.choose(&ready(&[]), 0, true), None);
        }
    }
}
