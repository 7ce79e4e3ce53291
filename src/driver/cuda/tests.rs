//! What can be tested without a GPU: every way in which a driver can be missing or broken is an
//! `Err`. Broken drivers are libraries compiled here; each is loaded by a process of its own,
//! since a process loads one and keeps it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::ffi::c_void;
use std::process::Command;
use std::ptr::{self, NonNull};
use std::thread;

use self::stub::Stub;
use super::api::Api;
use super::module::text;
use super::{Unavailable, device_count, info, open, visible};
use crate::driver::{CopyMemory, CopyRows, CopySide, DefaultStream, DevicePtr, StreamHandle};

#[path = "../../../tests/it/stub_driver.rs"]
mod stub;

/// What stands in front of a child's result in its output.
const OUTCOME: &str = "outcome: ";

fn outcome<T, E: Into<Unavailable>>(result: Result<T, E>) -> String {
    match result.map_err(Into::into) {
        Ok(_) => "Ok".to_owned(),
        Err(Unavailable::NoLibrary) => "no library".to_owned(),
        Err(Unavailable::TooOld { found }) => format!("too old: {found}"),
        Err(Unavailable::Broken(error)) => format!("broken: {} {}", error.call(), error.code()),
        Err(Unavailable::Refused(error)) => format!("{} {}", error.call(), error.code()),
    }
}

#[test]
fn a_missing_library_is_an_error() {
    // SAFETY: only loads and closes the library.
    #[allow(unsafe_code)]
    let library = unsafe { cudarc::driver::sys::is_culib_present() };
    for result in [device_count().map(drop), open(0).map(drop), open(usize::MAX).map(drop)] {
        assert_eq!(result == Err(Unavailable::NoLibrary), !library);
    }
}

#[test]
fn the_jit_log_ends_at_its_nul() {
    assert_eq!(text(b"ptxas error\n\0garbage"), "ptxas error");
    assert_eq!(text(b""), "");
    assert_eq!(text(b"cut \xe2\x82"), "cut");
}

/// Run by the tests below in a process of its own, with a stub library in its search path.
#[test]
#[ignore = "the child process of other tests"]
fn stub_child() {
    println!("{OUTCOME}{}, {}", outcome(device_count()), outcome(open(0)));
}

#[test]
fn an_empty_library_lacks_its_first_symbol() {
    expect(Stub::empty(), "broken: cuDriverGetVersion 302");
}

#[test]
fn each_missing_symbol_is_named() {
    // The first, a `_v2` one and the last of the table.
    for symbol in ["cuInit", "cuStreamDestroy_v2", "cuLaunchKernel"] {
        let stub = Stub::new(13_000).without(symbol);
        expect(stub, &format!("broken: {symbol} 302"));
    }
}

#[test]
fn an_old_driver_is_called_old_even_if_it_lacks_symbols() {
    let stub = Stub::new(11_080).without("cuMemAllocFromPoolAsync");
    expect(stub, "too old: 11080");
}

#[test]
fn the_toolkits_stub_library_is_an_error() {
    expect(Stub::new(0).answering("cuDriverGetVersion", 34), "broken: cuDriverGetVersion 34");
}

#[test]
fn no_device_and_codes_from_the_future_come_out_as_they_are() {
    expect_each(Stub::new(12_000).answering("cuInit", 100), "Ok", "cuInit 100");
    expect(Stub::new(12_000).answering("cuInit", 7_777), "cuInit 7777");
}

#[test]
fn a_failure_half_way_through_opening_is_an_error() {
    // No pool: the context is pushed, and popped again on the way out.
    let stub = Stub::new(12_000).answering("cuMemPoolCreate", 801);
    expect_each(stub, "Ok", "cuMemPoolCreate 801");
}

#[test]
fn a_library_that_always_succeeds_opens() {
    expect(Stub::new(12_000), "Ok");
}

/// The stub's stream and event creation fail unless the device's own context is current.
#[test]
fn calls_find_our_context_current_and_leave_the_callers() {
    let stub = Stub::new(12_000).answering("cuEventQuery", 600);
    let round = "stream Ok, event Ok, query Ok(false), current";
    let expected = format!("open Ok, current 0x0; {round} 0x0; {round} 0x20; {round} 0x10");
    expect_of(stub, "stub_child_contexts", &expected);
}

