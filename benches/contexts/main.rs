//! Which driver calls need the right context to be the calling thread's current one, and what
//! looking at and changing the current context costs.
//!
//! Each call is made with the right context current, with none, with another context of the same
//! device, and (where there is a second GPU) with that device's primary context. The table says
//! what the call returned and whether what it made or did came out right: it belongs to the right
//! context, the bytes are there. `src/driver/cuda/context.rs` holds what follows from it.
//!
//! Talks to the driver through cudarc's raw functions only; needs a GPU, and says so without one.
//! `--json FILE` writes the commit that this was built from, and that there are no figures.

#![allow(unsafe_code, non_snake_case, clippy::undocumented_unsafe_blocks)]

use std::ffi::{c_int, c_uint, c_void};
use std::hint::black_box;
use std::mem;
use std::process::ExitCode;
use std::ptr::{self, null_mut};
use std::time::Instant;

use cudarc::driver::sys::*;

mod rows;

use rows::{ROWS, Trial};

/// Waits for so many clock cycles, then stores `v` at `p`.
const PTX: &std::ffi::CStr = c"
.version 8.0
.target sm_75
.address_size 64
.visible .entry store(.param .u64 store_p, .param .u32 store_v, .param .u64 store_cycles)
{
    .reg .pred %more;
    .reg .b32 %v;
    .reg .b64 %p, %cycles, %start, %now;
    ld.param.u64 %p, [store_p];
    ld.param.u32 %v, [store_v];
    ld.param.u64 %cycles, [store_cycles];
    cvta.to.global.u64 %p, %p;
    mov.u64 %start, %clock64;
LOOP:
    mov.u64 %now, %clock64;
    sub.u64 %now, %now, %start;
    setp.lt.u64 %more, %now, %cycles;
    @%more bra LOOP;
    st.global.u32 [%p], %v;
    ret;
}
";

/// 32-bit words in every buffer here.
const WORDS: usize = 64;
const BYTES: usize = WORDS * 4;
/// About 5 ms: long enough that a missing wait shows.
const LONG: u64 = 10_000_000;

/// cudarc panics at a call whose symbol is missing; so look first.
const SYMBOLS: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxCreate_v2",
    "cuCtxDestroy_v2",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuCtxSynchronize",
    "cuCtxGetStreamPriorityRange",
    "cuStreamCreateWithPriority",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuStreamGetCtx",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventElapsedTime",
    "cuMemPoolCreate",
    "cuMemPoolDestroy",
    "cuMemAllocFromPoolAsync",
    "cuMemFreeAsync",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemsetD32Async",
    "cuMemsetD2D32Async",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuLaunchKernel",
    "cuPointerGetAttribute",
];

type Answer<T> = Result<T, String>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("contexts: {why}");
            ExitCode::FAILURE
        }
    }
}

/// The line by which `.ci/assemble-results.py` knows that there are no figures to miss here.
fn write_json(path: &str) -> Answer<()> {
    let commit = option_env!("HEADWATER_COMMIT").unwrap_or("unknown");
    let line = format!("{{\"commit\": {commit:?}, \"figures\": \"none\"}}\n");
    std::fs::write(path, line).map_err(|why| format!("{path}: {why}"))
}

fn run() -> Answer<()> {
    let mut json = None;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match &*arg {
            "--json" => json = Some(args.next().ok_or("--json takes the name of a file")?),
            "--bench" => {} // cargo says so to every benchmark
            _ => return Err(format!("{arg}? contexts [--json FILE]")),
        }
    }
    if !unsafe { is_culib_present() } {
        return Err("needs an NVIDIA GPU: there is no libcuda here".into());
    }
    for symbol in SYMBOLS {
        if unsafe { culib().get::<unsafe extern "C" fn()>(symbol.as_bytes()) }.is_err() {
            return Err(format!("this driver lacks {symbol}"));
        }
    }
    must!(cuInit(0))?;
    let (mut version, mut devices) = (0, 0);
    must!(cuDriverGetVersion(&mut version))?;
    must!(cuDeviceGetCount(&mut devices))?;
    println!("driver {version}, {devices} device(s)\n");

    let right = primary(0)?;
    let mut foreign = null_mut();
    must!(cuCtxCreate_v2(&mut foreign, 0, 0))?;
    let mut modes = vec![("right", right), ("none", null_mut()), ("foreign", foreign)];
    if devices > 1 {
        modes.push(("device 1", primary(1)?));
    }

    let bench = Bench::new(right)?;
    table(&bench, &modes)?;
    costs(right, foreign)?;

    enter(right)?;
    bench.destroy()?;
    enter(null_mut())?;
    must!(cuCtxDestroy_v2(foreign))?;
    for device in 0..devices.min(2) {
        must!(cuDevicePrimaryCtxRelease_v2(device))?;
    }
    json.map_or(Ok(()), |path| write_json(&path))
}

