//! What programs did: a test whose programs did nothing shows nothing.

use headwater::DriverCalls;
use headwater::testing::{LoggedStep, Step};

use super::world::Kinds;

/// Programs that ran to their end as their models have it, without a race, and what they came to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) programs: u64,
    /// Launches, copies and fills.
    operations: u64,
    kinds: Kinds,
    waits: u64,
    /// Calls that the driver refused.
    pub(crate) refused: u64,
}

impl Done {
    /// One more program, by its log.
    pub(crate) fn by_log(&mut self, log: &[LoggedStep]) {
        let count = |of: fn(&Step) -> bool| log.iter().filter(|l| of(&l.step)).count() as u64;
        self.programs += 1;
        self.operations += count(|step| matches!(step, Step::Work { .. }));
        self.waits += count(|step| matches!(step, Step::Waited { .. }));
    }

    /// All programs, by the calls that they made.
    pub(crate) fn by_calls(&mut self, calls: &DriverCalls) {
        self.operations += calls.launches + calls.copies + calls.fills;
        self.waits += calls.stream_waits;
    }

    /// What one more program's lines enqueued.
    pub(crate) fn add(&mut self, kinds: Kinds) {
        self.kinds.of_slices += kinds.of_slices;
        self.kinds.of_tiles += kinds.of_tiles;
        self.kinds.of_parts += kinds.of_parts;
        self.kinds.of_shared += kinds.of_shared;
    }

    /// Fails where that is less than what programs do.
    pub(crate) fn tell_and_expect(&self, name: &str, refusals: bool) {
        let Done { programs, operations, kinds, waits, refused } = *self;
        let Kinds { of_slices, of_tiles, of_parts, of_shared } = kinds;
        println!(
            "{name}: {programs} programs, {operations} operations (on slices {of_slices}, tiles {of_tiles}, \
             parts {of_parts}, shared buffers {of_shared}), {waits} waits, {refused} calls refused: \
             0 races, 0 wrong bytes"
        );
        at_least(50, programs, "operations", operations);
        at_least(5, programs, "operations on shared buffers", of_shared);
        at_least(5, programs, "operations on parts", of_parts);
        at_least(10, programs, "operations on tiles", of_tiles);
        at_least(20, programs, "operations on slices", of_slices);
        at_least(30, programs, "waits", waits);
        at_least(if refusals { 5 } else { 0 }, programs, "refused calls", refused);
        assert!(refusals || refused == 0, "{refused} calls were refused");
    }
}

/// Fails where programs came to less than so many of something, for each ten of them.
pub(crate) fn at_least(each_ten: u64, programs: u64, what: &str, came: u64) {
    let floor = programs / 10 * each_ten;
    assert!(programs > 0 && came >= floor, "{programs} programs, {came} {what}, not {floor}");
}
