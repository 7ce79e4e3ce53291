//! Every error there is, each come by as a program would, with its message for a reader:
//!
//!     cargo test --test it errors::every -- --nocapture

use std::collections::BTreeSet;

use headwater::sim::{DriverCall, Fault, Schedule, SimOptions};
use headwater::{
    Device, DeviceBuffer, DriverError, Error, IntoDeviceSliceMut, KernelError, Result, Source,
    StagingOptions,
};

use crate::common::{
    AS_PROMISED, Child, any_device, device_buffer, eager, elements, in_process_of, on_gpu,
    poll_once, run_to_end, sim, simulated, simulated_with, step_through, stepped, wait,
    without_threads,
};
use crate::kernels::{copy_u32, increment, trap};
use crate::lost::fail;
use crate::stub_driver::{Stub, has_compiler};

const INVALID_VALUE: u32 = DriverError::INVALID_VALUE;
const UNSUPPORTED_PTX_VERSION: u32 = DriverError::UNSUPPORTED_PTX_VERSION;

#[headwater::kernels(ptx = "this is a recipe for bread")]
#[allow(unsafe_code, reason = "declaring a kernel vouches for it")]
// SAFETY: there is no such kernel to launch.
unsafe extern "C" {
    #[launch(grid = 1, block = 1)]
    #[args(x)]
    #[twin(crate::kernels::increment_on_host)]
    safe fn not_ptx(x: &mut [u32]);
}

#[headwater::kernels(ptx = ".version 8.0\n.target sm_75\n.visible .entry corrupt(.param .u64 p0")]
#[allow(unsafe_code, reason = "declaring a kernel vouches for it")]
// SAFETY: there is no such kernel to launch.
unsafe extern "C" {
    #[launch(grid = 1, block = 1)]
    #[args(x)]
    #[twin(crate::kernels::increment_on_host)]
    safe fn corrupt(x: &mut [u32]);
}

#[headwater::kernels(ptx = ".version 9.9\n.target sm_75\n.address_size 64\n\
                            .visible .entry too_new(.param .u64 p0) { ret; }")]
#[allow(unsafe_code, reason = "declaring a kernel vouches for it")]
// SAFETY: the kernel does nothing.
unsafe extern "C" {
    #[launch(grid = 1, block = 1)]
    #[args(x)]
    #[twin(crate::kernels::increment_on_host)]
    safe fn too_new(x: &mut [u32]);
}

#[headwater::kernels(ptx = include_str!("../../kernels/probe.ptx"))]
#[allow(unsafe_code, reason = "declaring a kernel vouches for it")]
// SAFETY: thread i < n touches element i of the slice, whose length is n; the last two do not match
// the module and cannot be launched.
unsafe extern "C" {
    #[launch(grid = 1, block = 1_000_000, entry = "increment")]
    #[args(x, x.len() as u32)]
    #[twin(crate::kernels::increment_on_host)]
    safe fn thick(x: &mut [u32]);

    #[launch(grid = 1, block = 256, entry = "not_in_the_module")]
    #[args(x, x.len() as u32)]
    #[twin(crate::kernels::increment_on_host)]
    safe fn missing(x: &mut [u32]);

    #[launch(grid = 1, block = 256, entry = "copy_u32")]
    #[args(x, x.len() as u32)]
    #[twin(crate::kernels::increment_on_host)]
    safe fn misdeclared(x: &mut [u32]);

    #[launch(grid = 1, block = 1, entry = "increment")]
    #[args(n as u32)]
    #[twin(nothing_on_host)]
    safe fn without_a_buffer(n: u32);
}

fn nothing_on_host(_: u32) {}

fn buffer(device: &Device) -> DeviceBuffer<u32> {
    device_buffer(device, &[0; 64])
}

/// A device whose next call of that kind is refused.
fn refusing(call: DriverCall, code: u32) -> Device {
    let device = eager();
    device.current_stream(); // whatever that takes
    sim(&device).inject(Fault::of_call(call, code));
    device
}