/// Makes a call and names it if it fails. (No driver but one of CUDA 12.0's codes is expected.)
macro_rules! must {
    ($call:ident($($arg:expr),* $(,)?)) => {
        match unsafe { $call($($arg),*) } {
            CUresult::CUDA_SUCCESS => Ok(()),
            code => Err(format!("{} returned {}", stringify!($call), code as u32)),
        }
    };
}
use must;

fn primary(ordinal: c_int) -> Answer<CUcontext> {
    let (mut device, mut context) = (0, null_mut());
    must!(cuDeviceGet(&mut device, ordinal))?;
    must!(cuDevicePrimaryCtxRetain(&mut context, device))?;
    Ok(context)
}

fn enter(context: CUcontext) -> Answer<()> {
    must!(cuCtxSetCurrent(context))
}

/// What the calls are tried on; all of it was made in the right context.
struct Bench {
    context: CUcontext,
    stream: CUstream,
    other_stream: CUstream,
    event: CUevent,
    timed: [CUevent; 2],
    pool: CUmemoryPool,
    device: [CUdeviceptr; 2],
    pinned: *mut u32,
    module: CUmodule,
    store: CUfunction,
}

impl Bench {
    fn new(context: CUcontext) -> Answer<Self> {
        enter(context)?;
        let stream = stream()?;
        let pool = pool()?;
        let (module, store) = module()?;
        let bench = Bench {
            context,
            stream,
            other_stream: self::stream()?,
            event: event(false)?,
            timed: [event(true)?, event(true)?],
            pool,
            device: [alloc(pool, stream)?, alloc(pool, stream)?],
            pinned: pinned()?,
            module,
            store,
        };
        for timed in bench.timed {
            must!(cuEventRecord(timed, stream))?;
        }
        must!(cuCtxSynchronize())?;
        Ok(bench)
    }

    fn destroy(self) -> Answer<()> {
        for ptr in self.device {
            must!(cuMemFreeAsync(ptr, self.stream))?;
        }
        must!(cuCtxSynchronize())?;
        must!(cuMemFreeHost(self.pinned.cast()))?;
        for event in [self.event, self.timed[0], self.timed[1]] {
            must!(cuEventDestroy_v2(event))?;
        }
        must!(cuModuleUnload(self.module))?;
        must!(cuMemPoolDestroy(self.pool))?;
        must!(cuStreamDestroy_v2(self.stream))?;
        must!(cuStreamDestroy_v2(self.other_stream))
    }

    // The pinned buffer; only this thread touches it, and no copy is in flight where it does.
    fn fill_host(&self, value: u32) {
        unsafe { std::slice::from_raw_parts_mut(self.pinned, WORDS) }.fill(value);
    }

    fn host_holds(&self, words: usize, value: u32) -> bool {
        let host = unsafe { std::slice::from_raw_parts(self.pinned, words) };
        host.iter().all(|word| *word == value)
    }

    /// Both device buffers and the pinned one hold `value`.
    fn fill_all(&self, value: u32) -> Answer<()> {
        for ptr in self.device {
            must!(cuMemsetD32Async(ptr, value, WORDS, self.stream))?;
        }
        must!(cuCtxSynchronize())?;
        self.fill_host(value);
        Ok(())
    }

    fn device_holds(&self, ptr: CUdeviceptr, words: usize, value: u32) -> Answer<bool> {
        must!(cuCtxSynchronize())?;
        let mut copy = vec![!value; words];
        let into = copy.as_mut_ptr().cast();
        must!(cuMemcpyDtoHAsync_v2(into, ptr, words * 4, self.stream))?;
        must!(cuStreamSynchronize(self.stream))?;
        Ok(copy.iter().all(|word| *word == value))
    }

    fn launch(&self, function: CUfunction, stream: CUstream, value: u32, cycles: u64) -> CUresult {
        let (mut ptr, mut value, mut cycles) = (self.device[0], value, cycles);
        let mut params: [*mut c_void; 3] = [
            ptr::from_mut(&mut ptr).cast(),
            ptr::from_mut(&mut value).cast(),
            ptr::from_mut(&mut cycles).cast(),
        ];
        let params = params.as_mut_ptr();
        unsafe { cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, null_mut()) }
    }

    /// A `CUcontext` compared with the right one.
    fn belongs(&self, answer: CUresult, context: CUcontext) -> &'static str {
        match answer {
            CUresult::CUDA_SUCCESS if context == self.context => "right context",
            CUresult::CUDA_SUCCESS if context.is_null() => "no context",
            CUresult::CUDA_SUCCESS => "OTHER CONTEXT",
            _ => "context not told",
        }
    }

    fn pointer_belongs(&self, ptr: CUdeviceptr) -> &'static str {
        let mut context: CUcontext = null_mut();
        let into = ptr::from_mut(&mut context).cast();
        let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_CONTEXT;
        let answer = unsafe { cuPointerGetAttribute(into, attribute, ptr) };
        self.belongs(answer, context)
    }
}

