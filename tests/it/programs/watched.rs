//! Runs with the race checker and the oracle looking on.

use std::collections::HashMap;

use headwater::testing::{LoggedStep, Step};
use headwater::{Device, Race, RaceAccess};

use super::program::Program;
use super::run::{Settings, run};
use super::world::{Came, Checked};
use crate::oracle::{Pair, acts, races};

/// A run, with what was to be seen at the seam.
pub(crate) struct Ran {
    pub(crate) ended: Checked<Came>,
    pub(crate) log: Vec<LoggedStep>,
    /// As the checker has them.
    pub(crate) races: Vec<Race>,
}

impl Ran {
    /// What was seen of a device on which something ended so. Threads may still be looking after it.
    pub(crate) fn seen(device: &Device, ended: Checked<Came>) -> Ran {
        loop {
            let (log, races) = (device.call_log().unwrap(), device.races().unwrap());
            if device.call_log().unwrap().len() == log.len() {
                return Ran { ended, log, races };
            }
        }
    }
}

pub(crate) fn watched(device: &Device, program: &Program, settings: Settings) -> Ran {
    Ran::seen(device, run(device, program, settings))
}

/// Holds the checker's verdict on a run against the oracle's, whose pairs come back.
pub(crate) fn judged(ran: &Ran) -> Result<Vec<Pair>, String> {
    let pairs = races(&acts(&ran.log));
    if pairs.is_empty() != ran.races.is_empty() {
        let reported: Vec<_> = ran.races.iter().map(Race::to_string).collect();
        let steps: Vec<_> = pairs.iter().map(|(a, b)| [&ran.log[*a], &ran.log[*b]]).collect();
        return Err(format!("reported: {reported:#?}, and the oracle says {steps:#?}"));
    }
    let operations = operations(&ran.log);
    let unfounded = ran.races.iter().find(|race| !is_one_of(race, &pairs, &operations, &ran.log));
    match unfounded {
        Some(race) => Err(format!("not a race, says the oracle: {race}")),
        None => Ok(pairs),
    }
}

/// Where in the log an operation of a stream is, by the number that the checker gives it.
fn operations(log: &[LoggedStep]) -> HashMap<(u64, u64), usize> {
    let mut numbers = HashMap::<u64, u64>::new();
    let mut operations = HashMap::new();
    for (at, logged) in log.iter().enumerate() {
        let stream = match &logged.step {
            Step::Work { stream, .. }
            | Step::Allocated { stream, .. }
            | Step::Freed { stream, .. } => *stream,
            _ => continue,
        };
        if logged.refused.is_some() {
            continue;
        }
        let number = numbers.entry(stream).or_default();
        *number += 1;
        operations.insert((stream, *number), at);
    }
    operations
}

fn is_one_of(
    race: &Race,
    pairs: &[Pair],
    operations: &HashMap<(u64, u64), usize>,
    log: &[LoggedStep],
) -> bool {
    let of_stream = |side: &RaceAccess| {
        side.stream.and_then(|stream| operations.get(&(stream, side.number)).copied())
    };
    let Some(first) = of_stream(&race.first) else { return false };
    match race.second.stream {
        Some(_) => of_stream(&race.second).is_some_and(|second| pairs.contains(&(first, second))),
        // The report does not say which of the host's accesses.
        None => pairs.iter().any(|(a, b)| {
            let by_host = matches!(log[*b].step, Step::HostAccess { .. } | Step::Owned { .. });
            *a == first && by_host
        }),
    }
}

/// The calls of a log, without what differs from run to run: the device's number, the thread, and
/// where the system has host memory.
pub(crate) fn calls(log: &[LoggedStep]) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut calls = Vec::new();
    for LoggedStep { step, refused, .. } in log {
        let mut step = step.clone();
        if let Step::HostAllocated { ptr, bytes, .. } | Step::HostRegistered { ptr, bytes, .. } =
            step
        {
            blocks.push(ptr..ptr + bytes as u64);
        }
        // Which block, and where in it.
        let name = |ptr: &mut u64| {
            if let Some(block) = blocks.iter().position(|block| block.contains(ptr)) {
                *ptr = *ptr - blocks[block].start + ((block as u64) << 32);
            }
        };
        match &mut step {
            Step::HostAllocated { ptr, .. }
            | Step::HostFreed { ptr, .. }
            | Step::HostRegistered { ptr, .. }
            | Step::HostUnregistered { ptr, .. }
            | Step::HostAccess { ptr, .. }
            | Step::Owned { ptr, .. } => name(ptr),
            Step::Work { touched, .. } => touched.iter_mut().for_each(|t| name(&mut t.start)),
            _ => {}
        }
        calls.push(format!("{step:?}, refused: {refused:?}"));
    }
    calls
}
