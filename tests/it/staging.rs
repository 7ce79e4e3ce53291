//! Ordinary memory to the device and back, in pieces made by threads of the device.

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Poll;

use futures::future::maybe_done;
use headwater::sim::{DriverCall, Fault, Pageable, Schedule, SimOptions, Simulator};
use headwater::{Device, DriverError, Error, Pod, Result, Source, StagingOptions};

use crate::common::{
    device_buffer, own_device_with, poll_once, sim, simulated, simulated_with, step_through,
    stepped, until, wait,
};
use crate::kernels::increment;

/// More than is copied at once, and no whole number of chunks.
pub(crate) const LEN: usize = 100_001;
const CHUNK: usize = 64 << 10;

pub(crate) fn chunks(limit: usize) -> StagingOptions {
    StagingOptions::new().threads(3).chunk(CHUNK).limit(limit * CHUNK)
}

/// A device with small chunks, whichever is tested on.
fn device() -> Device {
    own_device_with(|builder| builder.staging(chunks(4)))
}

pub(crate) fn with_schedule(schedule: Schedule) -> Device {
    let options = SimOptions::new().schedule(schedule);
    simulated_with(options, |builder| builder.staging(chunks(3)))
}

pub(crate) fn schedules() -> Vec<Schedule> {
    let mut schedules = vec![Schedule::Eager, Schedule::Stepped, Schedule::Lazy];
    schedules.extend((1..=4).map(Schedule::random));
    schedules
}

pub(crate) fn counting(len: usize, from: u32) -> Vec<u32> {
    (0..len as u32).map(|i| i.wrapping_mul(2_654_435_761).wrapping_add(from)).collect()
}

/// Awaits, while what is pending is run.
pub(crate) fn stepping<F: Future + Unpin>(device: &Device, mut future: F) -> F::Output {
    let mut output = None;
    until("the transfer is done", || {
        step_through(device);
        if let Poll::Ready(ended) = poll_once(&mut future) {
            output = Some(ended);
        }
        output.is_some()
    });
    output.expect("it is done")
}

/// Calls until the memory is in the middle of no transfer.
fn when_free<T>(device: &Device, mut call: impl FnMut() -> Result<T>) -> Result<T> {
    let mut done = None;
    until("the transfer has ended", || {
        step_through(device);
        match call() {
            Err(Error::Busy { .. }) => false,
            ended => {
                done = Some(ended);
                true
            }
        }
    });
    done.expect("it has ended")
}

/// Drops the last handle of a device, and sees that nothing of it is left: no thread, no transfer and no
/// memory, since each keeps it open.
pub(crate) fn is_let_go(device: Device) {
    assert_eq!(device.races().expect("it is checked"), []);
    let simulator: Simulator = sim(&device).clone();
    assert_eq!(simulator.violations(), []);
    drop(device);
    until("the device is closed", || {
        simulator.run_all();
        simulator.live_streams() == 0
            && simulator.live_pinned_bytes() == 0
            && simulator.live_device_bytes() == 0
    });
    assert_eq!(simulator.violations(), []);
}

fn goes_round<T: Pod + PartialEq + std::fmt::Debug>(
    device: &Device,
    elements: Vec<T>,
) -> Result<()> {
    let mut x = wait(device.upload(elements.clone()))?;
    assert_eq!(wait(x.to_vec())?, elements);
    wait(x.refill(Arc::<[T]>::from(elements.clone())))?;
    assert_eq!(wait(x.to_vec_in(vec![T::zeroed(); 3]))?, elements);
    wait(x.refill(&elements))?;
    assert_eq!(wait(x.to_vec())?, elements);
    Ok(())
}

#[test]
fn elements_of_any_number_and_type_go_to_the_device_and_back() -> Result<()> {
    let device = device();
    let at_once = (256 << 10) / 4;
    for len in [0, 1, at_once, at_once + 1, 2 * at_once - 1, 4 * CHUNK, LEN] {
        goes_round(&device, counting(len, 7))?;
    }
    goes_round(&device, (0..LEN).map(|i| i as f64 / 3.0).collect())?;
    goes_round(&device, (0..300_000).map(|i| [i as u8, (i >> 8) as u8, 5]).collect())?;
    goes_round(&device, vec![(); 5])?;
    goes_round(&device, vec![0u8; 300_001])
}

