//! A process that ends while a device is being closed, or by a waker, ends as it should: the driver
//! library goes with it, and is not called any more.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use headwater::Device;

use crate::common::{AS_PROMISED, Child, in_process_of};
use crate::stub_driver::{Stub, has_compiler};

/// Runs such processes with a stub of the driver; the shortest that one took.
fn processes_that_end(by: &str) -> Duration {
    assert!(has_compiler(), "a driver to call is compiled here");
    let folder = Stub::new(13_000).compile();
    let process = |_| {
        let start = Instant::now();
        let child = Child::new("exit::the_process_that_ends", by);
        child.env("LD_LIBRARY_PATH", folder.path()).run();
        start.elapsed()
    };
    (0..5).map(process).min().expect("there are some")
}

#[test]
fn a_process_ends_while_its_device_is_closed() {
    processes_that_end("closing");
}

#[test]
fn a_waker_may_end_the_process() {
    // The exit does not wait for the thread that it runs on, which would take it a second.
    let took = processes_that_end("waking");
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
#[ignore = "the process of other tests"]
fn the_process_that_ends() {
    let Some(by) = in_process_of() else { return };
    let device = Device::builder().cuda(0).inline_spin(Duration::ZERO).open();
    let device = device.expect("the stub opens");
    println!("{AS_PROMISED}");
    if by == "waking" {
        struct Ends;
        impl Wake for Ends {
            fn wake(self: Arc<Self>) {
                std::process::exit(0);
            }
        }
        let mut x = device.alloc::<u32>(16).expect("memory");
        let mut filled = x.fill(1).expect("a fill");
        let waker = Waker::from(Arc::new(Ends));
        let polled = Pin::new(&mut filled).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        std::thread::sleep(Duration::from_secs(30));
    }
    // Unloading its modules takes longer than what this process still does.
    drop(device);
}
