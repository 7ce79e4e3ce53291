//! Virtual time.

use std::time::Duration;

use super::{CostModel, Schedule, SimEngine, SimOptions, bench, code, eager, stepped};
use crate::driver::{HostKind, KernelCost, TwinJob};

#[test]
fn a_pipeline_on_two_streams_overlaps_to_the_nanosecond() {
    const BYTES: usize = 1 << 20;
    // 1,300 + 18,928 up, 30,000 for the kernel, 1,300 + 19,031 down.
    const UP: u64 = 20_228;
    const KERNEL: u64 = 30_000;
    const DOWN: u64 = 20_331;
    let b = stepped();
    let streams = [b.stream(), b.stream()];
    let host = b.driver.host_alloc(BYTES, HostKind::Cacheable).unwrap();
    let twin = || -> TwinJob { Box::new(|_| Ok(())) };
    for s in &streams {
        let ptr = b.alloc(BYTES, s);
        b.up(ptr, host, BYTES, s);
        b.try_launch(&[], KernelCost::Nanoseconds(KERNEL), 4_096, s, Some(&twin)).unwrap();
        b.down(host, ptr, BYTES, s);
    }
    // The host's clock: a copy call costs 1,300, a launch 3,000.
    assert_eq!(b.sim.host_now(), 2 * (1_300 + 3_000 + 1_300));
    assert_eq!(b.sim.run_all(), 6);
    let spans: Vec<_> = b.sim.timeline().iter().map(|s| (s.engine, s.start, s.end)).collect();
    let (h2d, d2h, compute) = (SimEngine::CopyH2D, SimEngine::CopyD2H, SimEngine::Compute);
    let up = [1_300 + UP, 1_300 + 2 * UP];
    let kernel = [up[0] + KERNEL, up[0] + 2 * KERNEL];
    assert_eq!(
        spans,
        [
            (h2d, 1_300, up[0]),
            (compute, up[0], kernel[0]),
            (d2h, kernel[0], kernel[0] + DOWN),
            (h2d, up[0], up[1]),
            (compute, kernel[0], kernel[1]),
            (d2h, kernel[1], kernel[1] + DOWN),
        ]
    );
}

#[test]
fn small_kernels_run_beside_each_other_and_a_wait_moves_the_start() {
    let b = stepped();
    let (s, t) = (b.stream(), b.stream());
    let start = b.record(&s);
    b.launch(&s, |_| Ok(()));
    b.launch(&t, |_| Ok(()));
    let end = b.record(&s);
    assert_eq!(code(b.driver.event_elapsed(&start, &end)), Some(600));
    b.driver.stream_wait(&t, &end).unwrap();
    b.launch(&t, |_| Ok(()));
    b.sim.run_all();
    let spans: Vec<_> = b.sim.timeline().iter().map(|s| (s.start, s.end)).collect();
    assert_eq!(spans, [(3_000, 4_000), (6_000, 7_000), (9_000, 10_000)]);
    let elapsed = b.driver.event_elapsed(&start, &end).unwrap();
    assert_eq!(elapsed, Duration::from_nanos(6_000), "the record was made at 6,000");
    let last = b.record(&t);
    b.sim.settle();
    assert!(b.done(&last));
    assert_eq!(b.sim.host_now(), 10_000, "seen finished, so it is at least that late");
}

#[test]
fn what_waits_starts_when_the_recording_was_reached() {
    let b = eager();
    let (s, t) = (b.stream(), b.stream());
    let twin = || -> TwinJob { Box::new(|_| Ok(())) };
    b.try_launch(&[], KernelCost::Nanoseconds(50_000), 1, &s, Some(&twin)).unwrap();
    let end = b.record(&s);
    b.driver.stream_wait(&t, &end).unwrap();
    b.launch(&t, |_| Ok(()));
    let last = b.record(&t);
    b.sim.settle();
    let spans: Vec<_> = b.sim.timeline().iter().map(|s| (s.start, s.end)).collect();
    assert_eq!(spans, [(3_000, 53_000), (53_000, 54_000)]);
    assert_eq!(b.driver.event_elapsed(&end, &last).unwrap(), Duration::from_nanos(1_000));
    assert_eq!(b.driver.event_elapsed(&last, &end).unwrap(), Duration::ZERO);
}

