//! Without tokio: `block_on` and the executors of the `futures` crate, which the library knows nothing
//! of, run all that needs no runtime of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use futures::executor::{LocalPool, ThreadPool, block_on};
use futures::future::{join_all, try_join_all};
use futures::stream::{FuturesUnordered, StreamExt};
use futures::task::{LocalSpawnExt, SpawnExt};
use headwater::{Device, DriverError, Error, Result, StreamRole};

use crate::common::{any_device, own_device, run_to_end, sim, stepped, watched};
use crate::kernels::{copy_u32, increment};

/// A little of everything that is awaited, with scopes in branches; what it computes, ends in 3.
async fn work(device: &Device) -> Result<()> {
    let mut x = device.upload(vec![0u32; 64]).await?;
    increment(&mut x)?.await?;
    let branch = |i: usize| {
        let x = &x;
        async move {
            let mut y = device.alloc::<u32>(64)?;
            copy_u32(x, &mut y)?;
            for _ in 0..2 {
                increment(&mut y)?;
                if i.is_multiple_of(2) {
                    device.synchronize_current().await?;
                }
            }
            let mut out = device.alloc_host::<u32>(64)?;
            y.copy_to(&mut out)?;
            out.write().await?[63] += i as u32;
            assert_eq!(out.read().await?[..], [[3; 63].as_slice(), &[3 + i as u32]].concat());
            y.to_vec().await
        }
    };
    let joined = try_join_all((0..3).map(|i| device.scope(branch(i)))).await?;
    let mut set: FuturesUnordered<_> = (3..6).map(|i| device.scope(branch(i))).collect();
    while let Some(ended) = set.next().await {
        assert_eq!(ended?, [3; 64]);
    }
    assert_eq!(joined, vec![vec![3; 64]; 3]);
    let event = device.current_stream().record()?;
    event.await?;
    device.current_stream().ready().await?;
    device.current_stream().synchronize().await?;
    device.synchronize().await?;
    device.current_stream().is_idle().map(drop) // others may share the stream
}

#[test]
fn block_on_of_this_crate_runs_everything() -> Result<()> {
    watched(|| headwater::block_on(work(&any_device())))
}

#[test]
fn a_foreign_block_on_runs_everything() -> Result<()> {
    watched(|| block_on(work(&any_device())))
}

#[test]
fn tasks_of_a_foreign_executor_on_one_thread_do_and_share_its_stream() {
    watched(|| {
        let device = any_device();
        let mut pool = LocalPool::new();
        let ended = Arc::new(AtomicU32::new(0));
        let outside = device.current_stream();
        for _ in 0..4 {
            let (device, ended, outside) = (device.clone(), ended.clone(), outside.clone());
            let task = async move {
                assert!(device.current_stream().same_stream(&outside));
                work(&device).await.expect("no failure");
                ended.fetch_add(1, SeqCst);
            };
            pool.spawner().spawn_local(task).expect("it runs");
        }
        pool.run();
        assert_eq!(ended.load(SeqCst), 4);
    });
}

#[test]
fn tasks_of_a_foreign_executor_on_many_threads_do() {
    watched(|| {
        let device = any_device();
        let pool = ThreadPool::builder().pool_size(3).create().expect("threads");
        let tasks = (0..12).map(|i| {
            let device = device.clone();
            let task = async move {
                match i % 2 {
                    0 => device.scope(work(&device)).await,
                    _ => work(&device).await,
                }
            };
            pool.spawn_with_handle(task).expect("it runs")
        });
        let ended = block_on(join_all(tasks.collect::<Vec<_>>()));
        ended.into_iter().collect::<Result<()>>().expect("no failure");
    });
}

#[test]
fn scopes_of_foreign_tasks_keep_their_streams_over_threads_and_panics() {
    watched(|| {
        let device = own_device();
        let pool = ThreadPool::builder().pool_size(2).create().expect("threads");
        let tasks: Vec<_> = (0..10)
            .map(|i| {
                let (scope, device) = (device.clone(), device.clone());
                let task = scope.scope(async move {
                    let mine = device.current_stream();
                    assert_eq!(mine.role(), StreamRole::Leased);
                    for _ in 0..50 {
                        let mut polled = false;
                        std::future::poll_fn(|cx| {
                            cx.waker().wake_by_ref();
                            if std::mem::replace(&mut polled, true) {
                                std::task::Poll::Ready(())
                            } else {
                                std::task::Poll::Pending
                            }
                        })
                        .await;
                        assert!(device.current_stream().same_stream(&mine));
                    }
                    assert!(i % 3 != 0, "the user's own");
                    mine.number()
                });
                // A pool's thread would end with the panic.
                let task = futures::FutureExt::catch_unwind(std::panic::AssertUnwindSafe(task));
                pool.spawn_with_handle(task).expect("it runs")
            })
            .collect();
        let ended = block_on(join_all(tasks));
        assert_eq!(ended.iter().filter(|ended| ended.is_err()).count(), 4);
        let mut streams: Vec<_> = ended.into_iter().flatten().collect();
        streams.sort_unstable();
        streams.dedup();
        assert_eq!(streams.len(), 6);
        let outside = pool.spawn_with_handle(async move { device.current_stream().role() });
        assert_eq!(block_on(outside.expect("it runs")), StreamRole::Task);
    });
}

#[test]
fn a_foreign_task_is_woken_by_a_loss() -> Result<()> {
    let device = stepped();
    let mut x = device.zeros::<u32>(64)?;
    run_to_end(&device);
    increment(&mut x)?;
    watched(move || {
        let pool = ThreadPool::builder().pool_size(1).create().expect("a thread");
        let (sender, polled) = std::sync::mpsc::channel();
        let waits = {
            let device = device.clone();
            async move {
                let mut all = device.synchronize();
                assert!(futures::poll!(&mut all).is_pending());
                let _ = sender.send(());
                all.await
            }
        };
        let waits = pool.spawn_with_handle(waits).expect("it runs");
        polled.recv().expect("it was polled");
        sim(&device).fail(DriverError::ILLEGAL_ADDRESS);
        assert!(matches!(block_on(waits), Err(Error::DeviceLost(_))));
        Ok(())
    })
}
