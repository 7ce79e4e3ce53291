//! When to give a driver up that refuses to say how far a stream is.
//!
//! Pure: instants in, a verdict out.

use std::time::{Duration, Instant};

/// So many refusals in a row, over so long a time, are taken for the loss of the device: nobody is
/// to wait for ever. Looks of one who waits are some hundred microseconds apart by then.
const PATIENCE: (u32, Duration) = (16, Duration::from_millis(2));

/// Refusals in a row, of one kind of call on one lane.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// All of them: how far apart to try.
    pub(super) refusals: u32,
    /// Those that do not pass by themselves, and since when there are some.
    lasting: u32,
    since: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The first of its row.
    First,
    Again,
    GiveUp,
}

impl Trouble {
    /// A call was refused. `passes`: by something that is sure to end. `now`: `None` where looks have
    /// nothing to do with time, and only how many were refused counts.
    pub(super) fn met(&mut self, passes: bool, now: Option<Instant>) -> Verdict {
        self.refusals = self.refusals.saturating_add(1);
        if !passes {
            self.lasting = self.lasting.saturating_add(1);
            let long = now.is_none_or(|now| {
                now.saturating_duration_since(*self.since.get_or_insert(now)) >= PATIENCE.1
            });
            if self.lasting >= PATIENCE.0 && long {
                return Verdict::GiveUp;
            }
        }
        if self.refusals == 1 { Verdict::First } else { Verdict::Again }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn sixteen_lasting_refusals_are_the_end_and_fifteen_or_a_moment_are_not() {
        let start = Instant::now();
        let mut trouble = Trouble::default();
        assert_eq!(trouble.met(false, Some(start)), Verdict::First);
        for _ in 0..14 {
            assert_eq!(trouble.met(false, Some(start + MS * 9)), Verdict::Again);
        }
        assert_eq!(trouble.met(false, Some(start + MS * 9)), Verdict::GiveUp);
        let mut hasty = Trouble::default();
        let verdicts = (0..1_000).map(|_| hasty.met(false, Some(start)));
        assert!(verdicts.skip(1).all(|verdict| verdict == Verdict::Again));
    }

    #[test]
    fn without_a_clock_sixteen_are_the_end() {
        let mut trouble = Trouble::default();
        let verdicts: Vec<_> = (0..16).map(|_| trouble.met(false, None)).collect();
        assert!(verdicts[..15].iter().all(|verdict| *verdict != Verdict::GiveUp));
        assert_eq!(verdicts[15], Verdict::GiveUp);
    }

    #[test]
    fn what_passes_by_itself_is_waited_out() {
        let now = Instant::now();
        let mut trouble = Trouble::default();
        for _ in 0..1_000 {
            assert_ne!(trouble.met(true, Some(now + MS * 100)), Verdict::GiveUp);
        }
        assert_eq!(trouble.met(false, Some(now + MS * 200)), Verdict::Again);
    }
}
