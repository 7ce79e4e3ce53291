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

/// A call in three steps: what it needs is made with the right context current; the call itself
/// is made with whatever is current; its effect is looked at with the right context current.
struct Trial<'a> {
    bench: &'a Bench,
    /// Current during the call.
    during: CUcontext,
}

impl Trial<'_> {
    fn call(&self, call: impl FnOnce() -> CUresult) -> Answer<CUresult> {
        enter(self.during)?;
        let code = call();
        enter(self.bench.context)?;
        Ok(code)
    }
}

/// What a call returned, and what is to be said of its effect if it succeeded.
type Outcome = Answer<(CUresult, String)>;

fn verdict(code: CUresult, right: impl FnOnce() -> Answer<bool>) -> Outcome {
    if code != CUresult::CUDA_SUCCESS {
        return Ok((code, String::new()));
    }
    Ok((code, if right()? { "right".into() } else { "WRONG DATA".into() }))
}

fn said(code: CUresult, what: impl FnOnce() -> Answer<String>) -> Outcome {
    let what = if code == CUresult::CUDA_SUCCESS { what()? } else { String::new() };
    Ok((code, what))
}

type Row = (&'static str, fn(&Trial<'_>) -> Outcome);

const ROWS: &[Row] = &[
    ("cuLaunchKernel", |t| {
        let b = t.bench;
        b.fill_all(0)?;
        let code = t.call(|| b.launch(b.store, b.stream, 7, 0))?;
        verdict(code, || b.device_holds(b.device[0], 1, 7))
    }),
    ("cuEventRecord", |t| {
        let b = t.bench;
        // Recorded behind a long kernel, so pending right after and finished in the end.
        must_ok("cuLaunchKernel", b.launch(b.store, b.stream, 1, LONG))?;
        let code = t.call(|| unsafe { cuEventRecord(b.event, b.stream) })?;
        let pending = unsafe { cuEventQuery(b.event) } == CUresult::CUDA_ERROR_NOT_READY;
        must!(cuCtxSynchronize())?;
        verdict(code, || Ok(pending && must!(cuEventQuery(b.event)).is_ok()))
    }),
    ("cuEventQuery, finished", |t| {
        let b = t.bench;
        must!(cuEventRecord(b.event, b.stream))?;
        must!(cuCtxSynchronize())?;
        verdict(t.call(|| unsafe { cuEventQuery(b.event) })?, || Ok(true))
    }),
    ("cuEventQuery, pending (600)", |t| {
        let b = t.bench;
        must_ok("cuLaunchKernel", b.launch(b.store, b.stream, 1, LONG))?;
        must!(cuEventRecord(b.event, b.stream))?;
        let code = t.call(|| unsafe { cuEventQuery(b.event) })?;
        must!(cuCtxSynchronize())?;
        Ok((code, String::new()))
    }),
    ("cuStreamWaitEvent", |t| {
        let b = t.bench;
        b.fill_all(0)?;
        must_ok("cuLaunchKernel", b.launch(b.store, b.stream, 9, LONG))?;
        must!(cuEventRecord(b.event, b.stream))?;
        let code = t.call(|| unsafe { cuStreamWaitEvent(b.other_stream, b.event, 0) })?;
        must!(cuMemcpyDtoHAsync_v2(b.pinned.cast(), b.device[0], 4, b.other_stream))?;
        must!(cuCtxSynchronize())?;
        verdict(code, || Ok(b.host_holds(1, 9)))
    }),
    ("cuMemcpyHtoDAsync", |t| {
        let b = t.bench;
        b.fill_all(1)?;
        b.fill_host(2);
        let (dst, src) = (b.device[0], b.pinned.cast_const().cast());
        let code = t.call(|| unsafe { cuMemcpyHtoDAsync_v2(dst, src, BYTES, b.stream) })?;
        verdict(code, || b.device_holds(b.device[0], WORDS, 2))
    }),
    ("cuMemcpyDtoHAsync", |t| {
        let b = t.bench;
        b.fill_all(3)?;
        b.fill_host(0);
        let (dst, src) = (b.pinned.cast(), b.device[0]);
        let code = t.call(|| unsafe { cuMemcpyDtoHAsync_v2(dst, src, BYTES, b.stream) })?;
        must!(cuCtxSynchronize())?;
        verdict(code, || Ok(b.host_holds(WORDS, 3)))
    }),
    ("cuMemcpyDtoDAsync", |t| {
        let b = t.bench;
        b.fill_all(0)?;
        must!(cuMemsetD32Async(b.device[1], 4, WORDS, b.stream))?;
        let [dst, src] = b.device;
        let code = t.call(|| unsafe { cuMemcpyDtoDAsync_v2(dst, src, BYTES, b.stream) })?;
        verdict(code, || b.device_holds(b.device[0], WORDS, 4))
    }),
    ("cuMemsetD32Async", |t| {
        let b = t.bench;
        b.fill_all(0)?;
        let code = t.call(|| unsafe { cuMemsetD32Async(b.device[0], 5, WORDS, b.stream) })?;
        verdict(code, || b.device_holds(b.device[0], WORDS, 5))
    }),
    ("cuMemsetD2D32Async", |t| {
        let b = t.bench;
        b.fill_all(0)?;
        let (dst, rows) = (b.device[0], WORDS / 16);
        let code = t.call(|| unsafe { cuMemsetD2D32Async(dst, 64, 6, 16, rows, b.stream) })?;
        verdict(code, || b.device_holds(dst, WORDS, 6))
    }),
    ("cuMemAllocFromPoolAsync", |t| {
        let b = t.bench;
        let mut ptr = 0;
        let code =
            t.call(|| unsafe { cuMemAllocFromPoolAsync(&mut ptr, BYTES, b.pool, b.stream) })?;
        said(code, || {
            let whose = b.pointer_belongs(ptr);
            must!(cuMemsetD32Async(ptr, 8, WORDS, b.stream))?;
            let usable = b.device_holds(ptr, WORDS, 8)?;
            must!(cuMemFreeAsync(ptr, b.stream))?;
            Ok(format!("{whose}, {}", if usable { "usable" } else { "WRONG DATA" }))
        })
    }),
    ("cuMemFreeAsync", |t| {
        let b = t.bench;
        let ptr = alloc(b.pool, b.stream)?;
        let code = t.call(|| unsafe { cuMemFreeAsync(ptr, b.stream) })?;
        must!(cuCtxSynchronize())?;
        if code != CUresult::CUDA_SUCCESS {
            must!(cuMemFreeAsync(ptr, b.stream))?;
        }
        verdict(code, || Ok(true))
    }),
    ("cuEventCreate", |t| {
        let b = t.bench;
        let mut event = null_mut();
        let code = t.call(|| unsafe { cuEventCreate(&mut event, 2) })?;
        // An event has no way to ask for its context, but can be recorded in its own only.
        said(code, || {
            let recorded = unsafe { cuEventRecord(event, b.stream) };
            must!(cuCtxSynchronize())?;
            must!(cuEventDestroy_v2(event))?;
            Ok(match recorded {
                CUresult::CUDA_SUCCESS => "right context".into(),
                code => format!("OTHER CONTEXT ({})", code as u32),
            })
        })
    }),
    ("cuEventDestroy", |t| {
        let event = event(false)?;
        let code = t.call(|| unsafe { cuEventDestroy_v2(event) })?;
        verdict(code, || Ok(true))
    }),
    ("cuEventElapsedTime", |t| {
        let [start, end] = t.bench.timed;
        let mut milliseconds = -1.0_f32;
        let code = t.call(|| unsafe { cuEventElapsedTime(&mut milliseconds, start, end) })?;
        verdict(code, || Ok(milliseconds >= 0.0))
    }),
    ("cuStreamCreateWithPriority", |t| {
        let mut stream = null_mut();
        let code = t.call(|| unsafe { cuStreamCreateWithPriority(&mut stream, 1, 0) })?;
        said(code, || {
            let mut context = null_mut();
            let answer = unsafe { cuStreamGetCtx(stream, &mut context) };
            must!(cuStreamDestroy_v2(stream))?;
            Ok(t.bench.belongs(answer, context).into())
        })
    }),
    ("cuStreamDestroy", |t| {
        let stream = stream()?;
        let code = t.call(|| unsafe { cuStreamDestroy_v2(stream) })?;
        verdict(code, || Ok(true))
    }),
    ("cuMemHostAlloc", |t| {
        let mut ptr = null_mut();
        let code = t.call(|| unsafe { cuMemHostAlloc(&mut ptr, BYTES, 1) })?;
        said(code, || {
            let whose = t.bench.pointer_belongs(ptr.expose_provenance() as CUdeviceptr);
            must!(cuMemFreeHost(ptr))?;
            Ok(whose.into())
        })
    }),
    ("cuMemFreeHost", |t| {
        let ptr = pinned()?;
        let code = t.call(|| unsafe { cuMemFreeHost(ptr.cast()) })?;
        verdict(code, || Ok(true))
    }),
    ("cuMemPoolCreate", |t| {
        let mut pool = null_mut();
        let code = t.call(|| unsafe { cuMemPoolCreate(&mut pool, &pool_props()) })?;
        verdict(code, || {
            let ptr = alloc(pool, t.bench.stream)?;
            must!(cuMemFreeAsync(ptr, t.bench.stream))?;
            must!(cuCtxSynchronize())?;
            must!(cuMemPoolDestroy(pool)).map(|()| true)
        })
    }),
    ("cuMemPoolDestroy", |t| {
        let pool = pool()?;
        let code = t.call(|| unsafe { cuMemPoolDestroy(pool) })?;
        verdict(code, || Ok(true))
    }),
    ("cuMemGetInfo", |t| {
        let (mut free, mut total) = (0, 0);
        let code = t.call(|| unsafe { cuMemGetInfo_v2(&mut free, &mut total) })?;
        said(code, || Ok(format!("{} MiB in all", total >> 20)))
    }),
    ("cuCtxGetStreamPriorityRange", |t| {
        let (mut least, mut most) = (0, 0);
        let code = t.call(|| unsafe { cuCtxGetStreamPriorityRange(&mut least, &mut most) })?;
        said(code, || Ok(format!("{least} to {most}")))
    }),
    ("cuModuleLoadData", |t| {
        let b = t.bench;
        let mut module = null_mut();
        let code = t.call(|| unsafe { cuModuleLoadData(&mut module, PTX.as_ptr().cast()) })?;
        said(code, || {
            let mut function = null_mut();
            must!(cuModuleGetFunction(&mut function, module, c"store".as_ptr()))?;
            let launched = b.launch(function, b.stream, 1, 0);
            must!(cuCtxSynchronize())?;
            must!(cuModuleUnload(module))?;
            Ok(match launched {
                CUresult::CUDA_SUCCESS => "right context".into(),
                code => format!("OTHER CONTEXT ({})", code as u32),
            })
        })
    }),
    ("cuModuleGetFunction", |t| {
        let b = t.bench;
        b.fill_all(0)?;
        let mut function = null_mut();
        let name = c"store".as_ptr();
        let code = t.call(|| unsafe { cuModuleGetFunction(&mut function, b.module, name) })?;
        verdict(code, || {
            must_ok("cuLaunchKernel", b.launch(function, b.stream, 10, 0))?;
            b.device_holds(b.device[0], 1, 10)
        })
    }),
    ("cuModuleUnload", |t| {
        let (module, _) = module()?;
        let code = t.call(|| unsafe { cuModuleUnload(module) })?;
        verdict(code, || Ok(true))
    }),
];

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