#[test]
#[ignore = "the child process of another test"]
#[allow(unsafe_code)]
fn stub_child_contexts() {
    let current = || {
        let mut now = ptr::null_mut();
        // SAFETY: `now` outlives the call.
        unsafe { Api::get().unwrap().cuCtxGetCurrent(&mut now) }.unwrap();
        format!("current {now:p}")
    };
    let device = open(0).unwrap();
    let mut said = format!("open Ok, {}", current());
    for callers in [0, 0x20, 0x10] {
        let context = ptr::without_provenance_mut::<c_void>(callers).cast();
        // SAFETY: the stub takes any number for a context.
        unsafe { Api::get().unwrap().cuCtxPushCurrent(context) }.unwrap();
        let stream = outcome(device.stream_create(0));
        let event = device.event_create(false);
        let query = event.as_ref().map(|event| device.event_query(event));
        let query = format!("{:?}", query.unwrap());
        said +=
            &format!("; stream {stream}, event {}, query {query}, {}", outcome(event), current());
    }
    println!("{OUTCOME}{said}");
}

#[test]
fn default_streams_are_cudas_of_our_context_and_the_callers_stays() {
    let round = "legacy cuEventRecord 7001, own cuEventRecord 7002, another's cuEventRecord 400, \
                 destroyed cuStreamDestroy 400, made Ok, current";
    let expected = format!("{round} 0x0; {round} 0x20; ");
    expect_of(Stub::new(12_000), "stub_child_default_streams", &expected);
}

#[test]
#[ignore = "the child process of another test"]
#[allow(unsafe_code)]
fn stub_child_default_streams() {
    let device = open(0).unwrap();
    let event = device.event_create(false).unwrap();
    let mut said = String::new();
    for callers in [0, 0x20] {
        let context = ptr::without_provenance_mut::<c_void>(callers).cast();
        // SAFETY: the stub takes any number for a context.
        unsafe { Api::get().unwrap().cuCtxPushCurrent(context) }.unwrap();
        let [legacy, own] = [DefaultStream::Legacy, DefaultStream::PerThread]
            .map(|which| device.default_stream(which));
        let record = |stream: &StreamHandle| outcome(device.event_record(&event, stream));
        let by_another = thread::scope(|scope| scope.spawn(|| record(&own)).join().unwrap());
        let (by_legacy, by_own) = (record(&legacy), record(&own));
        let destroyed = outcome(device.stream_destroy(own));
        let made = record(&device.stream_create(0).unwrap());
        let mut now = ptr::null_mut();
        // SAFETY: `now` outlives the call.
        unsafe { Api::get().unwrap().cuCtxGetCurrent(&mut now) }.unwrap();
        said += &format!(
            "legacy {by_legacy}, own {by_own}, another's {by_another}, destroyed {destroyed}, \
             made {made}, current {now:p}; "
        );
    }
    println!("{OUTCOME}{said}");
}

#[test]
fn a_copy_of_rows_is_handed_over_as_it_was_asked_for() {
    let moved = "[0, 0, 5, 6, 0, 0, 8, 9, 0, 0, 11, 12]";
    let expected = format!("up {moved}, within {moved}, down {moved}");
    let planes = "[0, 5, 0, 6, 0, 0, 0, 10, 0, 11, 0, 0, 0]";
    let expected = format!("{expected}, up {planes}, within {planes}, down {planes}");
    expect_of(Stub::new(12_000), "stub_child_rows", &expected);
}

#[test]
#[ignore = "the child process of another test"]
#[allow(unsafe_code)]
fn stub_child_rows() {
    let device = open(0).unwrap();
    let stream = device.stream_create(0).unwrap();
    let copy =
        |way: &str, pitches: [[usize; 2]; 2], [row, rows, planes]: [usize; 3], to: &mut [u8]| {
            let mut from: [u8; 13] = std::array::from_fn(|i| i as u8 + 1);
            // For the stub device memory is memory of this process.
            let side = |bytes: &mut [u8], is_host, [pitch, plane_pitch]: [usize; 2]| {
                let ptr = NonNull::new(bytes.as_mut_ptr()).unwrap();
                let memory = match is_host {
                    true => CopyMemory::Host(ptr),
                    false => CopyMemory::Device(DevicePtr(ptr.as_ptr().expose_provenance() as u64)),
                };
                CopySide { memory, pitch, plane_pitch }
            };
            let src = side(&mut from[4..], way == "up", pitches[0]);
            let dst = side(to, way == "down", pitches[1]);
            // SAFETY: the rows are inside the arrays; the stub copies them during the call.
            unsafe { device.copy_rows(&CopyRows { dst, src, row, rows, planes }, &stream) }
                .unwrap();
        };
    let in_rows = ["up", "within", "down"].map(|way| {
        let mut to = [0_u8; 12];
        copy(way, [[3, 0], [4, 0]], [2, 3, 1], &mut to[2..]);
        format!("{way} {to:?}")
    });
    let in_planes = ["up", "within", "down"].map(|way| {
        let mut to = [0_u8; 13];
        copy(way, [[1, 5], [2, 6]], [1, 2, 2], &mut to[1..]);
        format!("{way} {to:?}")
    });
    println!("{OUTCOME}{}", [in_rows, in_planes].concat().join(", "));
}

