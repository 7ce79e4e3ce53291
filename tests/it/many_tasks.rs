//! Ten thousand tasks on a device of 32 streams for them.

use headwater::testing::assert_all_freed;
use headwater::{Device, Error, Result, Stream, StreamRole};
use tokio::runtime::{Builder, Runtime};

use crate::common::{own_device, run_to_end, wait};
use crate::kernels::increment;

const TASKS: u32 = 10_000;
const LEN: usize = 16;

/// Waits for room where the task's stream, which it shares with some hundred others, is full.
async fn when_there_is_room<T>(
    device: &Device,
    mut operation: impl FnMut() -> Result<T>,
) -> Result<T> {
    loop {
        match operation() {
            Err(Error::QueueFull { .. }) => device.current_stream().ready().await?,
            other => return other,
        }
    }
}

/// Uploads from pinned memory, has a kernel add 1, downloads, and checks each byte. Says on which
/// stream.
async fn one(device: Device, number: u32) -> Result<Stream> {
    let mut input = device.alloc_host::<u32>(LEN)?;
    for (i, element) in input.try_write()?.iter_mut().enumerate() {
        *element = number.wrapping_mul(2_654_435_761) ^ i as u32;
    }
    let mut output = device.alloc_host::<u32>(LEN)?;
    let mut x = device.alloc::<u32>(LEN)?;
    when_there_is_room(&device, || x.copy_from(&input)).await?;
    when_there_is_room(&device, || increment(&mut x)).await?;
    when_there_is_room(&device, || x.copy_to(&mut output)).await?;
    let (input, output) = (input.read().await?, output.read().await?);
    assert!(input.iter().zip(&*output).all(|(before, after)| before.wrapping_add(1) == *after));
    Ok(device.current_stream())
}

/// So many tasks at once, half of them in a scope. The streams that they were on.
fn tasks(device: &Device, runtime: &Runtime, tasks: u32) -> Result<Vec<Stream>> {
    let spawn = |number| {
        let work = one(device.clone(), number);
        match number % 2 {
            0 => headwater::spawn(work),
            _ => headwater::spawn(device.scope(work)),
        }
    };
    let entered = runtime.enter();
    let tasks: Vec<_> = (0..tasks).map(spawn).collect();
    drop(entered);
    let ended = tasks.into_iter().map(|task| wait(task).expect("no panic"));
    let mut streams = ended.collect::<Result<Vec<_>>>()?;
    streams.sort_by_key(Stream::number);
    streams.dedup_by(|a, b| a.same_stream(b));
    Ok(streams)
}

#[test]
fn ten_thousand_tasks_each_get_their_bytes_and_leave_nothing() -> Result<()> {
    let device = own_device();
    let runtime = Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    let streams = tasks(&device, &runtime, TASKS)?;
    let of = |role| streams.iter().filter(|stream| stream.role() == role).count();
    assert_eq!((of(StreamRole::Task), of(StreamRole::Leased)), (32, 16));
    wait(device.synchronize())?;
    let calls = device.driver_calls().expect("counted");
    let each = u64::from(TASKS);
    assert_eq!((calls.launches, calls.copies, calls.frees), (each, 2 * each, 0));
    assert!(calls.allocs < each, "{} allocations: no memory is used again", calls.allocs);
    assert_eq!(device.memory().in_use, 0);
    for stream in &streams {
        assert!(stream.is_idle()? && stream.in_flight() == 0, "{stream:?}");
    }
    drop(streams);
    if let Some(sim) = device.simulator() {
        run_to_end(&device);
        assert_all_freed(&device);
        assert_eq!(sim.blocked_calls(), 0);
    }
    // No stream was made for them, and every one is there for others.
    let more = tasks(&device, &runtime, TASKS / 20)?;
    let calls = device.driver_calls().expect("counted").since(&calls);
    assert_eq!(calls.stream_creates, 0);
    drop(more);
    let mut lent: Vec<_> = (0..16).map(|_| device.stream()).collect();
    lent.sort_by_key(Stream::number);
    lent.dedup_by(|a, b| a.same_stream(b));
    assert_eq!(lent.len(), 16, "some are still lent");
    Ok(())
}