#[test]
fn a_source_is_made_of_whatever_has_elements() -> Result<()> {
    struct Mapped(Vec<u32>);
    impl AsRef<[u32]> for Mapped {
        fn as_ref(&self) -> &[u32] {
            &self.0
        }
    }
    let device = device();
    let elements = counting(LEN, 1);
    let bytes: Vec<u8> = elements.iter().flat_map(|x| x.to_ne_bytes()).collect();
    let mut odd = vec![0];
    odd.extend_from_slice(&bytes);
    let unaligned = bytes::Bytes::from(odd).slice(1..);
    let mut pinned = device.alloc_host(LEN)?;
    pinned.blocking_write()?.copy_from_slice(&elements);
    let array: &[u32; LEN] = elements[..].try_into().expect("as many");
    let sources: Vec<Source<'_, u32>> = vec![
        elements.clone().into(),
        elements.clone().into_boxed_slice().into(),
        Arc::<[u32]>::from(elements.clone()).into(),
        (&elements).into(),
        elements[..].into(),
        array.into(),
        pinned.into(),
        Source::from_owner(Mapped(elements.clone())),
        Source::of_bytes(unaligned)?,
        Source::of_bytes(&bytes)?,
    ];
    for source in sources {
        let what = format!("{source:?}");
        assert_eq!(source.len(), LEN);
        let x = wait(device.upload(source))?;
        assert_eq!(wait(x.to_vec())?, elements, "{what}");
    }
    let x = wait(device.upload([1u32, 2]))?;
    assert_eq!(wait(x.to_vec())?, [1, 2]);
    Ok(())
}

#[test]
fn views_and_parts_are_refilled_and_read_where_they_are() -> Result<()> {
    let device = device();
    let mut x = wait(device.upload(counting(3 * LEN, 0)))?;
    wait(x.slice_mut(LEN..2 * LEN)?.refill(vec![5; LEN]))?;
    let mut expected = counting(3 * LEN, 0);
    expected[LEN..2 * LEN].fill(5);
    assert_eq!(wait(x.to_vec())?, expected);
    assert_eq!(wait(x.slice(1..LEN + 7)?.to_vec())?, expected[1..LEN + 7]);
    let mut parts = x.into_parts(3).expect("three parts");
    wait(parts[2].refill(vec![6; LEN]))?;
    assert_eq!(wait(parts[2].to_vec())?, vec![6; LEN]);
    assert_eq!(wait(parts[0].to_vec())?, expected[..LEN]);
    let mut matrix = parts[1].as_matrix_mut(1)?;
    wait(matrix.column_mut(0)?.refill(vec![7; LEN]))?;
    assert_eq!(wait(parts[1].to_vec())?, vec![7; LEN]);
    let shared = wait(device.upload(counting(LEN, 3)))?.into_shared();
    assert_eq!(wait(shared.to_vec())?, counting(LEN, 3));
    Ok(())
}

#[test]
fn a_source_is_dropped_when_its_transfer_is_done() -> Result<()> {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Owner(Vec<u32>);
    impl AsRef<[u32]> for Owner {
        fn as_ref(&self) -> &[u32] {
            &self.0
        }
    }
    impl Drop for Owner {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, SeqCst);
        }
    }
    let device = device();
    let x = wait(device.upload(Source::from_owner(Owner(vec![1; LEN]))))?;
    assert_eq!(DROPPED.load(SeqCst), 1);
    assert_eq!(x.len(), LEN);
    Ok(())
}

#[test]
fn progress_is_seen_by_who_does_not_await() -> Result<()> {
    let device = stepped();
    let mut upload = device.upload(counting(LEN, 0));
    let progress = upload.progress();
    assert_eq!((progress.bytes_done(), progress.bytes()), (0, 4 * LEN as u64));
    assert!(poll_once(&mut upload).is_pending());
    let x = stepping(&device, upload)?;
    assert_eq!(progress.bytes_done(), progress.bytes());
    let read = x.to_vec();
    let progress = read.progress();
    stepping(&device, read)?;
    assert_eq!(progress.bytes_done(), progress.bytes());
    let small = device.upload(vec![1u32]);
    let progress = small.progress();
    assert_eq!((progress.bytes_done(), progress.bytes()), (0, 4));
    stepping(&device, small)?;
    assert_eq!(progress.bytes_done(), 4);
    Ok(())
}

#[test]
fn a_refill_of_another_length_changes_nothing() -> Result<()> {
    let device = device();
    let mut x = device_buffer(&device, &[3u32; 8]);
    let refused = wait(x.refill(vec![1; LEN]));
    assert!(matches!(
        refused,
        Err(Error::LengthMismatch { source_len: LEN, destination_len: 8, .. })
    ));
    assert_eq!(wait(x.to_vec())?, [3; 8]);
    Ok(())
}

/// What becomes of a future.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Drop,
    Forget,
}