/// The stub's devices have no context to give: opening one fails.
#[test]
fn devices_are_listed_without_a_context() {
    let stub = Stub::new(12_000).answering("cuDevicePrimaryCtxRetain", 2);
    let expected = "0 stub 100 bytes, capability 75.76, 40 engines, peers [1], driver 12000, None; \
                    1 stub 101 bytes, capability 75.76, 40 engines, peers [], driver 12000, None; \
                    open cuDevicePrimaryCtxRetain 2";
    expect_of(stub, "stub_child_visible", expected);
}

#[test]
fn where_there_is_no_device_none_is_listed() {
    let stub = Stub::new(12_000).answering("cuInit", 100);
    expect_of(stub, "stub_child_visible", "open cuInit 100");
}

#[test]
fn a_device_that_does_not_answer_leaves_no_half_a_list() {
    let stub = Stub::new(12_000).answering("cuDeviceGetAttribute", 999);
    expect_of(stub, "stub_child_visible", "cuDeviceGetAttribute 999");
}

#[test]
fn a_device_that_cannot_be_asked_for_its_peers_has_none() {
    let stub = Stub::new(12_000).answering("cuDeviceCanAccessPeer", 101);
    expect_of(stub, "stub_child_peers", "[[], []], open Ok");
}

#[test]
#[ignore = "the child process of other tests"]
fn stub_child_visible() {
    let said = match visible() {
        Ok(visible) => {
            let told = visible.iter().map(|info| {
                let (major, minor) = info.compute_capability;
                format!(
                    "{} {} {} bytes, capability {major}.{minor}, {} engines, peers {:?}, driver {}, {:?}; ",
                    info.ordinal,
                    info.name,
                    info.total_memory,
                    info.copy_engines,
                    info.peers,
                    info.driver_version,
                    info.priorities,
                )
            });
            told.collect::<String>() + "open " + &outcome(open(0))
        }
        Err(error) => outcome::<(), _>(Err(error)),
    };
    println!("{OUTCOME}{said}");
}

#[test]
#[ignore = "the child process of another test"]
fn stub_child_peers() {
    let peers: Vec<_> = visible().unwrap().into_iter().map(|info| info.peers).collect();
    println!("{OUTCOME}{peers:?}, open {}", outcome(open(0)));
}

#[test]
fn hardware_queues_are_what_the_environment_asks_for_within_cudas_bounds() {
    let queues = [None, Some(""), Some("many"), Some("0"), Some("1"), Some(" 16 "), Some("33")];
    assert_eq!(queues.map(info::hardware_queues), [8, 8, 8, 8, 1, 16, 32]);
}

/// Expects the same from [`device_count`] and [`open`].
fn expect(stub: Stub, both: &str) {
    expect_each(stub, both, both);
}

fn expect_each(stub: Stub, count: &str, opened: &str) {
    expect_of(stub, "stub_child", &format!("{count}, {opened}"));
}

/// Runs the ignored test `child` in a process that finds this library, and expects it to print
/// `outcome`.
fn expect_of(stub: Stub, child: &str, outcome: &str) {
    let folder = stub.compile();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("driver::cuda::tests::{child}"), "--ignored", "--nocapture"])
        .env("LD_LIBRARY_PATH", folder.path())
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let found = stdout.lines().find_map(|line| Some(line.split_once(OUTCOME)?.1));
    assert_eq!(found, Some(outcome), "{stdout}\n{stderr}");
}
