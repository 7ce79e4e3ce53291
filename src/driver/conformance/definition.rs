//! What a race is, by brute force on a log. It shares nothing with the checker that it judges.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::ops::Range;
use std::thread;

use smallvec::SmallVec;

use crate::driver::step::{LoggedStep, Step, Touched};
use crate::driver::{DriverCall, Race};

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
    bytes: Touched,
}

/// Whether there is a byte that both touch.
fn meet(one: &Touched, other: &Touched) -> bool {
    let touches = |t: &Touched, at: u64| (at - t.start) % (t.pitch as u64) < t.row as u64;
    let (a, b) = (one.range(), other.range());
    (a.start.max(b.start)..a.end.min(b.end)).any(|at| touches(one, at) && touches(other, at))
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
                memory.push((at, ptr.0..ptr.0 + bytes as u64));
                (Some(By::Stream(stream)), None, vec![Touched::new(ptr.0, bytes, true)])
            }
            (_, &Step::Freed { ptr, stream }) => {
                let Range { start, end } = whole(&memory, ptr.0).1;
                let all = Touched::new(start, (end - start) as usize, true);
                (Some(By::Stream(stream)), None, vec![all])
            }
            (_, &Step::HostAllocated { ptr, bytes, .. } | &Step::HostRegistered { ptr, bytes }) => {
                memory.push((at, ptr..ptr + bytes as u64));
                none()
            }
            (_, Step::Work { stream, touched, .. }) => {
                (Some(By::Stream(*stream)), None, touched.to_vec())
            }
            (_, &Step::HostAccess { ptr: start, bytes, writes, row, pitch }) => {
                (Some(By::Host), None, vec![Touched { start, bytes, writes, row, pitch }])
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
        for bytes in touched {
            let of = whole(&memory, bytes.start).0;
            touches.push(Touch { by_step: at, of, bytes });
        }
    }
    let mut races = Vec::new();
    for (index, second) in touches.iter().enumerate() {
        for first in &touches[..index] {
            let writes = first.bytes.writes || second.bytes.writes;
            let conflict = first.of == second.of && writes && meet(&first.bytes, &second.bytes);
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

/// A program of one allocation, and then of these accesses of a stream each: the pairs that race.
fn races_of(accesses: [Touched; 2]) -> usize {
    let log = |step| LoggedStep { device: 0, thread: thread::current().id(), step, refused: None };
    let memory = log(Step::HostAllocated { ptr: 0, bytes: 100, write_combined: false });
    let work = |(stream, touched)| {
        let touched = SmallVec::from_elem(touched, 1);
        log(Step::Work { call: DriverCall::Launch, name: "work", stream, function: 0, touched })
    };
    let accesses = (1..).zip(accesses).map(work);
    races(&[memory].into_iter().chain(accesses).collect::<Vec<_>>()).len()
}

#[test]
fn columns_race_by_their_bytes_and_not_by_what_lies_between() {
    let column = |first, pitch, writes| Touched::in_rows(first, (4, 6, pitch), writes);
    assert_eq!(races_of([column(0, 8, true), column(4, 8, true)]), 0);
    assert_eq!(races_of([column(0, 8, true), column(3, 8, false)]), 1);
    assert_eq!(races_of([column(0, 8, false), column(3, 8, false)]), 0);
    assert_eq!(races_of([column(0, 8, true), Touched::new(4, 4, false)]), 0);
    assert_eq!(races_of([Touched::new(4, 5, true), column(0, 8, false)]), 1);
    // Rows at 0, 8, 16 and so on, beside others at 4, 20, 36 and so on, or at 4, 14 and 24.
    assert_eq!(races_of([column(0, 8, true), column(4, 16, false)]), 0);
    assert_eq!(races_of([column(0, 8, true), column(4, 10, false)]), 1);
}
