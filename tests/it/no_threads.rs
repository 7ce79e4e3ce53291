//! Where the system has no thread for the device: in processes of their own, which have no memory for its stack.

use headwater::sim::Schedule;
use headwater::{Error, HostBuffer, Result};

use crate::common::{
    AS_PROMISED, Child, in_process_of, poll_once, run_to_end, until, wait, without_threads,
};
use crate::pinned::{LARGE, registered};
use crate::staging::{LEN, counting, is_let_go, with_schedule};
use crate::unreturned::device_with_a_hook;

fn in_a_process_of_its_own(what: &str) {
    Child::new("no_threads::the_process_without_threads", what).run();
}

#[test]
fn transfers_end_with_that_and_later_ones_go_on() {
    in_a_process_of_its_own("transfers");
}

#[test]
fn pinned_memory_is_kept_and_given_back_later() {
    in_a_process_of_its_own("pinned memory");
}

#[test]
#[ignore = "the process of other tests"]
fn the_process_without_threads() -> Result<()> {
    let Some(what) = in_process_of() else { return Ok(()) };
    match &*what {
        "transfers" => transfers()?,
        "pinned memory" => pinned_memory()?,
        other => panic!("{other}?"),
    }
    println!("{AS_PROMISED}");
    Ok(())
}

fn is_thread<T>(ended: Result<T>) -> bool {
    matches!(ended, Err(Error::Thread(_)))
}

fn transfers() -> Result<()> {
    let device = with_schedule(Schedule::Eager);
    let mut x = device.zeros::<u32>(LEN)?;
    let y = device.zeros::<u32>(LEN)?;
    wait(device.synchronize())?; // the device's own thread has started
    let (elements, into) = (counting(LEN, 3), vec![0; LEN]);
    // They have a waiter when they end, or do not.
    let (refilled, read) = without_threads(|| {
        let mut refilled = x.refill(elements);
        let refilled = poll_once(&mut refilled);
        (refilled, y.to_vec_in(into))
    });
    assert!(matches!(refilled, std::task::Poll::Ready(Err(Error::Thread(_)))), "{refilled:?}");
    assert!(is_thread(wait(read)));
    // Not one byte was enqueued: what was there is there.
    assert_eq!(wait(x.to_vec())?, vec![0; LEN]);
    wait(x.refill(counting(LEN, 4)))?;
    assert_eq!(wait(x.to_vec())?, counting(LEN, 4));
    drop((x, y));
    is_let_go(device);
    Ok(())
}

fn pinned_memory() -> Result<()> {
    let (device, _, told) = device_with_a_hook();
    drop(device.zeros::<u32>(1)?);
    run_to_end(&device); // the device's own thread has started
    drop(device.alloc_host::<u32>(LARGE)?);
    let idle = device.pinned_memory().idle;
    assert!(idle >= LARGE * 4, "{idle}");
    let (elements, (buffer, _)) = (counting(LARGE, 5), registered(&device, LARGE));
    until("its thread has ended", || !has_pinned_thread());
    let (trimmed, refused, given_back) = without_threads(|| {
        drop(buffer);
        let trimmed = wait(device.trim_pinned(0));
        (trimmed, wait(HostBuffer::from_vec(&device, elements)), told.count())
    });
    assert!(is_thread(trimmed));
    let refused = refused.expect_err("no thread registers it");
    assert!(matches!(refused.error, Error::Thread(_)), "{refused}");
    assert_eq!(refused.elements, counting(LARGE, 5));
    // Told, and tried again with the next job.
    assert!(given_back >= 1);
    assert!(
        matches!(&told.take()[0], Error::NotReleased { what, .. } if what.contains("registered"))
    );
    assert_eq!(device.pinned_memory().registered, LARGE * 4);
    assert_eq!(wait(device.trim_pinned(0))?, idle);
    until("it is unregistered", || device.pinned_memory().registered == 0);
    Ok(())
}

/// Whether this process has one that sees to pinned memory. (Linux tells 15 bytes of a name.)
fn has_pinned_thread() -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").expect("this is Linux");
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    tasks.filter_map(name).any(|name| name.starts_with("headwater") && name.contains("-pin"))
}