/// Polls so many times, with some progress of the device between, then gives the future up.
fn give_up<F: Future + Unpin>(device: &Device, mut future: F, polls: usize, end: End) {
    for _ in 0..polls {
        if poll_once(&mut future).is_ready() {
            return;
        }
        sim(device).step();
    }
    match end {
        End::Drop => drop(future),
        End::Forget => mem::forget(future),
    }
}

fn each_way(mut case: impl FnMut(&Device, usize, End) -> Result<()>) -> Result<()> {
    for schedule in schedules() {
        for polls in 0..10 {
            for end in [End::Drop, End::Forget] {
                let device = with_schedule(schedule);
                case(&device, polls, end)?;
                is_let_go(device);
            }
        }
    }
    Ok(())
}

#[test]
fn an_upload_given_up_at_any_poll_leaves_nothing_behind() -> Result<()> {
    for schedule in schedules() {
        for polls in 0..10 {
            let device = with_schedule(schedule);
            give_up(&device, device.upload(counting(LEN, 0)), polls, End::Drop);
            // Others find memory and chunks.
            let x = stepping(&device, device.upload(counting(LEN, 1)))?;
            assert_eq!(stepping(&device, x.to_vec())?, counting(LEN, 1));
            drop(x);
            is_let_go(device);
        }
    }
    Ok(())
}

#[test]
fn a_refill_given_up_at_any_poll_runs_to_its_end() -> Result<()> {
    each_way(|device, polls, end| {
        let mut x = device_buffer(device, &counting(LEN, 0));
        give_up(device, x.refill(counting(LEN, 9)), polls, end);
        when_free(device, || increment(&mut x))?;
        assert_eq!(stepping(device, x.to_vec())?, counting(LEN, 10));
        Ok(())
    })
}

#[test]
fn memory_dropped_under_a_refill_is_freed_after_it() -> Result<()> {
    each_way(|device, polls, end| {
        let mut x = device_buffer(device, &counting(LEN, 0));
        give_up(device, x.refill(counting(LEN, 9)), polls, end);
        drop(x);
        Ok(())
    })
}

#[test]
fn memory_can_be_written_at_once_when_reading_it_is_given_up() -> Result<()> {
    each_way(|device, polls, end| {
        let mut x = device_buffer(device, &counting(LEN, 0));
        give_up(device, x.to_vec(), polls, end);
        match end {
            End::Drop => x.fill(4).map(drop)?,
            End::Forget => when_free(device, || x.fill(4)).map(drop)?,
        }
        assert_eq!(stepping(device, x.to_vec())?, vec![4; LEN]);
        Ok(())
    })
}

#[test]
fn memory_dropped_under_a_read_is_freed_after_it() -> Result<()> {
    each_way(|device, polls, end| {
        let x = device_buffer(device, &counting(LEN, 0)).into_shared();
        give_up(device, x.clone().to_vec(), polls, end);
        match x.try_into_buffer() {
            Ok(mut x) => when_free(device, || x.fill(1)).map(drop),
            Err(x) => panic!("{x:?} has other handles"),
        }
    })
}

#[test]
fn what_conflicts_with_a_transfer_under_way_is_busy_and_what_does_not_is_not() -> Result<()> {
    let device = stepped();
    let mut x = device.zeros::<u32>(2 * LEN)?; // holds the transfers up
    let mut y = device.alloc(LEN)?;
    mem::forget(x.slice_mut(..LEN)?.refill(counting(LEN, 0)));
    assert!(matches!(x.fill(1), Err(Error::Busy { argument: "self", .. })));
    assert!(matches!(y.copy_from(&x.slice(..LEN)?), Err(Error::Busy { argument: "source", .. })));
    let read = x.slice(LEN - 1..)?.to_vec();
    assert!(matches!(stepping_none(read), Err(Error::Busy { .. })));
    y.copy_from(&x.slice(LEN..)?)?;
    mem::forget(x.slice(LEN..)?.to_vec());
    y.copy_from(&x.slice(LEN..)?)?; // readers do not mind each other
    assert!(matches!(x.slice_mut(LEN..)?.fill(1), Err(Error::Busy { .. })));
    when_free(&device, || x.fill(3))?;
    assert_eq!(stepping(&device, x.to_vec())?, vec![3; 2 * LEN]);
    assert_eq!(stepping(&device, y.to_vec())?, vec![0; LEN]);
    drop((x, y));
    is_let_go(device);
    Ok(())
}

/// Of a future that is ready without anything being run.
fn stepping_none<F: Future + Unpin>(mut future: F) -> F::Output {
    match poll_once(&mut future) {
        Poll::Ready(ended) => ended,
        Poll::Pending => panic!("it waits"),
    }
}