fn stream() -> Answer<CUstream> {
    let mut stream = null_mut();
    let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
    must!(cuStreamCreateWithPriority(&mut stream, flags, 0))?;
    Ok(stream)
}

fn event(timed: bool) -> Answer<CUevent> {
    let mut event = null_mut();
    must!(cuEventCreate(&mut event, if timed { 0 } else { 2 }))?;
    Ok(event)
}

fn pool_props() -> CUmemPoolProps {
    let mut props: CUmemPoolProps = unsafe { mem::zeroed() };
    props.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    props
}

fn pool() -> Answer<CUmemoryPool> {
    let mut pool = null_mut();
    must!(cuMemPoolCreate(&mut pool, &pool_props()))?;
    Ok(pool)
}

fn alloc(pool: CUmemoryPool, stream: CUstream) -> Answer<CUdeviceptr> {
    let mut ptr = 0;
    must!(cuMemAllocFromPoolAsync(&mut ptr, BYTES, pool, stream))?;
    Ok(ptr)
}

fn pinned() -> Answer<*mut u32> {
    let mut pinned = null_mut();
    must!(cuMemHostAlloc(&mut pinned, BYTES, CU_MEMHOSTALLOC_PORTABLE))?;
    Ok(pinned.cast())
}

fn module() -> Answer<(CUmodule, CUfunction)> {
    let (mut module, mut function) = (null_mut(), null_mut());
    must!(cuModuleLoadData(&mut module, PTX.as_ptr().cast()))?;
    must!(cuModuleGetFunction(&mut function, module, c"store".as_ptr()))?;
    Ok((module, function))
}

fn must_ok(call: &str, code: CUresult) -> Answer<()> {
    match code {
        CUresult::CUDA_SUCCESS => Ok(()),
        code => Err(format!("{call} returned {}", code as u32)),
    }
}

fn table(bench: &Bench, modes: &[(&str, CUcontext)]) -> Answer<()> {
    print!("{:28}", "current context:");
    for (mode, _) in modes {
        print!(" {mode:28}");
    }
    println!();
    for (name, row) in ROWS {
        print!("{name:28}");
        for (mode, during) in modes {
            let (code, effect) = row(&Trial { bench, during: *during })
                .map_err(|why| format!("{name}, context {mode}: around the call, {why}"))?;
            print!(" {:28}", format!("{} {effect}", code as u32));
        }
        println!();
    }
    println!();
    Ok(())
}

fn costs(right: CUcontext, foreign: CUcontext) -> Answer<()> {
    let get = || {
        let mut now = null_mut();
        let code = unsafe { cuCtxGetCurrent(&mut now) };
        black_box(now);
        code
    };
    let set = |context| unsafe { cuCtxSetCurrent(context) };
    let push_pop = || unsafe {
        let mut popped = null_mut();
        match cuCtxPushCurrent_v2(right) {
            CUresult::CUDA_SUCCESS => cuCtxPopCurrent_v2(&mut popped),
            code => code,
        }
    };

    println!("{:44} ns (least, median of 15)", "cost of");
    enter(right)?;
    cost("cuCtxGetCurrent", get)?;
    cost("cuCtxSetCurrent, the one that is current", || set(right))?;
    let mut turn = false;
    cost("cuCtxSetCurrent, right and foreign in turn", || {
        turn = !turn;
        set(if turn { foreign } else { right })
    })?;
    cost("cuCtxSetCurrent, right and none in turn", || {
        turn = !turn;
        set(if turn { null_mut() } else { right })
    })?;
    for (name, current) in [
        ("push + pop of right, on right", right),
        ("push + pop of right, on none", null_mut()),
        ("push + pop of right, on foreign", foreign),
    ] {
        enter(current)?;
        cost(name, push_pop)?;
    }
    enter(null_mut())?;
    cost("cuCtxGetCurrent, none current", get)?;
    cost("get, push, pop, on none", || match get() {
        CUresult::CUDA_SUCCESS => push_pop(),
        code => code,
    })
}

fn cost(name: &str, mut call: impl FnMut() -> CUresult) -> Answer<()> {
    const CALLS: u32 = 100_000;
    let mut runs = Vec::new();
    for _ in 0..15 {
        let start = Instant::now();
        for _ in 0..CALLS {
            must_ok(name, call())?;
        }
        runs.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS));
    }
    runs.sort_by(f64::total_cmp);
    println!("{name:44} {:6.1} {:6.1}", runs[0], runs[runs.len() / 2]);
    Ok(())
}
