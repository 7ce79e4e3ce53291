//! Futures that are given up.

use headwater::testing::assert_all_freed;
use headwater::{Completion, Device, DeviceBuffer, Error, HostBuffer, Result, Stream};
use tokio::runtime::Builder;
use tokio::task::yield_now;

use crate::common::{Random, on_gpu, run_to_end, wait};
use crate::kernels::increment;

const CANCELLATIONS: usize = 100_000;
const TASKS: usize = 4;
const ROUNDS: usize = 10;

/// A buffer, and how often it was incremented.
struct Counted {
    x: DeviceBuffer<u32>,
    increments: u32,
}

impl Counted {
    fn increment(&mut self) -> Result<Completion> {
        let done = increment(&mut self.x)?;
        self.increments += 1;
        Ok(done)
    }
}

/// Waits in one of the ways there are, for work that is enqueued here.
async fn waits(
    device: &Device,
    counted: &mut Counted,
    pinned: &mut HostBuffer<u32>,
    way: usize,
) -> Result<()> {
    let done = counted.increment()?;
    match way {
        0 => done.await,
        1 => device.synchronize().await,
        2 => device.current_stream().record()?.await,
        3 => device.scope(async { counted.increment()?.await }).await,
        4 => {
            counted.x.copy_to(pinned)?;
            let most = counted.increments;
            pinned.read().await.map(|read| assert_eq!(*read, [most; 16]))
        }
        _ => counted.x.to_vec().await.map(|read| assert_eq!(read, [counted.increments; 16])),
    }
}

/// Gives up so many waits, each after some polls of it and of others. How many came to their end first.
async fn gives_up(device: Device, seed: u64, cancellations: usize) -> Result<(usize, Stream)> {
    let mut random = Random::new(seed);
    let mut counted = Counted { x: device.zeros::<u32>(16)?, increments: 0 };
    let mut pinned = device.alloc_host::<u32>(16)?;
    let (mut cancelled, mut ended) = (0, 0);
    while cancelled < cancellations {
        let (way, patience) = (random.below(6), random.below(6));
        let patience = async {
            for _ in 0..patience {
                yield_now().await;
            }
        };
        let waited = tokio::select! {
            waited = waits(&device, &mut counted, &mut pinned, way) => Some(waited),
            () = patience => None,
        };
        match waited {
            None => cancelled += 1,
            Some(Ok(())) => ended += 1,
            Some(Err(Error::QueueFull { .. })) => device.current_stream().ready().await?,
            Some(Err(error)) => return Err(error),
        }
    }
    assert_eq!(counted.x.to_vec().await?, [counted.increments; 16]);
    Ok((ended, device.current_stream()))
}

// numba#5745: a cancelled future was settled twice.
#[test]
fn a_hundred_thousand_waits_given_up_at_random_times_leave_nothing_in_flight() -> Result<()> {
    // Not watched: a hundred thousand of anything take long under the race checker.
    let builder = Device::builder();
    let builder = if on_gpu() { builder.cuda(0) } else { builder.simulated() };
    let device = builder.open()?;
    let runtime = Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    let mut ended = 0;
    for round in 0..ROUNDS {
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let seed = (round * TASKS + task) as u64;
                runtime.spawn(gives_up(device.clone(), seed, CANCELLATIONS / TASKS / ROUNDS))
            })
            .collect();
        for task in tasks {
            let (more, stream) = wait(task).expect("no panic")?;
            ended += more;
            wait(stream.synchronize())?;
            assert_eq!(stream.in_flight(), 0);
        }
    }
    assert!(ended > CANCELLATIONS / 100, "{ended} came to their end: all were given up at once");
    wait(device.synchronize())?;
    let leases: Vec<_> = (0..16).map(|_| device.stream()).collect();
    assert!(leases.iter().all(|stream| stream.in_flight() == 0));
    if device.simulator().is_some() {
        run_to_end(&device);
        assert_all_freed(&device);
    }
    Ok(())
}
