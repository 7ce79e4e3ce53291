//! A program that failed, and how to have it fail again.

use std::fmt;

use super::trial::{Deviations, Ran};
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
    /// The program, or a task that [`spawn`](crate::spawn) made, panicked: what each panic until
    /// then said and where, caught ones too, in the order in which they came. Of one that the
    /// process's panic hook was not called for (`resume_unwind`) or does not tell us (another one
    /// was set), what it was made with.
    Panicked(Vec<String>),
    /// Nothing could happen any more: who waits for whom.
    Stuck(String),
    /// Accesses that nothing orders.
    Raced(Vec<Race>),
    /// The device was used in a way that no correct program does.
    Misused(Vec<Violation>),
    /// The program has ended, and device memory is still allocated. Not told beside other causes,
    /// nor where a device has failed or something is held on any stream at the end, related or not.
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
            Cause::Panicked(heard) => match &heard[..] {
                [] => f.write_str("the program panicked, and said nothing"),
                [one] => write!(f, "the program panicked: {one}"),
                [first, then @ ..] => {
                    write!(f, "first, a panic: {first}")?;
                    then.iter().try_for_each(|then| write!(f, "\n- then a panic: {then}"))
                }
            },
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
    /// Of the run with the fewest deviations, as is what ran.
    pub(super) causes: Vec<Cause>,
    pub(super) ran: Ran,
    /// Of the run that was found.
    pub(super) made: Deviations,
    /// The fewest with which it fails in the same way.
    pub(super) least: Deviations,
}

impl Failure {
    /// The seed: alone it fails again.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// What was wrong, in a run with as few deviations. Never empty.
    pub fn causes(&self) -> &[Cause] {
        &self.causes
    }

    /// How many choices have to differ from the tame order, in which everything runs as it was
    /// enqueued, for the program to fail in the same way: as few as were found. 0: it fails in that
    /// order as well.
    pub fn deviations(&self) -> u32 {
        self.least.device.saturating_add(self.least.host)
    }

    /// What ran until the program had ended, or could not go on, in a run with as few deviations: in
    /// that order, on all devices.
    pub fn order(&self) -> &[SimSpan] {
        &self.ran.spans[..self.ran.by_the_end]
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { seed, passed, causes, made, least, ran } = self;
        if let [cause @ Cause::NotRun(_)] = &causes[..] {
            return write!(f, "{cause}");
        }
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
        if made.device == 0 && made.host == 0 {
            writeln!(f, "Nothing was reordered: it ran in the tame order (run as enqueued).")?;
        } else if self.deviations() == 0 {
            writeln!(f, "It fails in the tame order (run as enqueued) as well.")?;
        } else {
            f.write_str("Of the choices that differed from the tame order (run as enqueued), ")?;
            f.write_str("these are enough:")?;
            let kinds = [("device", least.device, made.device), ("host", least.host, made.host)];
            let needed = kinds.iter().filter(|(_, least, _)| *least > 0);
            for (at, (kind, least, made)) in needed.enumerate() {
                let comma = if at > 0 { "," } else { "" };
                write!(f, "{comma} {least} of the {kind}'s {made}")?;
            }
            writeln!(f, ".")?;
        }
        let raced = causes.iter().any(|cause| matches!(cause, Cause::Raced(_)));
        ran.list(f, raced)
    }
}

impl Ran {
    /// `raced`: there are reports of races beside it.
    fn list(&self, f: &mut fmt::Formatter<'_>, raced: bool) -> fmt::Result {
        let Ran { spans, by_the_end, devices, streams } = self;
        if spans.is_empty() {
            return Ok(());
        }
        match &devices[..] {
            [one] => write!(f, "\nWhat ran on device {one}, in this order")?,
            _ => write!(f, "\nWhat ran, in this order")?,
        }
        match raced {
            true => writeln!(f, " (races count by stream, and allocations too):")?,
            false => writeln!(f, ":")?,
        }
        let skipped = spans.len().saturating_sub(LISTED);
        if skipped > 0 {
            writeln!(f, "  ... {skipped} before")?;
        }
        for (at, span) in spans.iter().enumerate().skip(skipped) {
            if at == *by_the_end {
                writeln!(f, "when the program had ended:")?;
            }
            let SimSpan { id, device, stream, name, bytes, start, end, .. } = span;
            let (start, end) = (*start as f64 / 1e3, *end as f64 / 1e3);
            write!(f, "  operation {id:<4} ")?;
            if let (2.., Some(device)) = (devices.len(), devices.get(*device)) {
                write!(f, "device {device:<3} ")?;
            }
            match streams.iter().find(|(handle, _)| handle == stream) {
                Some((_, number)) => write!(f, "stream {number:<4} ")?,
                None => write!(f, "handle {stream:<4} ")?,
            }
            writeln!(f, "{name:<16} {bytes:>10} B  {start:.1}..{end:.1} us")?;
        }
        Ok(())
    }
}
