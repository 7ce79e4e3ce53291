//! A program that failed, and how to have it fail again.

use std::fmt;

use super::trial::Deviations;
use crate::driver::Race;
use crate::sim::{SimSpan, Violation};

/// Operations that a report lists: the last ones.
const LISTED: usize = 100;

/// What was wrong with a run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// No device, or no runtime, was to be had.
    NotRun(String),
    /// The program returned an error.
    Returned(String),
    /// The program, or a task that [`spawn`](crate::spawn) made, panicked: the messages with their places.
    Panicked(String),
    /// Nothing could happen any more: who waits for whom.
    Stuck(String),
    /// Accesses that nothing orders.
    Raced(Vec<Race>),
    /// The device was used in a way that no correct program does.
    Misused(Vec<Violation>),
    /// The program has ended, and device memory is still allocated.
    Leaked {
        /// So much, in units of 256.
        bytes: u64,
    },
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::NotRun(why) => write!(f, "the program was not run: {why}"),
            Cause::Returned(error) => write!(f, "the program returned an error: {error}"),
            Cause::Panicked(heard) => write!(f, "the program panicked: {heard}"),
            Cause::Stuck(why) => write!(f, "nothing can happen any more: {why}"),
            Cause::Raced(races) => races.iter().enumerate().try_for_each(|(at, race)| {
                let new_line = if at > 0 { "\n- " } else { "" };
                write!(f, "{new_line}{}", race.to_string().replace('\n', "\n  "))
            }),
            Cause::Misused(violations) => {
                f.write_str("the device was used wrongly:")?;
                violations.iter().try_for_each(|violation| write!(f, "\n    {violation:?}"))
            }
            Cause::Leaked { bytes } => {
                write!(f, "{bytes} bytes of device memory were not freed (a buffer was forgotten?)")
            }
        }
    }
}

/// A seed with which a program fails: what [`Explore::find`](super::Explore::find) finds.
///
/// Its `Display` is the report that [`explore`](super::explore) panics with.
#[derive(Clone, Debug)]
pub struct Failure {
    pub(super) seed: u64,
    /// Seeds before it.
    pub(super) passed: u64,
    /// Of the run that was found.
    pub(super) causes: Vec<Cause>,
    pub(super) made: Deviations,
    /// The fewest with which it fails in the same way.
    pub(super) least: Deviations,
    /// What ran on each device with those, by its number in the process.
    pub(super) ran: Vec<(u32, Vec<SimSpan>)>,
}

impl Failure {
    /// The seed: alone it fails again.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// What was wrong. Never empty.
    pub fn causes(&self) -> &[Cause] {
        &self.causes
    }

    /// How many choices have to differ from the tame order for the program to fail in the same
    /// way: as few as were found. 0: it fails in the tame order as well.
    pub fn deviations(&self) -> u32 {
        self.least.device.saturating_add(self.least.host)
    }

    /// What ran on the first device, in that order, with as few deviations.
    pub fn order(&self) -> &[SimSpan] {
        self.ran.first().map_or(&[], |(_, spans)| spans)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { seed, passed, causes, made, least, ran } = self;
        writeln!(f, "the program fails with seed {seed} ({passed} before it passed)")?;
        for cause in causes {
            writeln!(f, "- {cause}")?;
        }
        let thread = std::thread::current();
        let test = thread.name().filter(|name| *name != "main").unwrap_or("NAME");
        writeln!(
            f,
            "\nThis seed alone: HEADWATER_SEED={seed} cargo test {test}, or explore({seed}..={seed}, ..)"
        )?;
        match self.deviations() {
            0 => writeln!(f, "It fails in the tame order too: everything as it was enqueued.")?,
            _ => writeln!(
                f,
                "Of the choices that differed from the tame order, these are enough: {} of {} of the \
                 device's, {} of {} of the host's.",
                least.device, made.device, least.host, made.host
            )?,
        }
        for (device, spans) in ran {
            let skipped = spans.len().saturating_sub(LISTED);
            writeln!(f, "\nWhat ran on device {device}, in this order:")?;
            if skipped > 0 {
                writeln!(f, "  ... {skipped} before")?;
            }
            for (at, span) in spans.iter().enumerate().skip(skipped) {
                let SimSpan { stream, name, bytes, start, end, .. } = span;
                let (number, start, end) = (at + 1, *start as f64 / 1e3, *end as f64 / 1e3);
                writeln!(
                    f,
                    "  {number:4}  stream {stream:<4} {name:<16} {bytes:>10} B  {start:.1}..{end:.1} us"
                )?;
            }
        }
        Ok(())
    }
}
