//! `headwater::testing`: runs whose tasks yield without end, and panics in odd places.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use headwater::testing::{Cause, Explore, Gate, explore};
use headwater::{Device, Result, block_on, spawn};

use crate::common::watched;
use crate::kernels::increment;
use crate::testing::soon;

#[test]
fn tasks_that_yield_until_a_device_is_done_see_it_done() {
    watched(|| {
        explore(0..5, async |device: Device| -> Result<()> {
            let done = Arc::new(AtomicBool::new(false));
            let task = spawn({
                let (device, done) = (device.clone(), done.clone());
                async move {
                    let mut x = device.zeros::<u32>(64)?;
                    for _ in 0..5 {
                        increment(&mut x)?.await?;
                    }
                    done.store(true, SeqCst);
                    Result::<()>::Ok(())
                }
            });
            while !done.load(SeqCst) {
                tokio::task::yield_now().await;
            }
            task.await.expect("no panic")?;
            let mut x = device.zeros::<u32>(64)?;
            let mut incremented = increment(&mut x)?;
            while futures::poll!(&mut incremented).is_pending() {
                tokio::task::yield_now().await;
            }
            // Nor does `block_on` sleep where its future wakes itself.
            let mut copied = Box::pin(x.to_vec());
            let again = std::future::poll_fn(|cx| {
                cx.waker().wake_by_ref();
                copied.as_mut().poll(cx)
            });
            assert_eq!(block_on(again)?, [1; 64]);
            Ok(())
        })
    });
}

#[test]
fn tasks_that_yield_for_ever_end_the_run() {
    let impatient = || Explore::new().seeds([3]).patience(Duration::from_millis(50));
    let yields = async || loop {
        tokio::task::yield_now().await;
    };
    let cause = soon(|| impatient().find(async |_| yields().await));
    assert!(matches!(&cause, Cause::Stuck(why) if why.contains("again and again")), "{cause}");
    let cause = soon(|| {
        impatient().find(async |device: Device| -> Result<()> {
            let gate = Gate::new(&device)?;
            let held = gate.hold(&device.stream())?;
            drop(spawn(held));
            yields().await
        })
    });
    assert!(matches!(&cause, Cause::Stuck(why) if why.contains("gate")), "{cause}");
}

#[test]
fn waiting_for_a_stuck_device_in_a_drop_while_unwinding_ends() {
    struct Flush(Device);
    impl Drop for Flush {
        fn drop(&mut self) {
            let flushed = block_on(self.0.current_stream().synchronize());
            assert!(matches!(flushed, Err(headwater::Error::DeviceLost(_))));
        }
    }
    let cause = soon(|| {
        Explore::new().seeds([3]).find(async |device: Device| -> Result<()> {
            let gate = Gate::new(&device)?;
            gate.hold(&device.current_stream())?;
            let _flush = Flush(device.clone());
            panic!("the first");
        })
    });
    assert!(matches!(&cause, Cause::Stuck(why) if why.contains("panic: the first")), "{cause}");
}

#[test]
fn a_panic_of_which_no_hook_was_told_is_reported_by_what_it_was_made_with() {
    let heard = |in_task| {
        let failure = Explore::new().seeds([1]).find(async |_| {
            let resumes = async { std::panic::resume_unwind(Box::new("carried on")) };
            match in_task {
                true => drop(spawn(resumes).await),
                false => resumes.await,
            }
        });
        failure.expect("it fails").causes().to_vec()
    };
    for in_task in [false, true] {
        assert_eq!(heard(in_task), [Cause::Panicked(vec!["carried on".to_owned()])]);
    }
}

#[test]
fn a_panic_while_a_task_is_dropped_is_a_failure() {
    struct Loud;
    impl Drop for Loud {
        fn drop(&mut self) {
            panic!("in a drop");
        }
    }
    for aborted in [false, true] {
        let failure = Explore::new().seeds([1]).find(async |_| {
            let loud = Loud;
            let task = spawn(async move {
                let _loud = loud;
                std::future::pending::<()>().await;
            });
            tokio::task::yield_now().await;
            if aborted {
                task.abort();
                assert!(task.await.is_err());
            }
        });
        let failure = failure.expect("it fails");
        let [Cause::Panicked(heard)] = failure.causes() else { panic!("{failure}") };
        assert!(heard[0].starts_with("in a drop"), "{heard:?}");
    }
}
