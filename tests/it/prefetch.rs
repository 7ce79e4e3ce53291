//! Uploads of what comes next, while what came last is in use.

use std::cell::Cell;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures::channel::mpsc;
use futures::stream::{self, FusedStream, Stream, StreamExt};
use headwater::sim::{DriverCall, Fault, Schedule, SimOpKind, SimOptions, Simulator};
use headwater::testing::assert_all_freed;
use headwater::{Device, DeviceBuffer, DriverError, Error, Prefetch, Result, Source};

use crate::common::{
    Wakes, elements, own_device_with, pinned_buffer, poll_once, sim, simulated, simulated_with,
    step_through, stepped, until, wait, while_stepped_at_random,
};
use crate::kernels::{copy_u32, increment};
use crate::staging::{LEN, chunks, counting, is_let_go, schedules, stepping};

/// The next item, while what is pending is run.
fn next<S: Stream + Unpin>(device: &Device, items: &mut S) -> Option<S::Item> {
    stepping(device, items.next())
}

/// Batches that are told apart.
fn batches(n: u32, len: usize) -> impl Iterator<Item = Vec<u32>> {
    (0..n).map(move |i| counting(len, i))
}

fn prefetch(device: &Device, n: u32) -> Prefetch<impl Stream<Item = Vec<u32>> + use<>, u32> {
    Prefetch::new(device, stream::iter(batches(n, LEN).collect::<Vec<_>>()))
}

/// Bytes that were copied to the device so far.
fn uploaded(sim: &Simulator) -> usize {
    let copies = sim.timeline().into_iter().filter(|span| span.kind == SimOpKind::CopyH2D);
    copies.map(|span| span.bytes as usize).sum()
}

/// Runs what can be run, without the kernels.
fn run_all_but_kernels(sim: &Simulator) {
    let others = sim.pending().into_iter().filter(|op| op.runnable && op.kind != SimOpKind::Kernel);
    others.for_each(|op| drop(sim.run(op.id)));
}

/// The next item, while nothing but kernels is held up.
fn next_beside_kernels<S: Stream + Unpin>(device: &Device, items: &mut S) -> Option<S::Item> {
    let mut next = items.next();
    let mut item = None;
    until("the next item is there", || {
        run_all_but_kernels(sim(device));
        if let Poll::Ready(ready) = poll_once(&mut next) {
            item = Some(ready);
        }
        item.is_some()
    });
    item.flatten()
}

/// Takes two items and enqueues a kernel on each, which is held back. The second was given out when
/// the upload of the third had been started; sees that it ends, with nobody polling, before either
/// kernel has run.
fn the_third_is_uploaded_before_the_kernels<S>(
    device: &Device,
    mut items: Prefetch<S, u32>,
    len: usize,
) -> Result<()>
where
    S: Stream<Item: Into<Source<'static, u32>>> + Unpin,
{
    let mut first = next_beside_kernels(device, &mut items).expect("one of three")?;
    let first_kernel = increment(&mut first)?;
    let mut second = next_beside_kernels(device, &mut items).expect("one of three")?;
    let second_kernel = increment(&mut second)?;
    until("the third is uploaded", || {
        run_all_but_kernels(sim(device));
        uploaded(sim(device)) == 3 * size_of::<u32>() * len
    });
    assert!(!first_kernel.is_finished()? && !second_kernel.is_finished()?);
    let third = next_beside_kernels(device, &mut items).expect("one of three")?;
    assert!(!first_kernel.is_finished()? && !second_kernel.is_finished()?);
    for (i, batch) in [first, second].iter().enumerate() {
        assert_eq!(stepping(device, batch.to_vec())?, counting(len, i as u32 + 1));
    }
    assert_eq!(stepping(device, third.to_vec())?, counting(len, 2));
    assert!(next(device, &mut items).is_none());
    Ok(())
}

#[test]
fn the_next_upload_starts_and_ends_before_the_kernel_on_the_item_before_does() -> Result<()> {
    let device = staged(Schedule::Stepped);
    the_third_is_uploaded_before_the_kernels(&device, prefetch(&device, 3), LEN)
}

#[test]
fn small_and_borrowed_and_pinned_items_are_not_behind_the_work_either() -> Result<()> {
    let device = stepped();
    let small = stream::iter(batches(3, 100).collect::<Vec<_>>());
    the_third_is_uploaded_before_the_kernels(&device, Prefetch::new(&device, small), 100)?;
    let device = stepped();
    let borrowed: Vec<&'static [u32]> = batches(3, LEN).map(|batch| &*batch.leak()).collect();
    let borrowed = Prefetch::new(&device, stream::iter(borrowed));
    the_third_is_uploaded_before_the_kernels(&device, borrowed, LEN)?;
    let device = stepped();
    let pinned: Vec<_> = batches(3, LEN).map(|batch| pinned_buffer(&device, &batch)).collect();
    let pinned = Prefetch::new(&device, stream::iter(pinned));
    the_third_is_uploaded_before_the_kernels(&device, pinned, LEN)
}

fn staged(schedule: Schedule) -> Device {
    let options = SimOptions::new().schedule(schedule);
    simulated_with(options, |builder| builder.staging(chunks(3)))
}