/// What a launch answers of a kernel of no registered module.
#[allow(unsafe_code)]
fn launch_unregistered(x: &mut DeviceBuffer<u32>) -> Result<()> {
    use headwater::__private::{Geometry, KernelCost, KernelDecl, LaunchCall, argument, launch};
    static LATE: KernelDecl = KernelDecl::new("late", "late", &[]);
    let view = x.into_device_slice_mut();
    let call = LaunchCall {
        kernel: &LATE,
        geometry: Geometry::grid(1u32, 1u32),
        shared_bytes: 0,
        cost: KernelCost::Unknown,
        params: &[],
        arguments: &[argument("x", &view, false)],
        twin: None,
    };
    // SAFETY: there is no such kernel to launch.
    unsafe { launch(call) }.map(drop)
}

/// An error as another process, or this one, had it.
struct Told {
    variant: String,
    how: String,
    message: String,
}

impl Told {
    fn of(how: &str, error: &Error) -> Self {
        let variant = format!("{error:?}");
        let end = variant.find(|c: char| !c.is_alphanumeric()).unwrap_or(variant.len());
        Told { variant: variant[..end].into(), how: how.into(), message: error.to_string() }
    }

    /// The one that the child process ends with.
    fn by(what: &str, environment: impl FnOnce(Child) -> Child) -> Self {
        let said = environment(Child::new("errors::the_process_with_an_error", what)).run();
        let line = |begin: &str| {
            let line = said.lines().find_map(|line| line.split_once(begin));
            line.unwrap_or_else(|| panic!("no {begin}in {said}")).1.to_owned()
        };
        Told { variant: line("variant: "), how: what.into(), message: line("message: ") }
    }
}

#[test]
#[ignore = "the process of another test"]
fn the_process_with_an_error() {
    let Some(what) = in_process_of() else { return };
    let error = match &*what {
        "opening the environment's device" => Device::from_env().err(),
        "waiting where no thread can be started" => Some(no_thread()),
        other => panic!("{other}?"),
    };
    let Told { variant, message, .. } = Told::of("", &error.expect("an error"));
    println!("variant: {variant}\nmessage: {message}\n{AS_PROMISED}");
}