#[test]
fn an_operation_that_runs_later_starts_earlier_where_its_engine_stood_idle() {
    let b = stepped();
    let (s, t) = (b.stream(), b.stream());
    let twin = || -> TwinJob { Box::new(|_| Ok(())) };
    let long = |stream| {
        b.try_launch(&[], KernelCost::Nanoseconds(50_000), 4_096, stream, Some(&twin)).unwrap();
    };
    let ptr = b.alloc(4, &s);
    b.fill(ptr, 1, 4, &s);
    long(&s);
    b.fill(ptr, 2, 4, &s);
    b.fill(ptr, 3, 4, &t);
    b.sim.run_all();
    let starts: Vec<_> = b.sim.timeline().iter().map(|s| s.start).collect();
    // Calls end at 1,300, 4,300, 5,600 and 6,900.
    assert_eq!(starts, [1_300, 4_300, 54_300, 6_900]);
}

#[test]
fn an_operation_never_starts_before_its_call() {
    let b = stepped();
    let (s, t) = (b.stream(), b.stream());
    b.launch(&s, |_| Ok(()));
    b.launch(&t, |_| Ok(()));
    b.sim.step_stream(t.raw());
    b.sim.step_stream(s.raw());
    let starts: Vec<_> = b.sim.timeline().iter().map(|s| s.start).collect();
    assert_eq!(starts, [6_000, 3_000]);
}

/// Two copies each way, all four called at once.
#[test]
fn copies_both_ways_share_the_link() {
    const BYTES: usize = 1 << 20;
    let mut cost = CostModel::h200();
    (cost.copy_call_ns, cost.copy_latency_ns) = (0, 0);
    let b = bench(SimOptions::new().schedule(Schedule::Stepped).cost(cost));
    let streams: Vec<_> = (0..4).map(|_| b.stream()).collect();
    let host = b.driver.host_alloc(BYTES, HostKind::Cacheable).unwrap();
    for (i, s) in streams.iter().enumerate() {
        let ptr = b.alloc(BYTES, s);
        match i % 2 {
            0 => b.up(ptr, host, BYTES, s),
            _ => b.down(host, ptr, BYTES, s),
        }
    }
    b.sim.run_all();
    let ends: Vec<_> = b.sim.timeline().iter().map(|s| s.end).collect();
    // The first at 55.4 GB/s; the second at 39.4 beside it, then 55.1; the third at 39.7 beside
    // that, then 55.4; the fourth at 39.4 beside that. 4 MiB at 94.8 GB/s would be 44,243.
    assert_eq!(ends, [18_928, 24_424, 39_413, 47_726]);
}

#[test]
fn a_stream_of_high_priority_goes_first_at_the_next_end_of_a_block() {
    let mut cost = CostModel::h200();
    cost.launch_call_ns = 0;
    let b = bench(SimOptions::new().schedule(Schedule::Stepped).cost(cost));
    let (bulk, also, urgent) = (b.stream(), b.stream(), b.driver.stream_create(-1_000).unwrap());
    let twin = || -> TwinJob { Box::new(|_| Ok(())) };
    let launch = |ns, blocks, stream: &_| {
        b.try_launch(&[], KernelCost::Nanoseconds(ns), blocks, stream, Some(&twin)).unwrap();
    };
    let device = 132 * 8; // blocks of 256 threads that it holds
    launch(100_000, 10 * device, &bulk);
    launch(100_000, 10 * device, &also);
    launch(1_000, device, &urgent);
    b.sim.run_all();
    let ptr = b.alloc(4, &urgent);
    b.up(ptr, b.driver.host_alloc(4, HostKind::Cacheable).unwrap(), 4, &urgent); // the host's clock goes on
    launch(1_000, device, &urgent);
    launch(100_000, 10 * device, &bulk);
    b.sim.run_all();
    let spans = b.sim.timeline();
    let kernels = spans.iter().filter(|span| span.engine == SimEngine::Compute);
    let times: Vec<_> = kernels.map(|span| (span.start, span.end)).collect();
    assert_eq!(
        times,
        [
            (0, 100_000),
            (100_000, 200_000),
            (0, 1_000),
            // Called at 1,300 and behind a copy: waves end every 10,000.
            (10_000, 11_000),
            // After what the two took.
            (202_000, 302_000),
        ]
    );
}
