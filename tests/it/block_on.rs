//! Waiting without a runtime, in the thread itself, and handing over what was polled there.

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use headwater::sim::{Schedule, SimOptions};
use headwater::{Completion, Result, block_on};

use crate::common::{
    any_device, device_buffer, elements, own_device, poll_once, receive, run_to_end, sim,
    simulated_with, stepped, wait, watched,
};
use crate::kernels::increment;

#[test]
fn block_on_awaits_gpu_work_in_the_thread_itself() -> Result<()> {
    watched(|| {
        let device = any_device();
        let x = block_on(async {
            let mut x = device.upload(vec![1u32; 64]).await?;
            for _ in 0..50 {
                increment(&mut x)?.await?;
            }
            Ok::<_, headwater::Error>(x)
        })?;
        assert_eq!(block_on(x.to_vec())?, [51; 64]);
        Ok(())
    })
}

#[test]
#[cfg(target_os = "linux")]
fn block_on_needs_no_reactor_thread() -> Result<()> {
    watched(|| {
        let device = own_device();
        let mut x = block_on(device.upload(vec![1u32; 64]))?;
        block_on(increment(&mut x)?)?;
        let name = format!("headwater-{}", device.number());
        let tasks = std::fs::read_dir("/proc/self/task").expect("on Linux");
        let is_reactor = |task: std::io::Result<std::fs::DirEntry>| {
            let comm = task.map(|task| std::fs::read_to_string(task.path().join("comm")));
            comm.is_ok_and(|comm| comm.is_ok_and(|comm| comm.trim() == name))
        };
        assert!(!tasks.into_iter().any(is_reactor), "it was started");
        Ok(())
    })
}

#[test]
fn block_on_may_be_nested() -> Result<()> {
    watched(|| {
        let device = any_device();
        let mut x = device_buffer(&device, &[0u32; 64]);
        let mut y = device_buffer(&device, &[0u32; 64]);
        block_on(async {
            let mut outer = increment(&mut x)?;
            // With this thread's own waker: the thread looks after it.
            let _ = futures::poll!(&mut outer);
            block_on(increment(&mut y)?)?;
            outer.await
        })?;
        assert_eq!((elements(&x), elements(&y)), (vec![1; 64], vec![1; 64]));
        Ok(())
    })
}

#[test]
fn block_on_is_woken_by_other_threads() {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let answer = watched(move || {
        block_on(async {
            std::thread::spawn(move || sender.send(42));
            receiver.await
        })
    });
    assert_eq!(answer, Ok(42));
}

/// Two completions of different streams that are pending.
fn pending(device: &headwater::Device) -> Result<[Completion; 2]> {
    let mut x = device_buffer(device, &[0u32; 64]);
    let mut y = device_buffer(device, &[0u32; 64]);
    let (a, b) = (device.stream(), device.stream());
    Ok([a.in_scope(|| increment(&mut x))?, b.in_scope(|| increment(&mut y))?])
}

#[test]
fn a_completion_polled_under_block_on_resolves_in_another_task() -> Result<()> {
    let device = stepped();
    let [mut one, mut two] = pending(&device)?;
    watched(move || {
        block_on(async {
            assert!(futures::poll!(&mut one).is_pending());
            assert!(futures::poll!(&mut two).is_pending());
        });
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("one");
        let task = runtime.spawn(async move {
            one.await?;
            two.await
        });
        while sim(&device).step().is_some() {}
        wait(task).expect("no panic")
    })
}

#[test]
fn completions_in_a_set_polled_under_block_on_resolve_in_another_task() -> Result<()> {
    let device = stepped();
    let mut set: FuturesUnordered<_> = pending(&device)?.into_iter().collect();
    watched(move || {
        // The set polls them with wakers of its own and not again before they wake it.
        block_on(async { assert!(futures::poll!(set.next()).is_pending()) });
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("one");
        let task = runtime.spawn(async move {
            let mut ended = 0;
            while let Some(completion) = set.next().await {
                completion?;
                ended += 1;
            }
            Ok(ended)
        });
        run_to_end(&device);
        assert_eq!(wait(task).expect("no panic")?, 2);
        Ok(())
    })
}

#[test]
fn completions_taken_out_of_a_running_block_on_resolve_elsewhere() -> Result<()> {
    let device = stepped();
    let mut set: FuturesUnordered<_> = pending(&device)?.into_iter().collect();
    watched(move || {
        let (to_block_on, from_task) = tokio::sync::oneshot::channel();
        block_on(async move {
            assert!(futures::poll!(set.next()).is_pending());
            std::thread::spawn(move || {
                run_to_end(&device);
                let ended =
                    wait(async { set.map(|ended| ended.is_ok()).collect::<Vec<_>>().await });
                let _ = to_block_on.send(ended);
            });
            assert_eq!(from_task.await, Ok(vec![true, true]));
        });
    });
    Ok(())
}

#[test]
fn another_executor_inside_block_on_is_served() -> Result<()> {
    watched(|| {
        let device = any_device();
        block_on(async {
            let mut x = device.upload(vec![1u32; 64]).await?;
            // Blocks the thread inside a poll, as foreign code may.
            futures::executor::block_on(increment(&mut x)?)?;
            let local = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            local.block_on(increment(&mut x)?)?;
            assert_eq!(x.to_vec().await?, [3; 64]);
            Ok(())
        })
    })
}

#[test]
fn an_ending_thread_can_still_wait() -> Result<()> {
    struct Last(headwater::Device, std::sync::mpsc::Sender<Result<Vec<u32>>>);
    impl Drop for Last {
        fn drop(&mut self) {
            let Last(device, sender) = self;
            let _ = sender.send(block_on(async { device.zeros::<u32>(4)?.to_vec().await }));
        }
    }
    thread_local! {
        static LAST: std::cell::RefCell<Option<Last>> = const { std::cell::RefCell::new(None) };
    }
    let (sender, receiver) = std::sync::mpsc::channel();
    let device = any_device();
    let thread = std::thread::spawn(move || {
        // Made before what the library keeps for the thread, so dropped after it.
        LAST.set(Some(Last(device.clone(), sender)));
        block_on(device.zeros::<u32>(4)?.to_vec())
    });
    assert_eq!(thread.join().expect("the thread ends well")?, [0; 4]);
    assert_eq!(receive(&receiver)?, [0; 4]);
    Ok(())
}

#[test]
fn a_spin_has_an_end_whatever_it_was_set_to() -> Result<()> {
    watched(|| {
        let options = SimOptions::new().schedule(Schedule::Stepped);
        let longest = std::time::Duration::MAX;
        let device = simulated_with(options, |builder| builder.inline_spin(longest));
        let mut x = device.zeros::<u32>(64)?;
        let mut incremented = increment(&mut x)?;
        assert!(poll_once(&mut incremented).is_pending(), "the device never does it");
        run_to_end(&device);
        block_on(incremented)
    })
}
