//! What overlaps on the device and what does not: what the docs of `scope` and `spawn` say.

use futures::FutureExt;
use futures::future::{join, join_all};
use futures::stream::{FuturesUnordered, StreamExt};
use headwater::sim::SimSpan;
use headwater::{Device, DeviceBuffer, Result};

use crate::common::{device_buffer, pinned_buffer, run_to_end, sim, stepped_and_slow};
use crate::kernels::{copy_u32, increment};

fn local_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
}

/// Runs what was enqueued and returns its spans, in the order enqueued.
fn spans(device: &Device) -> Vec<SimSpan> {
    let done = sim(device).timeline().len();
    run_to_end(device);
    let mut spans = sim(device).timeline().split_off(done);
    spans.sort_by_key(|span| span.id);
    spans
}

fn overlap(spans: &[SimSpan]) -> bool {
    let [a, b] = spans else { panic!("{spans:?}") };
    let both_ran = a.start < b.end && b.start < a.end;
    assert!(!both_ran || a.stream != b.stream, "a stream is in order: {spans:?}");
    both_ran
}

fn two_buffers(device: &Device) -> [DeviceBuffer<u32>; 2] {
    [device_buffer(device, &[0; 64]), device_buffer(device, &[0; 64])]
}

async fn branch(mut x: DeviceBuffer<u32>) -> Result<()> {
    tokio::task::yield_now().await;
    increment(&mut x)?;
    Ok(())
}

#[test]
fn two_tasks_overlap() -> Result<()> {
    let device = stepped_and_slow();
    let [x, y] = two_buffers(&device);
    local_runtime().block_on(async {
        let (a, b) = (tokio::spawn(branch(x)), headwater::spawn(branch(y)));
        a.await.expect("no panic")?;
        b.await.expect("no panic")
    })?;
    assert!(overlap(&spans(&device)));
    Ok(())
}

#[test]
fn two_branches_of_a_join_do_not_overlap() -> Result<()> {
    let device = stepped_and_slow();
    let [x, y] = two_buffers(&device);
    local_runtime().block_on(async {
        let both = tokio::spawn(join(branch(x), branch(y)));
        let (a, b) = both.await.expect("no panic");
        a.and(b)
    })?;
    assert!(!overlap(&spans(&device)));
    Ok(())
}

#[test]
fn two_scoped_branches_of_a_join_overlap() -> Result<()> {
    let device = stepped_and_slow();
    let [x, y] = two_buffers(&device);
    local_runtime().block_on(async {
        let both = join(device.scope(branch(x)), device.scope(branch(y)));
        let (a, b) = tokio::spawn(both).await.expect("no panic");
        a.and(b)
    })?;
    assert!(overlap(&spans(&device)));
    Ok(())
}

#[test]
fn two_threads_overlap() -> Result<()> {
    let device = stepped_and_slow();
    let mut buffers = two_buffers(&device);
    std::thread::scope(|scope| {
        for x in &mut buffers {
            scope.spawn(|| increment(x).map(drop));
        }
    });
    assert!(overlap(&spans(&device)));
    Ok(())
}

/// Whether the first two operations that this enqueues overlap.
fn two_overlap<F: Future<Output = Result<()>>>(
    enqueue: impl FnOnce(Device, [DeviceBuffer<u32>; 2]) -> F,
) -> Result<bool> {
    let device = stepped_and_slow();
    let buffers = two_buffers(&device);
    local_runtime().block_on(enqueue(device.clone(), buffers))?;
    Ok(overlap(&spans(&device)))
}

#[test]
fn two_tasks_spawned_in_a_scope_overlap() -> Result<()> {
    let overlap = two_overlap(|device, [x, y]| async move {
        let both = async { (headwater::spawn(branch(x)), headwater::spawn(branch(y))) };
        let (a, b) = device.scope(both).await;
        a.await.expect("no panic")?;
        b.await.expect("no panic")
    })?;
    assert!(overlap);
    Ok(())
}

#[test]
fn branches_of_a_set_do_not_overlap_and_scoped_ones_do() -> Result<()> {
    for scoped in [false, true] {
        let overlap = two_overlap(|device, buffers| async move {
            let mut set = FuturesUnordered::new();
            for x in buffers {
                set.push(match scoped {
                    true => device.scope(branch(x)).boxed_local(),
                    false => branch(x).boxed_local(),
                });
            }
            while let Some(ended) = set.next().await {
                ended?;
            }
            Ok(())
        })?;
        assert_eq!(overlap, scoped);
    }
    Ok(())
}

