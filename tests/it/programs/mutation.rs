//! Programs run again with each of their waits lost in turn.

use std::fmt;

use headwater::Device;
use headwater::testing::{LoggedStep, Step};

use super::program::Program;
use super::run::Settings;
use super::watched::{judged, watched};

/// What came of many programs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) programs: u64,
    /// Waits that were lost, one a run.
    pub(crate) lost: u64,
    /// Of these, how many left a race.
    pub(crate) mattered: u64,
    /// Of these, in how many runs wrong bytes came out, or the device found its memory misused.
    pub(crate) seen: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { programs, lost, mattered, seen } = self;
        let share = 100.0 * *seen as f64 / (*mattered).max(1) as f64;
        write!(
            f,
            "{programs} programs, {lost} waits lost in turn: {mattered} mattered, all of them reported, \
             {seen} ({share:.0} %) of them with wrong bytes"
        )
    }
}

/// Runs a program, then once more for every wait it makes, with that one lost. `open` makes a device
/// that is logged, checked, and loses the wait of that number.
pub(crate) fn lose_each_wait(
    program: &Program,
    settings: Settings,
    open: impl Fn(Option<u64>) -> Device,
    tally: &mut Tally,
) -> Result<(), String> {
    let clean = watched(&open(None), program, settings);
    clean.ended.as_ref().map_err(|failed| format!("with every wait: {failed}"))?;
    if let [(first, second), ..] = judged(&clean)?[..] {
        let pair = [&clean.log[first], &clean.log[second]];
        return Err(format!("with every wait there is a race: {pair:#?}"));
    }
    tally.programs += 1;
    for nth in 0.. {
        let ran = watched(&open(Some(nth)), program, settings);
        let is_lost = |logged: &LoggedStep| matches!(logged.step, Step::Waited { lost: true, .. });
        if !ran.log.iter().any(is_lost) {
            return ran.ended.map_err(|failed| format!("with no wait lost: {failed}"));
        }
        tally.lost += 1;
        let raced = !judged(&ran).map_err(|why| format!("without wait {nth}: {why}"))?.is_empty();
        match ran.ended {
            Err(failed) if !raced => {
                return Err(format!("without wait {nth}, in no race: {failed}"));
            }
            ended => {
                tally.mattered += u64::from(raced);
                tally.seen += u64::from(ended.is_err());
            }
        }
    }
    Ok(())
}
