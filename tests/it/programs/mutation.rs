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
    /// Runs that have a race by the definition.
    pub(crate) mattered: u64,
    /// Runs of which the checker reports a race.
    pub(crate) reported: u64,
    /// Runs in which wrong bytes came out, or the device found its memory misused.
    pub(crate) wrong: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { programs, lost, mattered, reported, wrong } = self;
        let share = 100.0 * *wrong as f64 / (*mattered).max(1) as f64;
        write!(
            f,
            "{programs} programs, {lost} waits lost in turn: {mattered} mattered, {reported} reported, \
             {wrong} ({share:.0} %) with wrong bytes"
        )
    }
}

fn is_wait(logged: &&LoggedStep) -> bool {
    matches!(logged.step, Step::Waited { .. })
}

fn is_lost(logged: &LoggedStep) -> bool {
    matches!(logged.step, Step::Waited { lost: true, .. })
}

/// Runs a program, then once more for every wait it makes, with that one lost. `open` makes a device
/// in lock-step that is logged, checked, and loses the wait of that number.
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
    // Up to the wait that is lost, a run goes as the one before it did.
    for nth in 0..clean.log.iter().filter(is_wait).count() as u64 {
        let ran = watched(&open(Some(nth)), program, settings);
        let lost = ran.log.iter().filter(is_wait).position(is_lost);
        if lost != Some(nth as usize) {
            return Err(format!("wait {nth} was to be lost, and was {lost:?}"));
        }
        tally.lost += 1;
        let raced = !judged(&ran).map_err(|why| format!("without wait {nth}: {why}"))?.is_empty();
        tally.mattered += u64::from(raced);
        tally.reported += u64::from(!ran.races.is_empty());
        match ran.ended {
            Err(failed) if !raced => {
                return Err(format!("without wait {nth}, in no race: {failed}"));
            }
            ended => tally.wrong += u64::from(ended.is_err()),
        }
    }
    Ok(())
}
