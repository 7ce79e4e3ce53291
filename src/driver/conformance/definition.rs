//! What a race is, by brute force on a log. It shares nothing with the checker that it judges.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::ops::Range;

use crate::driver::Race;
use crate::driver::step::{LoggedStep, Step};

/// Who enqueues or does a step, as far as order goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum By {
    Stream(u64),
    Host,
}

/// A step touches bytes of the memory that the step `of` allocated.
struct Touch {
    by_step: usize,
    of: usize,
    range: Range<u64>,
    writes: bool,
}

/// The memory that has an address now: the latest that had it, which the driver orders after those
/// before.
fn whole(memory: &[(usize, Range<u64>)], address: u64) -> &(usize, Range<u64>) {
    memory.iter().rev().find(|(_, whole)| whole.contains(&address)).unwrap()
}

/// All pairs of steps that race, from the definition: both touch a byte, one writes it, and no way
/// leads from the one to the other along streams, recordings waited for or seen finished, and what
/// the host had done before it called.
pub(super) fn races(log: &[LoggedStep]) -> Vec<(usize, usize)> {
    let mut latest = HashMap::<By, usize>::new();
    let mut recorded = HashMap::<u64, usize>::new();
    // For each step, all that come before it.
    let mut before: Vec<Vec<bool>> = Vec::new();
    let mut memory: Vec<(usize, Range<u64>)> = Vec::new();
    let mut touches: Vec<Touch> = Vec::new();
    for (at, LoggedStep { step, refused, .. }) in log.iter().enumerate() {
        let none = || (None, None, vec![]);
        let (by, comes_after, touched) = match (refused, step) {
            (Some(_), _) => none(),
            (_, &Step::Recorded { stream, .. }) => (Some(By::Stream(stream)), None, vec![]),
            (_, Step::Waited { stream, event, lost: false, .. }) => {
                (Some(By::Stream(*stream)), recorded.get(event).copied(), vec![])
            }
            (_, Step::Queried { event, finished: true }) => {
                (Some(By::Host), recorded.get(event).copied(), vec![])
            }
            (_, &Step::Allocated { ptr, bytes, stream }) => {
                let range = ptr.0..ptr.0 + bytes as u64;
                memory.push((at, range.clone()));
                (Some(By::Stream(stream)), None, vec![(range, true)])
            }
            (_, &Step::Freed { ptr, stream }) => {
                let range = whole(&memory, ptr.0).1.clone();
                (Some(By::Stream(stream)), None, vec![(range, true)])
            }
            (_, &Step::HostAllocated { ptr, bytes }) => {
                memory.push((at, ptr..ptr + bytes as u64));
                none()
            }
            (_, Step::Work { stream, touched, .. }) => {
                let touched = touched.iter().map(|t| (t.range(), t.writes)).collect();
                (Some(By::Stream(*stream)), None, touched)
            }
            (_, &Step::HostAccess { ptr, bytes, writes }) => {
                (Some(By::Host), None, vec![(ptr..ptr + bytes as u64, writes)])
            }
            _ => none(),
        };
        let mut mine = vec![false; log.len()];
        if let Some(by) = by {
            let directly = [latest.get(&by), latest.get(&By::Host), comes_after.as_ref()];
            for &step in directly.into_iter().flatten() {
                mine.iter_mut().zip(&before[step]).for_each(|(mine, its)| *mine |= its);
                mine[step] = true;
            }
            latest.insert(by, at);
        }
        before.push(mine);
        if let (None, &Step::Recorded { event, .. }) = (refused, step) {
            recorded.insert(event, at);
        }
        for (range, writes) in touched {
            let of = whole(&memory, range.start).0;
            touches.push(Touch { by_step: at, of, range, writes });
        }
    }
    let mut races = Vec::new();
    for (index, second) in touches.iter().enumerate() {
        for first in &touches[..index] {
            let overlap =
                first.range.start < second.range.end && second.range.start < first.range.end;
            let conflict = first.of == second.of && overlap && (first.writes || second.writes);
            let ordered = before[second.by_step][first.by_step];
            if conflict && first.by_step != second.by_step && !ordered {
                races.push((first.by_step, second.by_step));
            }
        }
    }
    races
}

/// The steps that a report names, which says which operation of its stream each is. `None` where the
/// second is the host's.
pub(super) fn named(log: &[LoggedStep], race: &Race) -> (usize, Option<usize>) {
    let find = |stream: u64, number: u64| {
        let is_operation = |logged: &LoggedStep| match &logged.step {
            Step::Work { stream: on, .. } | Step::Allocated { stream: on, .. } => {
                *on == stream && logged.refused.is_none()
            }
            // Counted, and judged, before it is known whether it is refused.
            Step::Freed { stream: on, .. } => *on == stream,
            _ => false,
        };
        let operations = log.iter().enumerate().filter(|(_, logged)| is_operation(logged));
        operations.map(|(at, _)| at).nth(number as usize - 1).unwrap()
    };
    let first = find(race.first.stream.unwrap(), race.first.number);
    (first, race.second.stream.map(|stream| find(stream, race.second.number)))
}