#[test]
fn frozen_memory_is_busy_while_it_is_being_written() -> Result<()> {
    let device = stepped();
    let mut x = device.zeros::<u32>(LEN)?;
    mem::forget(x.refill(counting(LEN, 2)));
    let (shared, mut y) = (x.into_shared(), device.alloc(LEN)?);
    assert!(matches!(y.copy_from(&shared), Err(Error::Busy { .. })));
    when_free(&device, || y.copy_from(&shared))?;
    assert_eq!(stepping(&device, y.to_vec())?, counting(LEN, 2));
    Ok(())
}

#[test]
fn frozen_memory_is_not_settled_while_a_part_of_it_is_being_written() -> Result<()> {
    let device = stepped();
    let mut x = device_buffer(&device, &vec![0u32; 2 * LEN]);
    let mut y = device.alloc(LEN)?;
    y.copy_from(&x.slice(..LEN)?)?; // holds the refill up
    mem::forget(x.slice_mut(..LEN)?.refill(counting(LEN, 2)));
    let (shared, mut z) = (x.into_shared(), device.alloc(LEN)?);
    z.copy_from(&shared.slice(LEN..)?)?; // finds all writers finished
    assert!(matches!(z.copy_from(&shared.slice(..LEN)?), Err(Error::Busy { .. })));
    when_free(&device, || z.copy_from(&shared.slice(..LEN)?))?;
    assert_eq!(stepping(&device, z.to_vec())?, counting(LEN, 2));
    Ok(())
}

#[test]
fn a_transfer_held_up_keeps_no_other_from_going_on() -> Result<()> {
    for limit in [1, 4] {
        let options = SimOptions::new().schedule(Schedule::Stepped);
        let device = simulated_with(options, |builder| builder.staging(chunks(limit)));
        let mut held = device.alloc::<u32>(LEN)?;
        let fill = held.fill(1)?;
        let gate = sim(&device).pending().pop().expect("the fill").id;
        let mut refill = held.refill(counting(LEN, 4));
        let mut upload = device.upload(counting(LEN, 5));
        let mut x = None;
        until("the other upload is done", || {
            let others =
                sim(&device).pending().into_iter().filter(|op| op.runnable && op.id != gate);
            others.for_each(|op| assert!(sim(&device).run(op.id).is_some()));
            assert!(poll_once(&mut refill).is_pending());
            if let Poll::Ready(ended) = poll_once(&mut upload) {
                x = Some(ended);
            }
            x.is_some()
        });
        assert!(!fill.is_finished()?);
        assert_eq!(stepping(&device, x.expect("it is done")?.to_vec())?, counting(LEN, 5));
        stepping(&device, refill)?;
        assert_eq!(stepping(&device, held.to_vec())?, counting(LEN, 4));
    }
    Ok(())
}

#[test]
fn a_hundred_transfers_go_through_four_chunks() -> Result<()> {
    for schedule in [Schedule::Eager, Schedule::Lazy, Schedule::random(5)] {
        let options = SimOptions::new().schedule(schedule);
        let device = simulated_with(options, |builder| builder.staging(chunks(4)));
        let uploads: Vec<_> = (0..100).map(|i| device.upload(counting(LEN, i))).collect();
        let buffers: Vec<_> = uploads.into_iter().map(wait).collect::<Result<_>>()?;
        let reads: Vec<_> = buffers.iter().map(|x| x.to_vec()).collect();
        for (i, read) in reads.into_iter().enumerate() {
            assert_eq!(wait(read)?, counting(LEN, i as u32));
        }
        // Between two transfers the chunks go back, and while they do as many others can be made.
        assert!(sim(&device).live_pinned_bytes() <= 8 * CHUNK as u64);
        drop(buffers);
        is_let_go(device);
    }
    Ok(())
}

#[test]
fn one_thread_and_one_chunk_are_enough() -> Result<()> {
    let staging = StagingOptions::new().threads(1).chunk(1000).limit(1000);
    let device = own_device_with(|builder| builder.staging(staging));
    goes_round(&device, counting(LEN, 3))
}

#[test]
fn a_queue_of_two_operations_is_enough() -> Result<()> {
    let options = SimOptions::new();
    let device = simulated_with(options, |builder| builder.staging(chunks(16)).queue_limit(2));
    let x = wait(device.upload(counting(4 * LEN, 3)))?;
    assert_eq!(wait(x.to_vec())?, counting(4 * LEN, 3));
    drop(x);
    is_let_go(device);
    Ok(())
}

#[test]
fn on_one_stream_transfers_go_on_as_well() -> Result<()> {
    let device = own_device_with(|builder| builder.staging(chunks(2)).single_stream(true));
    goes_round(&device, counting(LEN, 3))
}