/// Needs the reactor's thread.
fn no_thread() -> Error {
    let device = stepped();
    let mut x = device.zeros::<u32>(64).expect("a buffer");
    sim(&device).step().expect("the fill"); // the device's own thread has started
    let mut done = increment(&mut x).expect("a launch");
    match without_threads(|| poll_once(&mut done)) {
        std::task::Poll::Ready(Err(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// Every error that can be had on this machine, with how.
fn all() -> Result<Vec<Told>> {
    let mut all = Vec::new();
    // `says`: what was given, or what to do.
    let mut put = |how: &str, says: &str, result: Result<()>| {
        let told = Told::of(how, &result.expect_err(how));
        assert!(told.message.contains(says), "{}", told.message);
        all.push(told);
    };
    let device = stepped();
    let mut x = buffer(&device);
    let mut short = device_buffer(&device, &[0u32; 3]);

    put(
        "a copy between lengths",
        "3 elements and the destination 64",
        x.copy_from(&short).map(drop),
    );
    put(
        "a kernel's own condition",
        "from.len() = 3, to.len() = 64",
        copy_u32(&short, &mut x).map(drop),
    );
    let mut elsewhere = buffer(&eager());
    put(
        "a buffer of another device",
        "`to` belongs to device",
        copy_u32(&x, &mut elsewhere).map(drop),
    );
    put(
        "a read of new memory",
        "bytes 0..256 of `from`",
        copy_u32(&device.alloc(64)?, &mut x).map(drop),
    );
    put(
        "a copy of new pinned memory",
        "pinned memory by `write()`",
        x.copy_from(&device.alloc_host(64)?).map(drop),
    );
    let mut wide = device.alloc::<[u32; 17]>(4)?;
    put("a slice past the end", "elements 60..65 of a view that has 64", x.slice(60..65).map(drop));
    put("rows that are not whole", "64 elements are not a matrix of 5", x.as_matrix(5).map(drop));
    put(
        "planes that are not whole",
        "64 elements are not planes of 4 rows of 5 columns",
        x.as_volume(4, 5).map(drop),
    );
    put(
        "a plane past the end",
        "planes 4..5 of a view that has 4",
        x.as_volume(4, 4)?.plane(4).map(drop),
    );
    put(
        "bytes that are no elements",
        "20 bytes are not a whole number of elements of 8 bytes",
        x.slice(..5)?.cast::<u64>().map(drop),
    );
    put(
        "bytes that no type without bytes consists of",
        "256 bytes are not a whole number of elements of 0 bytes",
        x.slice(..)?.cast::<()>().map(drop),
    );
    put(
        "elements that are not aligned",
        "byte 4 of their buffer, an address that is 4 more than a multiple of 8 bytes",
        x.slice(1..5)?.cast::<u64>().map(drop),
    );
    put(
        "a copy within that goes past the end",
        "elements 60..70",
        x.copy_within(..10, 60).map(drop),
    );
    let blocks = device.zeros::<u32>(64)?;
    put(
        "a volume of another shape",
        "2 planes of 2 rows of 3 elements and the destination 2 planes of 3 rows of 2",
        x.as_volume_mut(4, 4)?
            .block_mut(..2, ..3, ..2)?
            .copy_from(&blocks.as_volume(4, 4)?.block(..2, ..2, ..3)?)
            .map(drop),
    );
    let tile = device.zeros::<u32>(64)?;
    let tile = tile.as_matrix(8)?.tile(..2, ..3)?;
    put(
        "a matrix of another shape",
        "2 rows of 3 elements and the destination 3 rows of 2",
        x.as_matrix_mut(8)?.tile_mut(..3, ..2)?.copy_from(&tile).map(drop),
    );
    let mut far = device.alloc::<u8>(1 << 32)?;
    put(
        "rows far apart",
        "2147483648 bytes apart, a driver takes up to 2147483647",
        far.as_matrix_mut(1 << 31)?.column_mut(0)?.fill(0).map(drop),
    );
    drop(far);
    run_to_end(&device);
    let rejoin = |parts: Vec<_>| match DeviceBuffer::<u32>::rejoin(parts) {
        Ok(_) => Ok(()),
        Err(refused) => Err(refused.error),
    };
    let [mut one, two] = [
        device.alloc::<u32>(8)?.into_parts(2).map_err(|refused| refused.error)?,
        device.alloc(8)?.into_parts(1).map_err(|refused| refused.error)?,
    ];
    put("no parts", "at least one", rejoin(vec![]));
    put(
        "a part alone",
        "dropped cannot come back, and the others stay usable",
        rejoin(one.drain(..1).collect()),
    );
    put(
        "parts of two buffers",
        "one buffer at a time",
        rejoin(one.into_iter().chain(two).collect()),
    );
    put("chunks of nothing", "0 pieces, or into pieces of 0 elements", x.chunks(0).map(drop));
    put("a fill of 17 words", "68 bytes", wide.fill(std::array::from_fn(|i| i as u32)).map(drop));
    put(
        "more than can be addressed",
        "at most 1152921504606846975",
        device.alloc::<u64>(usize::MAX).map(drop),
    );
    sim(&device).inject(Fault::of_call(DriverCall::HostAlloc, DriverError::OUT_OF_MEMORY));
    put(
        "more pinned memory than there is",
        "1073741824 bytes",
        device.alloc_host::<u8>(1 << 30).map(drop),
    );
    put(
        "more than there is",
        "1099511627776 bytes asked for, 12884",
        device.alloc::<u8>(1 << 40).map(drop),
    );
    put(
        "more than a tenant has",
        "1001 bytes were to be taken of a budget of 1000, of which 0",
        device.tenant(1_000).in_scope(|| device.alloc::<u8>(1_001)).map(drop),
    );
    put("a block of a million threads", "[1000000, 1, 1]", thick(&mut x).map(drop));
    put(
        "a kernel that the module lacks",
        "has no kernel `not_in_the_module`",
        missing(&mut x).map(drop),
    );
    put(
        "a kernel declared otherwise than it is",
        "parameters of [8, 4] bytes",
        misdeclared(&mut x).map(drop),
    );
    put("text that is no PTX", "no .version", not_ptx(&mut x).map(drop));
    put("PTX that breaks off", "INVALID_PTX", corrupt(&mut x).map(drop));
    put("a kernel without a twin, simulated", "trap has no #[twin]", trap(&mut x).map(drop));
    put("a kernel of a module not registered", "kernel late", launch_unregistered(&mut short));
    put("a launch that names no device", "device.scope", without_a_buffer(1).map(drop));
    let mut pinned = device.alloc_host::<u32>(64)?;
    x.copy_to(&mut pinned)?;
    put("a look at a copy in flight", "await `read`", pinned.try_read().map(drop));

    let device = simulated_with(SimOptions::new().schedule(Schedule::Stepped), |builder| {
        builder.queue_limit(2)
    });
    let mut x = device.zeros::<u32>(64)?;
    increment(&mut x)?;
    put(
        "one operation too many",
        "holds 2 unfinished operations and takes 2",
        increment(&mut x).map(drop),
    );

    let device = simulated_with(SimOptions::new().schedule(Schedule::Stepped), |builder| {
        builder.in_flight_operations(1)
    });
    let mut x = device.zeros::<u32>(64)?;
    put(
        "more in flight than the device was opened for",
        "1 operations are in flight on the device, which takes 1",
        increment(&mut x).map(drop),
    );

    let fault = Fault::of_call(DriverCall::ModuleLoad, UNSUPPORTED_PTX_VERSION).always();
    let device = simulated(SimOptions::new().fault(fault));
    put(
        "PTX that the driver calls new",
        "of version 8.0",
        increment(&mut device.zeros(64)?).map(drop),
    );
    let device = refusing(DriverCall::Launch, INVALID_VALUE);
    put(
        "a launch that the driver refuses",
        "increment, of which nothing was done: cuLaunchKernel",
        increment(&mut device.zeros(64)?).map(drop),
    );
    let mut pairs = device.alloc::<[u32; 2]>(64)?;
    sim(&device).inject(Fault::of_call(DriverCall::Fill, INVALID_VALUE).after(1));
    put("a fill of which the driver refuses half", "write it again", pairs.fill([1, 2]).map(drop));
    let mut x = buffer(&device);
    put("a kernel that faults", "kernel `fail` on stream", wait(fail(&mut x)?));

    let device = eager();
    let theirs = || std::thread::scope(|s| s.spawn(|| device.per_thread_default_stream()).join());
    let stream = theirs().expect("no panic")?;
    put(
        "a launch on another thread's default stream",
        "is the default stream of another thread",
        stream.in_scope(|| increment(&mut device.zeros(64)?).map(drop)),
    );
    let mut held = Vec::new();
    let refused = loop {
        match theirs().expect("no panic") {
            Ok(stream) => held.push(stream),
            refused => break refused,
        }
    };
    put("default streams of too many threads", "the device has 1024 streams", refused.map(drop));

    let device = stepped();
    let mut x = device.zeros::<u8>(1 << 20)?; // not run yet
    std::mem::forget(x.refill(vec![1; 1 << 20]));
    let refused = x.fill(2);
    put("a fill of what is being refilled", "in the middle of a transfer", refused.map(drop));
    step_through(&device);
    let refused = Source::<u32>::of_bytes(vec![0u8; 7]);
    put("bytes that leave an element unfinished", "7 bytes", refused.map(drop));
    let small = StagingOptions::new().chunk(8192).limit(4096);
    let refused = Device::builder().simulated().staging(small).open();
    put("staging without room for a chunk", "a limit of 4096 bytes", refused.map(drop));
    let device = simulated_with(SimOptions::new(), |builder| {
        builder.staging(StagingOptions::new().chunk(4096))
    });
    sim(&device).inject(Fault::of_call(DriverCall::HostAlloc, DriverError::OUT_OF_MEMORY));
    let refused = wait(device.upload(&vec![0u8; 1 << 20][..]));
    put("too large a slice", "memory for 0 of them", refused.map(drop));

    let (sender, told) = std::sync::mpsc::channel();
    let device = simulated_with(SimOptions::new(), |builder| {
        builder.keep_memory(false).on_error(move |error| drop(sender.send(error.clone())))
    });
    let x = device.zeros::<u32>(64)?;
    sim(&device).inject(Fault::of_call(DriverCall::Free, INVALID_VALUE));
    drop(x);
    put(
        "memory that the driver does not take back",
        "device buffer #",
        Err(told.try_recv().expect("it was told")),
    );

    if cfg!(not(feature = "cuda")) {
        put("a GPU, without the feature", "`cuda` feature", Device::cuda(0).map(drop));
    } else if on_gpu() {
        put("a GPU that is not there", "no CUDA device 1000", Device::cuda(1_000).map(drop));
    } else {
        put("a GPU, without a driver", "libcuda was not found", Device::cuda(0).map(drop));
    }

    let opening = "opening the environment's device";
    all.push(Told::by(opening, |child| child.env("HEADWATER_DEVICE", "gpu")));
    all.push(Told::by("waiting where no thread can be started", |child| child));
    if cfg!(feature = "cuda") && !on_gpu() && has_compiler() {
        for stub in [
            Stub::new(11_080),
            Stub::new(13_000).without("cuLaunchKernel"),
            Stub::new(13_000).answering("cuInit", 100),
        ] {
            let folder = stub.compile();
            all.push(Told::by(opening, |child| {
                let child = child.env("LD_LIBRARY_PATH", folder.path());
                child.env("HEADWATER_DEVICE", "cuda:0")
            }));
        }
    }
    Ok(all)
}

#[test]
#[ignore = "needs a GPU"]
fn the_driver_says_what_is_wrong_with_ptx_that_is_corrupt_or_newer() -> Result<()> {
    assert!(on_gpu(), "set HEADWATER_REQUIRE_GPU=1");
    let device = any_device();
    let mut x = buffer(&device);
    let refused = too_new(&mut x);
    println!("{refused:?}");
    match refused {
        Err(Error::Kernel(KernelError::PtxTooNew { version, driver_version, .. })) => {
            assert_eq!((&*version, driver_version), ("9.9", device.info().driver_version));
        }
        other => panic!("{other:?}"),
    }
    match corrupt(&mut x) {
        Err(Error::Kernel(KernelError::PtxRejected { log, .. })) => {
            assert!(log.contains("ptxas"), "{log:?}")
        }
        other => panic!("{other:?}"),
    }
    increment(&mut x)?;
    assert_eq!(elements(&x), [1; 64]);
    Ok(())
}

/// Those that this machine or this build cannot come by.
fn not_here() -> Vec<&'static str> {
    match (cfg!(feature = "cuda"), on_gpu() || !has_compiler()) {
        (false, _) => vec!["NoDriver", "DriverTooOld", "DriverBroken", "NoDevice"],
        // One has a driver, the other no compiler to make a stub with.
        (true, true) => vec!["FeatureMissing", "NoDriver", "DriverTooOld", "DriverBroken"],
        (true, false) => vec!["FeatureMissing"],
    }
}

/// The variants, by the source.
fn variants() -> BTreeSet<&'static str> {
    let sources = [
        ("pub enum Error {", include_str!("../../src/error/mod.rs")),
        ("pub enum KernelError {", include_str!("../../src/error/kernel.rs")),
    ];
    let names = sources.iter().flat_map(|(head, source)| {
        let body = source.split_once(head).expect("the enum").1;
        let body = body.split_once("\n}").expect("its end").0;
        let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
        let names = lines.filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()));
        names.map(|line| line.split([' ', '(', '{', ',']).next().unwrap_or_default())
    });
    // Which of them it is, is told.
    names.filter(|name| *name != "Kernel").collect()
}

#[test]
fn every_error_can_be_had_and_says_what_was_given_and_what_to_do() -> Result<()> {
    let all = all()?;
    for Told { variant, how, message } in &all {
        println!("{how}\n    {variant}: {message}");
        assert!(message.len() > 40 && message.len() < 600, "{message}");
        assert!(!message.contains("  ") && !message.ends_with('.'), "{message}");
    }
    let mut found: BTreeSet<_> = all.iter().map(|told| &*told.variant).collect();
    for variant in not_here() {
        println!("{variant}: not on this machine, or not in this build");
        found.insert(variant);
    }
    assert_eq!(found, variants());
    Ok(())
}
