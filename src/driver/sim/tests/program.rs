//! Programs for schedules in lock-step, and everything that can be seen of a run.

use super::{Bench, Schedule, SimOptions, bench, bytes_at};
use crate::driver::HostKind;
use crate::driver::sim::SimSpan;

/// A copy on one stream, of what another wrote. With the wait between them, or without it: then it
/// may copy what was there before.
pub(super) fn copied(schedule: Schedule, with_wait: bool) -> (Vec<u8>, Bench) {
    let b = bench(SimOptions::new().schedule(schedule));
    let (s, t) = (b.stream(), b.stream());
    let (x, host) = (b.alloc(4, &s), b.driver.host_alloc(4, HostKind::Cacheable).unwrap());
    let there = b.record(&s);
    b.wait_for(&there);

    b.fill(x, 1, 4, &s);
    let written = b.record(&s);
    if with_wait {
        b.driver.stream_wait(&t, &written).unwrap();
    }
    b.down(host, x, 4, &t);
    let read = b.record(&t);
    b.wait_for(&read);
    assert_eq!(b.sim.violations(), []);
    (bytes_at(host, 4), b)
}

/// As [`copied`], with three writes in a row before the copy: only the last is waited for, or none.
pub(super) fn copied_late(schedule: Schedule, with_wait: bool) -> (Vec<u8>, Bench) {
    let b = bench(SimOptions::new().schedule(schedule));
    let (s, t) = (b.stream(), b.stream());
    let (x, host) = (b.alloc(4, &s), b.driver.host_alloc(4, HostKind::Cacheable).unwrap());
    b.wait_for(&b.record(&s));

    for value in [3, 2, 1] {
        b.fill(x, value, 4, &s);
    }
    let written = b.record(&s);
    if with_wait {
        b.driver.stream_wait(&t, &written).unwrap();
    }
    b.down(host, x, 4, &t);
    b.wait_for(&b.record(&t));
    (bytes_at(host, 4), b)
}

/// As [`copied`], the other way round: what overwrites does not wait for who reads. The reader's
/// stream has work before it.
pub(super) fn overwritten(schedule: Schedule, with_wait: bool) -> (Vec<u8>, Bench) {
    let b = bench(SimOptions::new().schedule(schedule));
    let (s, t) = (b.stream(), b.stream());
    let (x, y) = (b.alloc(4, &s), b.alloc(4, &s));
    let host = b.driver.host_alloc(4, HostKind::Cacheable).unwrap();
    b.fill(x, 1, 4, &s);
    b.wait_for(&b.record(&s));

    b.fill(y, 9, 4, &s);
    b.down(host, x, 4, &s);
    let read = b.record(&s);
    if with_wait {
        b.driver.stream_wait(&t, &read).unwrap();
    }
    b.fill(x, 2, 4, &t);
    b.wait_for(&b.record(&t));
    b.wait_for(&read);
    (bytes_at(host, 4), b)
}

/// Everything that can be seen of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trace {
    answers: Vec<usize>,
    bytes: Vec<u8>,
    spans: Vec<(u64, u64, &'static str, u64, u64)>,
    host_now: u64,
    calls: u64,
    blocked_calls: u64,
    deviations: u32,
}

impl Trace {
    /// The same for the same trace in every build, whatever operations cost.
    pub(super) fn digest(&self) -> u64 {
        let mut timeless = Trace { host_now: 0, ..self.clone() };
        timeless.spans.iter_mut().for_each(|span| (span.3, span.4) = (0, 0));
        timeless.digest_with_times()
    }

    /// The same for the same trace in every build: FNV-1a of what it prints.
    pub(super) fn digest_with_times(&self) -> u64 {
        let mix = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
        format!("{self:?}").bytes().fold(0xCBF2_9CE4_8422_2325, mix)
    }
}

/// A program of three streams that races: where it goes from here depends on the order.
pub(super) fn trace(schedule: Schedule) -> Trace {
    trace_with(SimOptions::new().schedule(schedule))
}

/// As [`trace`], on a device with these options.
pub(super) fn trace_with(options: SimOptions) -> Trace {
    let b = bench(options.queue_limit(3));
    let streams = [b.stream(), b.stream(), b.stream()];
    let x = b.alloc(64, &streams[0]);
    let host = b.driver.host_alloc(64, HostKind::Cacheable).unwrap();
    let mut answers = vec![b.wait_for(&b.record(&streams[0]))];
    for round in 0..8_u8 {
        for (value, stream) in (1_u8..).zip(&streams) {
            b.fill(x, 10 * round + value, 64, stream);
        }
        let [s, t, u] = &streams;
        let written = b.record(t);
        b.driver.stream_wait(u, &written).unwrap();
        let y = b.alloc(16, s);
        b.launch(s, |_| Ok(()));
        b.free(y, s);
        if round % 3 == 2 {
            answers.push(b.wait_for(&b.record(u)));
        }
    }
    b.down(host, x, 64, &streams[2]);
    answers.extend(streams.iter().map(|stream| b.wait_for(&b.record(stream))));
    assert_eq!(b.sim.violations(), []);
    let span = |SimSpan { id, stream, name, start, end, .. }| (id, stream, name, start, end);
    Trace {
        answers,
        bytes: bytes_at(host, 64),
        spans: b.sim.timeline().into_iter().map(span).collect(),
        host_now: b.sim.host_now(),
        calls: b.sim.calls(),
        blocked_calls: b.sim.blocked_calls(),
        deviations: b.sim.deviations(),
    }
}
