//! The thread on which everything on the simulated device happens.
//!
//! It is started by the first operation and ends when the last handle of the driver has gone and
//! nothing is left that can run. Between operations it holds the machine's lock, during one it
//! does not: callers can enqueue and query while a twin runs.
#![allow(unsafe_code)]

use std::io;
use std::sync::{Arc, MutexGuard};
use std::thread;

use super::bytes::Executing;
use super::machine::Machine;
use super::run::Started;
use super::schedule::Next;
use super::state::{Garbage, State};
use super::work::{Failure, discard};
use crate::foreign::contained;

/// What a device answers whose executor met a bug in the simulator.
const UNKNOWN: u32 = 999;

/// Called once for each machine, with the lock held.
pub(super) fn start(machine: &Arc<Machine>) -> io::Result<()> {
    let machine = Arc::clone(machine);
    thread::Builder::new().name("headwater-sim".into()).spawn(move || {
        machine.set_executor();
        // SAFETY: this is the executor thread, of which `State::executor_started` allows one.
        let mut executing = unsafe { Executing::new() };
        let _ended = Ended(&machine);
        run(&machine, &mut executing);
    })?;
    Ok(())
}

fn run(machine: &Machine, executing: &mut Executing) {
    let mut state = machine.lock();
    loop {
        if !state.garbage.is_empty() {
            let garbage = std::mem::take(&mut state.garbage);
            drop(state);
            drop_unlocked(machine, garbage);
            state = machine.lock();
        }
        match state.choose() {
            Some(Next::Control(_)) => drop_unlocked(machine, run_controls(state)),
            Some(Next::Work(stream)) => execute(machine, state, stream, executing),
            None => {
                machine.changed();
                if state.users == 0 {
                    return;
                }
                state = machine.park(state);
                continue;
            }
        }
        state = machine.lock();
    }
}

/// Runs what costs no time, as long as nothing else comes first. Gives the lock back.
fn run_controls(mut state: MutexGuard<'_, State>) -> Garbage {
    let mut garbage = Garbage::default();
    while let Some(Next::Control(stream)) = state.choose() {
        state.run_control(stream, &mut garbage);
    }
    garbage
}

/// Runs the operation at the head of a stream, without the lock.
fn execute<'a>(
    machine: &'a Machine,
    mut state: MutexGuard<'a, State>,
    stream: u64,
    executing: &mut Executing,
) {
    let Some(Started { seq, device, name, work, strike }) = state.start(stream) else {
        return;
    };
    let mut garbage = Garbage::default();
    let failure = |(code, _)| Failure { code, violation: None };
    let prepared = match strike {
        Some(strike @ (_, false)) => Err((failure(strike), work)),
        _ => work.prepare(name, device, &state.devices),
    };
    let outcome = match prepared {
        Ok(prepared) => {
            drop(state);
            let outcome = prepared.run(name, executing);
            state = machine.lock();
            outcome
        }
        Err((failure, work)) => {
            garbage.works.push(work);
            Err(failure)
        }
    };
    let outcome = outcome.and(strike.map_or(Ok(()), |strike| Err(failure(strike))));
    state.finish(seq, outcome, &mut garbage);
    drop(state);
    drop_unlocked(machine, garbage);
}

fn drop_unlocked(machine: &Machine, garbage: Garbage) {
    machine.changed();
    let Garbage { reports, works, blocks } = garbage;
    for report in reports {
        contained(|| tracing::error!("{report}\nit was waited for too long, and ends"));
    }
    works.into_iter().for_each(discard);
    drop(blocks);
}

/// However the thread ends: what is pending never runs, and nobody waits for it.
struct Ended<'a>(&'a Machine);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        let mut garbage = std::mem::take(&mut state.garbage);
        state.end(UNKNOWN, &mut garbage);
        drop(state);
        drop_unlocked(self.0, garbage);
    }
}