#[test]
fn items_come_in_the_order_of_their_sources() -> Result<()> {
    for schedule in schedules() {
        for depth in [0, 1, 3, 100] {
            let device = staged(schedule);
            // Some are copied inside the poll, and are done before those that threads copy.
            let lens = [LEN, 1, 2 * LEN, 0, 100, LEN, 7];
            let sources: Vec<_> = lens.iter().map(|len| counting(*len, 3)).collect();
            let mut items = Prefetch::new(&device, stream::iter(sources)).depth(depth);
            for len in lens {
                let x = next(&device, &mut items).expect("as many as sources")?;
                assert_eq!(stepping(&device, x.to_vec())?, counting(len, 3));
            }
            assert!(next(&device, &mut items).is_none());
            drop(items);
            is_let_go(device);
        }
    }
    Ok(())
}

#[test]
fn as_many_uploads_are_started_as_the_depth_says_before_an_item_is_given_out() -> Result<()> {
    for depth in [0, 1, 2, 5] {
        let device = own_device_with(|builder| builder);
        let asked = Cell::new(0);
        let sources = stream::iter(batches(20, 10)).inspect(|_| asked.set(asked.get() + 1));
        let mut items = Prefetch::new(&device, sources).depth(depth);
        assert_eq!(asked.get(), 0);
        for given_out in 1..5 {
            wait(items.next()).expect("one of twenty")?;
            assert_eq!(asked.get(), given_out + depth);
        }
    }
    Ok(())
}

#[test]
fn sources_that_are_not_ready_delay_no_item_that_is() -> Result<()> {
    let device = stepped();
    let (sender, receiver) = mpsc::unbounded();
    let mut items = Prefetch::new(&device, receiver).depth(2);
    assert!(poll_once(&mut items.next()).is_pending());
    sender.unbounded_send(counting(LEN, 0)).expect("it is received");
    let x = next(&device, &mut items).expect("it was sent")?;
    assert_eq!(stepping(&device, x.to_vec())?, counting(LEN, 0));

    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    assert!(items.poll_next_unpin(&mut Context::from_waker(&waker)).is_pending());
    sender.unbounded_send(counting(10, 1)).expect("it is received");
    assert_eq!(wakes.count(), 1);
    assert!(next(&device, &mut items).expect("it was sent").is_ok());
    assert!(!items.is_terminated());
    drop(sender);
    assert!(next(&device, &mut items).is_none());
    assert!(items.is_terminated());
    assert!(next(&device, &mut items).is_none());
    Ok(())
}

#[test]
fn who_waits_for_an_item_is_woken_by_its_upload() -> Result<()> {
    let device = own_device_with(|builder| builder.staging(chunks(3)));
    let mut items = prefetch(&device, 5);
    for i in 0..5 {
        let x = wait(items.next()).expect("one of five")?;
        assert_eq!(wait(x.to_vec())?, counting(LEN, i));
    }
    Ok(())
}

#[test]
fn an_item_that_fails_is_an_error_in_its_place_and_ends_nothing() -> Result<()> {
    for depth in [0, 1, 4] {
        let device = simulated(SimOptions::new());
        // Each is one copy, made inside the poll.
        let sources = stream::iter(batches(5, 100).collect::<Vec<_>>());
        let mut items = Prefetch::new(&device, sources).depth(depth);
        let code = DriverError::INVALID_VALUE;
        sim(&device).inject(Fault::of_call(DriverCall::CopyH2D, code).after(2));
        for i in 0..5 {
            match next(&device, &mut items).expect("one of five") {
                Ok(x) => assert_eq!(elements(&x), counting(100, i)),
                Err(error) => {
                    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
                    assert_eq!(i, 2);
                }
            }
        }
        assert!(next(&device, &mut items).is_none());
        assert_eq!(sim(&device).injected().len(), 1);
        drop(items);
        assert_all_freed(&device);
        is_let_go(device);
    }
    Ok(())
}

#[test]
fn a_transfer_that_fails_in_the_middle_fails_its_item_alone() -> Result<()> {
    for schedule in [Schedule::Eager, Schedule::Lazy, Schedule::random(3)] {
        for after in [0, 3, 8, 12] {
            let device = staged(schedule);
            let mut items = prefetch(&device, 4);
            let code = DriverError::INVALID_VALUE;
            sim(&device).inject(Fault::of_call(DriverCall::CopyH2D, code).after(after));
            let mut failed = 0;
            for i in 0..4 {
                match next(&device, &mut items).expect("one of four") {
                    Ok(x) => assert_eq!(stepping(&device, x.to_vec())?, counting(LEN, i)),
                    Err(Error::Refused { .. }) => failed += 1,
                    Err(error) => panic!("{error:?}"),
                }
            }
            assert_eq!(failed, 1);
            drop(items);
            is_let_go(device);
        }
    }
    Ok(())
}

