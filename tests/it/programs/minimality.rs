//! Whether waits are made for nothing.

use headwater::LoggedStep;

use crate::oracle::{Act, conflicts, matters};

/// Checks that each wait of a log is for a conflict: between what comes next on its stream and
/// something on the other stream, before the recording, that neither the host has seen finished
/// there nor an earlier wait of the stream has covered. Says how many waits there are.
pub(crate) fn each_wait_has_a_conflict(log: &[LoggedStep], acts: &[Act]) -> Result<u64, String> {
    let mut waits = 0;
    for (at, act) in acts.iter().enumerate() {
        let &Act::Wait { stream, event } = act else { continue };
        waits += 1;
        let recording = recorded(&acts[..at], event);
        let Some((recording, other)) = recording else {
            return Err(format!("wait {at} is for an event that is not recorded"));
        };
        let known = known(&acts[..at], stream, other);
        let next = acts[at..].iter().position(|act| act.touches() && act.stream() == Some(stream));
        let Some(next) = next.map(|next| at + next) else {
            return Err(format!("nothing comes after wait {at}"));
        };
        let is_why = |x: &usize| {
            acts[*x].stream() == Some(other)
                && *x < recording
                && known.is_none_or(|known| *x > known)
        };
        if !conflicts(acts, next).iter().any(is_why) {
            let next = &log[next].step;
            return Err(format!("stream {stream} waits for {other}, and not for {next:?}"));
        }
    }
    Ok(waits)
}

/// The waits of a log that order nothing that others do not.
pub(crate) fn implied(acts: &[Act]) -> u64 {
    let waits = (0..acts.len()).filter(|at| matches!(acts[*at], Act::Wait { .. }));
    waits.filter(|at| !matters(acts, *at)).count() as u64
}

/// Which act made the recording that an event has after these, and on which stream.
fn recorded(acts: &[Act], event: u64) -> Option<(usize, u64)> {
    acts.iter().enumerate().rev().find_map(|(at, act)| match *act {
        Act::Record { event: of, stream } if of == event => Some((at, stream)),
        _ => None,
    })
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