#[test]
fn two_scopes_of_one_stream_do_not_overlap() -> Result<()> {
    let overlap = two_overlap(|device, [x, y]| async move {
        let stream = device.stream();
        let (a, b) = join(stream.scope(branch(x)), stream.scope(branch(y))).await;
        a.and(b)
    })?;
    assert!(!overlap);
    Ok(())
}

#[test]
fn a_scope_in_a_scope_overlaps_with_the_outer_one() -> Result<()> {
    let overlap = two_overlap(|device, [mut x, y]| async move {
        let outer = async {
            increment(&mut x)?;
            device.scope(branch(y)).await
        };
        device.scope(outer).await
    })?;
    assert!(overlap);
    Ok(())
}

#[test]
fn scopes_that_write_the_same_bytes_do_not_overlap_and_readers_do() -> Result<()> {
    let writers = two_overlap(|device, [mut x, _]| async move {
        device.scope(async { increment(&mut x).map(drop) }).await?;
        device.scope(async { increment(&mut x).map(drop) }).await
    })?;
    let readers = two_overlap(|device, [x, _]| async move {
        let read = async || {
            let mut copy = device.alloc::<u32>(64)?;
            copy_u32(&x, &mut copy).map(drop)
        };
        let (a, b) = join(device.scope(read()), device.scope(read())).await;
        a.and(b)
    })?;
    assert_eq!((writers, readers), (false, true));
    Ok(())
}

#[test]
fn copies_of_one_direction_take_turns_and_those_of_two_do_not() -> Result<()> {
    const LEN: usize = 1 << 18; // long beside what the calls cost
    let device = stepped_and_slow();
    let [mut x, mut y] = [device_buffer(&device, &[0u32; LEN]), device_buffer(&device, &[0; LEN])];
    let up = [pinned_buffer(&device, &[1u32; LEN]), pinned_buffer(&device, &[2; LEN])];
    let mut down = device.alloc_host::<u32>(LEN)?;
    device.stream().in_scope(|| x.copy_from(&up[0]))?;
    device.stream().in_scope(|| y.copy_from(&up[1]))?;
    let [a, b] = &spans(&device)[..] else { panic!("two copies") };
    assert!(a.stream != b.stream && (a.end <= b.start || b.end <= a.start));
    device.stream().in_scope(|| x.copy_from(&up[0]))?;
    device.stream().in_scope(|| y.copy_to(&mut down))?;
    assert!(overlap(&spans(&device)));
    Ok(())
}

#[test]
fn of_more_tasks_than_streams_some_share_and_all_compute_what_they_would() -> Result<()> {
    let device = stepped_and_slow();
    let buffers: Vec<_> = (0..33).map(|_| device_buffer(&device, &[0u32; 64])).collect();
    let done = sim(&device).timeline().len();
    let tasks = local_runtime().block_on(async {
        let stepped = device.clone();
        let tasks = buffers.into_iter().map(|mut x| {
            headwater::spawn(async move {
                increment(&mut x)?;
                increment(&mut x)?;
                Ok::<_, headwater::Error>(x)
            })
        });
        let tasks = join_all(tasks.collect::<Vec<_>>()).await;
        run_to_end(&stepped);
        tasks
    });
    let mut streams: Vec<_> =
        sim(&device).timeline().split_off(done).iter().map(|span| span.stream).collect();
    streams.sort_unstable();
    streams.dedup();
    assert!((17..=32).contains(&streams.len()), "{} streams", streams.len());
    for x in tasks {
        assert_eq!(crate::common::elements(&x.expect("no panic")?), [2; 64]);
    }
    Ok(())
}

#[test]
fn more_scopes_than_streams_share_some_and_compute_what_they_would() -> Result<()> {
    let device = stepped_and_slow();
    let mut buffers: Vec<_> = (0..40).map(|_| device_buffer(&device, &[0u32; 64])).collect();
    let scopes = buffers.iter_mut().map(|x| device.scope(async { increment(x).map(drop) }));
    let scopes: Vec<_> = scopes.collect();
    for ended in futures::executor::block_on(join_all(scopes)) {
        ended?;
    }
    let mut streams: Vec<_> = spans(&device).iter().map(|span| span.stream).collect();
    streams.sort_unstable();
    streams.dedup();
    assert_eq!(streams.len(), 16);
    for x in &buffers {
        assert_eq!(crate::common::elements(x), [1; 64]);
    }
    Ok(())
}