#[test]
fn a_lost_device_ends_every_item_and_not_the_program() {
    let device = stepped();
    let mut items = prefetch(&device, 3);
    assert!(poll_once(&mut items.next()).is_pending());
    sim(&device).fail(DriverError::LAUNCH_FAILED);
    for _ in 0..3 {
        let lost = next(&device, &mut items).expect("one of three");
        assert!(matches!(lost, Err(Error::DeviceLost(_))), "{lost:?}");
    }
    assert!(next(&device, &mut items).is_none());
}

#[test]
fn an_item_is_not_lost_where_waiting_for_it_is_given_up() -> Result<()> {
    let device = stepped();
    let mut items = prefetch(&device, 3);
    for i in 0..3 {
        mem::forget(items.next());
        let x = match poll_once(&mut items.next()) {
            Poll::Ready(item) => item,
            Poll::Pending => next(&device, &mut items),
        };
        let x = x.expect("one of three")?;
        assert_eq!(stepping(&device, x.to_vec())?, counting(LEN, i));
    }
    Ok(())
}

#[test]
fn dropped_at_any_poll_it_leaves_nothing_behind() -> Result<()> {
    for schedule in schedules() {
        for polls in 0..12 {
            let device = staged(schedule);
            let mut items = prefetch(&device, 6).depth(polls % 4);
            let mut taken = Vec::new();
            for _ in 0..polls {
                if let Poll::Ready(Some(x)) = poll_once(&mut items.next()) {
                    taken.push(x?);
                }
                sim(&device).step();
            }
            drop(items);
            for (i, x) in taken.iter().enumerate() {
                assert_eq!(stepping(&device, x.to_vec())?, counting(LEN, i as u32));
            }
            drop(taken);
            // Threads are still at what was given up.
            until("all memory is back", || {
                step_through(&device);
                drop(device.trim(0));
                device.memory().in_flight == 0
            });
            assert_all_freed(&device);
            is_let_go(device);
        }
    }
    Ok(())
}

/// A batch, copied to where it is kept by a kernel that nobody awaits; then the batch is dropped.
fn keep(batch: DeviceBuffer<u32>) -> Result<DeviceBuffer<u32>> {
    let mut kept = batch.device().alloc(batch.len())?;
    copy_u32(&batch, &mut kept)?;
    Ok(kept)
}

#[test]
fn a_batch_dropped_while_a_kernel_reads_it_is_not_overwritten_before() -> Result<()> {
    let device = staged(Schedule::Stepped);
    let mut items = prefetch(&device, 6);
    let mut kept = Vec::new();
    while let Some(batch) = next_beside_kernels(&device, &mut items) {
        kept.push(keep(batch?)?); // no kernel has run when the last one is uploaded
    }
    let pending = sim(&device).pending();
    assert_eq!(pending.iter().filter(|op| op.kind == SimOpKind::Kernel).count(), 6);
    for (i, batch) in kept.iter().enumerate() {
        assert_eq!(stepping(&device, batch.to_vec())?, counting(LEN, i as u32));
    }
    drop((items, kept));
    is_let_go(device);
    Ok(())
}

#[test]
fn memory_of_a_dropped_batch_is_written_again_after_what_reads_it() -> Result<()> {
    const BATCHES: u32 = 8;
    let bytes = size_of::<u32>() * LEN;
    // For all that is kept, and three batches: the fourth gets the memory of one before.
    let limit = ((BATCHES as usize + 3) * bytes.next_multiple_of(2 << 20)) as u64;
    let options = SimOptions::new().schedule(Schedule::Stepped);
    let device = simulated_with(options, |builder| builder.staging(chunks(3)).memory_limit(limit));
    let kept = while_stepped_at_random(&device, || {
        let mut items = prefetch(&device, BATCHES);
        let mut kept = Vec::new();
        while let Some(batch) = wait(items.next()) {
            kept.push(keep(batch?)?);
        }
        Ok::<_, Error>(kept)
    })?;
    for (i, batch) in kept.iter().enumerate() {
        assert_eq!(stepping(&device, batch.to_vec())?, counting(LEN, i as u32));
    }
    drop(kept);
    is_let_go(device);
    Ok(())
}

#[test]
fn on_one_stream_the_same_comes_out_to_the_bit() -> Result<()> {
    let results = |single| {
        let device = own_device_with(|builder| builder.staging(chunks(3)).single_stream(single));
        let mut items = prefetch(&device, 5).depth(2);
        let mut results = Vec::new();
        while let Some(batch) = wait(items.next()) {
            let mut batch = batch?;
            increment(&mut batch)?;
            results.push(wait(batch.to_vec())?);
        }
        Ok::<_, Error>(results)
    };
    let (one, many) = (results(true)?, results(false)?);
    assert_eq!(one, many);
    assert_eq!(one, batches(6, LEN).skip(1).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn how_many_items_are_left_is_told() -> Result<()> {
    let device = own_device_with(|builder| builder);
    let mut items = prefetch(&device, 3);
    assert_eq!(items.size_hint(), (3, Some(3)));
    for left in (0..3).rev() {
        wait(items.next()).expect("one of three")?;
        assert_eq!(items.size_hint(), (left, Some(left)));
    }
    assert!(items.is_terminated() && wait(items.next()).is_none());
    Ok(())
}
