//! Whether waits are made for nothing.

use std::collections::HashSet;
use std::fmt;

use headwater::testing::{LoggedStep, Step, wait_count};

use crate::oracle::{Act, conflicts, matters, of_former_owners, of_same_memory};

/// Work nobody held a completion of is recorded at most so many operations late.
const LATEST: usize = 15;

/// What came of many programs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) programs: u64,
    pub(crate) waits: u64,
    /// Waits for more of a stream than the conflict is with.
    late: u64,
    /// Waits for a stream that read memory while that was shared, however long ago.
    broad: u64,
    /// Waits for a stream that used memory before it changed hands, but other bytes of it.
    used_before: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { programs, waits, late, broad, used_before } = self;
        write!(
            f,
            "{programs} programs, {waits} waits, none of them implied, {late} recorded late, \
             {broad} for streams that read what was shared, {used_before} for other bytes of a former owner's"
        )
    }
}

/// Checks that each wait of a log is for a conflict: between what comes next on its stream and
/// something on the other stream, before the recording and not long before, that neither the host
/// has seen finished there nor an earlier wait of the stream has covered. And that it orders what
/// nothing else does: neither waits for other streams that waited for the same, nor the host's having
/// seen the end of something that came after it. So no log with the same operations and recordings
/// has fewer waits.
///
/// Where memory is `shared`, nobody notes who reads it: who frees it, or writes it when it is no longer
/// shared, may wait for all that has been enqueued on a stream that ever did, whatever bytes it read. And of
/// memory that changed hands the former owner's users are one set for all bytes.
pub(crate) fn each_wait_has_a_conflict(
    log: &[LoggedStep],
    acts: &[Act],
    shared: bool,
    tally: &mut Tally,
) -> Result<(), String> {
    tally.programs += 1;
    let before = *tally;
    for (at, act) in acts.iter().enumerate() {
        let &Act::Wait { stream, event } = act else { continue };
        let Some((recording, other)) = recorded(&acts[..at], event) else {
            return Err(format!("wait {at} is for an event that is not recorded"));
        };
        let next = acts[at..].iter().position(|act| act.touches() && act.stream() == Some(stream));
        let Some(next) = next.map(|next| at + next) else {
            return Err(format!("nothing comes after wait {at}"));
        };
        let is_of_other = |x: &usize| acts[*x].stream() == Some(other) && acts[*x].touches();
        let conflicts: Vec<_> = conflicts(acts, next).into_iter().filter(is_of_other).collect();
        let known = known(&acts[..at], stream, other).map_or(0, |known| known + 1);
        let is_open = |x: &usize| (known..recording).contains(x);
        let why = conflicts.iter().copied().filter(is_open).max();
        let former =
            of_former_owners(log, acts, next).into_iter().filter(is_of_other).filter(is_open);
        let (why, used_before) = match why {
            Some(_) => (why, false),
            None => (former.max(), true),
        };
        let more = why.map(|why| (why + 1..recording).filter(is_of_other).count());
        let is_first = why.is_some_and(|why| !is_recorded(&acts[why..recording], other));
        tally.waits += 1;
        let more = match more {
            Some(more) if more <= LATEST && is_first && used_before => {
                tally.used_before += 1;
                more
            }
            Some(more) if more <= LATEST && is_first && matters(acts, at) => more,
            _ if shared && of_same_memory(acts, next).iter().any(is_of_other) => {
                tally.broad += 1;
                continue;
            }
            None => {
                let next = &log[next].step;
                return Err(format!("stream {stream} waits for {other}, and not for {next:?}"));
            }
            Some(more) if more > LATEST => {
                let why = format!("{more} operations too many of {other}");
                return Err(format!("stream {stream} waits for {why}"));
            }
            Some(_) if !is_first => {
                return Err(format!("wait {at} is for a later recording of {other} than would do"));
            }
            Some(_) => {
                let why = format!("wait {at}, of stream {stream} for {other}");
                return Err(format!("{why}, orders nothing new"));
            }
        };
        tally.late += u64::from(more > 0);
    }
    counts_agree(log, tally.broad - before.broad + tally.used_before - before.used_before)
}

/// Checks that what counts waits for users has every wait needed but for the `broad` ones, and,
/// where there are none, missing where it is left out. (A broad one, for a later recording than would do, can
/// do for several others as well, of which more are needed then.)
fn counts_agree(log: &[LoggedStep], broad: u64) -> Result<(), String> {
    let whole = wait_count(log);
    let made = |logged: &&LoggedStep| {
        matches!(logged.step, Step::Waited { .. }) && logged.refused.is_none()
    };
    let issued = log.iter().filter(made).count() as u64;
    let streams = log.iter().filter_map(|logged| match logged.step {
        Step::Recorded { stream, .. } => Some(stream),
        _ => None,
    });
    let most = issued + broad * streams.collect::<HashSet<_>>().len() as u64;
    if whole.issued != issued || !(issued - broad..=most).contains(&whole.needed) {
        return Err(format!(
            "counted: {whole}, {broad} of them for what was shared or used before"
        ));
    }
    if broad > 0 {
        return Ok(());
    }
    for (at, _) in log.iter().enumerate().filter(|(_, logged)| made(logged)) {
        let without = wait_count(&[&log[..at], &log[at + 1..]].concat());
        if without.needed <= without.issued {
            return Err(format!("counted without wait {at}: {without}"));
        }
    }
    Ok(())
}

/// Which act made the recording that an event has after these, and on which stream.
fn recorded(acts: &[Act], event: u64) -> Option<(usize, u64)> {
    acts.iter().enumerate().rev().find_map(|(at, act)| match *act {
        Act::Record { event: of, stream } if of == event => Some((at, stream)),
        _ => None,
    })
}

/// Whether an event is recorded on that stream.
fn is_recorded(acts: &[Act], on: u64) -> bool {
    acts.iter().any(|act| matches!(*act, Act::Record { stream, .. } if stream == on))
}

/// The last recording on `other` that the host has seen finished, or that `stream` waits for.
fn known(acts: &[Act], stream: u64, other: u64) -> Option<usize> {
    let seen = acts.iter().enumerate().filter_map(|(at, act)| match *act {
        Act::Saw { event } => Some((at, event)),
        Act::Wait { stream: by, event } if by == stream => Some((at, event)),
        _ => None,
    });
    let recordings = seen.filter_map(|(at, event)| recorded(&acts[..at], event));
    recordings.filter(|(_, on)| *on == other).map(|(recording, _)| recording).max()
}