#[test]
fn a_refused_call_ends_its_transfer_and_nothing_else() -> Result<()> {
    let code = DriverError::INVALID_VALUE;
    for after in 0..6 {
        for fault in [
            Fault::of_call(DriverCall::CopyH2D, code),
            Fault::of_call(DriverCall::CopyD2H, code),
            Fault::of_call(DriverCall::EventRecord, code),
            Fault::of_call(DriverCall::EventQuery, code),
            Fault::of_call(DriverCall::HostAlloc, DriverError::OUT_OF_MEMORY),
        ] {
            let device = with_schedule(Schedule::Eager);
            let mut x = device.zeros::<u32>(LEN)?;
            sim(&device).inject(fault.after(after));
            let refilled = wait(x.refill(counting(LEN, 1)));
            let read = wait(x.to_vec());
            match (&refilled, &read) {
                (Ok(()), Ok(read)) => assert_eq!(*read, counting(LEN, 1)),
                (Err(_), Ok(read)) => assert_eq!(*read, vec![0; LEN], "nothing was enqueued"),
                _ => {}
            }
            sim(&device).clear_faults();
            wait(x.refill(counting(LEN, 2)))?;
            assert_eq!(wait(x.to_vec())?, counting(LEN, 2));
            drop(x);
            is_let_go(device);
        }
    }
    Ok(())
}

#[test]
fn a_refill_that_failed_leaves_its_bytes_undefined() -> Result<()> {
    let device = with_schedule(Schedule::Eager);
    let mut x = device.zeros::<u32>(2 * LEN)?;
    let code = DriverError::INVALID_VALUE;
    sim(&device).inject(Fault::of_call(DriverCall::CopyH2D, code).after(2));
    let refilled = wait(x.slice_mut(..LEN)?.refill(counting(LEN, 1)));
    assert!(matches!(refilled, Err(Error::Refused { .. })), "{refilled:?}");
    assert!(matches!(wait(x.to_vec()), Err(Error::Uninitialised { .. })));
    assert_eq!(wait(x.slice(LEN..)?.to_vec())?, vec![0; LEN]);
    sim(&device).inject(Fault::of_call(DriverCall::CopyH2D, code).after(2));
    let refilled = wait(x.refill(&counting(2 * LEN, 1)[..]));
    assert!(matches!(refilled, Err(Error::Refused { .. })), "{refilled:?}");
    assert!(matches!(wait(x.slice(LEN..)?.to_vec()), Err(Error::Uninitialised { .. })));
    Ok(())
}

#[test]
fn a_device_lost_in_the_middle_ends_every_transfer() -> Result<()> {
    for schedule in schedules() {
        for steps in 0..6 {
            let device = with_schedule(schedule);
            let mut x = device_buffer(&device, &counting(LEN, 0));
            let y = device_buffer(&device, &counting(LEN, 0));
            let mut upload = maybe_done(device.upload(counting(LEN, 1)));
            let mut refill = maybe_done(x.refill(counting(LEN, 1)));
            let mut read = maybe_done(y.to_vec());
            for _ in 0..steps {
                let _ = (poll_once(&mut upload), poll_once(&mut refill), poll_once(&mut read));
                sim(&device).step();
            }
            sim(&device).fail(700);
            stepping(&device, &mut upload);
            stepping(&device, &mut refill);
            stepping(&device, &mut read);
            let ended = [
                Pin::new(&mut upload).take_output().expect("it is done").map(drop),
                Pin::new(&mut refill).take_output().expect("it is done"),
                Pin::new(&mut read).take_output().expect("it is done").map(drop),
            ];
            for ended in ended {
                assert!(matches!(ended, Ok(()) | Err(Error::DeviceLost(_))), "{ended:?}");
            }
            assert!(matches!(wait(y.to_vec()), Err(Error::DeviceLost(_))));
        }
    }
    Ok(())
}

#[test]
fn copies_that_the_driver_delays_bring_the_right_bytes() -> Result<()> {
    // cudarc#382, cuda-quantum#5375: a download to ordinary memory was taken to be done when its call
    // returned. No copy here names ordinary memory.
    let options = SimOptions::new().schedule(Schedule::Lazy).pageable(Pageable::Delayed);
    let device = simulated(options);
    let mut x = wait(device.upload(counting(LEN, 0)))?;
    increment(&mut x)?;
    assert_eq!(wait(x.to_vec())?, counting(LEN, 1));
    let small = wait(device.upload(vec![1u32, 2]))?;
    assert_eq!(wait(small.to_vec())?, [1, 2]);
    Ok(())
}
