//! Driver libraries that are too old or broken, compiled here. A process loads one library and keeps
//! it, so each needs a process of its own.
#![allow(dead_code, reason = "whoever includes this file uses some of it")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A driver library whose functions answer a code and keep track of the current context (of one
/// thread). It has two devices, of which only the first reaches the other; their primary context is
/// 0x10, and every attribute of theirs is its own number. A record on a default stream of that context
/// answers 7000 and the stream's value. Unloading a module takes it 20 ms.
pub(crate) struct Stub {
    version: i32,
    /// Each function with what it answers.
    codes: Vec<(String, u32)>,
}

/// What the library's functions use. Once the process's exit has come to the library, a call of it
/// ends the process by a signal.
const PRELUDE: &str = r#"
#![allow(non_snake_case, static_mut_refs)]
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

static mut STACK: Vec<usize> = Vec::new();
static INITIALISED: std::sync::Once = std::sync::Once::new();
static GONE: AtomicBool = AtomicBool::new(false);

unsafe extern "C" { fn atexit(function: extern "C" fn()) -> i32; }

extern "C" fn go() {
    GONE.store(true, SeqCst);
    sleep(200); // who comes late is seen
}

fn stay() {
    if GONE.load(SeqCst) {
        std::process::abort();
    }
}

fn sleep(ms: u64) {
    std::thread::sleep(std::time::Duration::from_millis(ms));
}
"#;

/// Whether there is a compiler to make one with.
pub(crate) fn has_compiler() -> bool {
    Command::new("rustc").arg("--version").output().is_ok()
}

impl Stub {
    /// With every function that the crate looks up, each of which answers success. `version` is that
    /// of CUDA, as 1000 * major + 10 * minor.
    pub(crate) fn new(version: i32) -> Self {
        let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/driver/cuda/api.rs");
        let table = fs::read_to_string(table).expect("the table of functions");
        // cuMemGetInfo = cuMemGetInfo_v2(…
        let symbol = |line: &str| {
            let symbol = line.trim_start().split_once(" = cu")?.1.split_once('(')?.0;
            Some((format!("cu{symbol}"), 0))
        };
        let codes: Vec<_> = table.lines().filter_map(symbol).collect();
        assert!(codes.len() > 30, "the functions were not found: {codes:?}");
        Stub { version, codes }
    }

    /// With no function at all.
    pub(crate) fn empty() -> Self {
        Stub { version: 0, codes: Vec::new() }
    }

    pub(crate) fn without(mut self, symbol: &str) -> Self {
        let at = self.place(symbol);
        self.codes.remove(at);
        self
    }

    pub(crate) fn answering(mut self, symbol: &str, code: u32) -> Self {
        let at = self.place(symbol);
        self.codes[at].1 = code;
        self
    }

    fn place(&self, symbol: &str) -> usize {
        let place = self.codes.iter().position(|known| known.0 == symbol);
        place.unwrap_or_else(|| panic!("{symbol} is not looked up"))
    }

    fn source(&self) -> String {
        let mut source = PRELUDE.to_owned();
        for (symbol, code) in &self.codes {
            let version = self.version;
            let (params, body) = match &**symbol {
                "cuDriverGetVersion" => ("v: *mut i32", format!("*v = {version};")),
                "cuDeviceGetCount" => ("n: *mut i32", "*n = 2;".into()),
                "cuDeviceGet" => ("d: *mut i32, n: i32", "*d = n + 100;".into()),
                "cuDeviceGetName" => {
                    ("n: *mut [u8; 5], _l: i32, _d: i32", "*n = *b\"stub\\0\";".into())
                }
                "cuDeviceTotalMem_v2" => ("b: *mut usize, d: i32", "*b = d as usize;".into()),
                "cuDeviceGetAttribute" => ("v: *mut i32, a: i32, _d: i32", "*v = a;".into()),
                "cuDeviceCanAccessPeer" => {
                    ("c: *mut i32, d: i32, p: i32", "*c = i32::from((d, p) == (100, 101));".into())
                }
                "cuDevicePrimaryCtxRetain" => ("c: *mut usize, _d: i32", "*c = 0x10;".into()),
                "cuCtxGetCurrent" => ("c: *mut usize", "*c = *STACK.last().unwrap_or(&0);".into()),
                "cuCtxPushCurrent_v2" => ("c: usize", "STACK.push(c);".into()),
                "cuCtxPopCurrent_v2" => ("", "STACK.pop();".into()),
                "cuStreamCreateWithPriority" | "cuEventCreate" => {
                    ("", "if STACK.last() != Some(&0x10) { return 201; }".into())
                }
                // Made at once; a device address is one of this process.
                "cuMemcpy2DAsync_v2" => (
                    "c: *const [usize; 16], _s: usize",
                    "let word = |i: usize| *c.cast::<usize>().add(i);
                    let side = |first: usize| match *c.cast::<usize>().add(first).cast::<u32>() {
                        1 => (word(first + 1), word(first + 4)),
                        _ => (word(first + 2), word(first + 4)),
                    };
                    let ((src, pitch), (dst, to_pitch)) = (side(2), side(9));
                    for i in 0..word(15) {
                        let from = (src + i * pitch) as *const u8;
                        std::ptr::copy(from, (dst + i * to_pitch) as *mut u8, word(14));
                    }"
                    .into(),
                ),
                "cuMemcpy3DAsync_v2" => (
                    "c: *const [usize; 25], _s: usize",
                    "let word = |i: usize| *c.cast::<usize>().add(i);
                    let side = |first: usize| match *c.cast::<usize>().add(first).cast::<u32>() {
                        1 => (word(first + 1), word(first + 5), word(first + 6)),
                        _ => (word(first + 2), word(first + 5), word(first + 6)),
                    };
                    let ((src, pitch, height), (dst, to_pitch, to_height)) = (side(4), side(15));
                    for (j, i) in (0..word(24)).flat_map(|j| (0..word(23)).map(move |i| (j, i))) {
                        let from = (src + (j * height + i) * pitch) as *const u8;
                        let to = (dst + (j * to_height + i) * to_pitch) as *mut u8;
                        std::ptr::copy(from, to, word(22));
                    }"
                    .into(),
                ),
                // 0x1 and 0x2 are streams of the context that is current.
                "cuEventRecord" => (
                    "_e: usize, s: usize",
                    "if s == 1 || s == 2 {
                        let ours = STACK.last() == Some(&0x10);
                        return if ours { 7000 + s as u32 } else { 201 };
                    }"
                    .into(),
                ),
                // The first time: what is finished at once is waited for by nobody.
                "cuEventQuery" => (
                    "",
                    "static ASKED: std::sync::Once = std::sync::Once::new();
                    if !ASKED.is_completed() { ASKED.call_once(|| {}); return 600; }"
                        .into(),
                ),
                "cuInit" => ("", "INITIALISED.call_once(|| { atexit(go); });".into()),
                "cuModuleUnload" => ("", "sleep(20);".into()),
                _ => ("", String::new()),
            };
            source += &format!(
                "#[unsafe(no_mangle)] pub extern \"C\" fn {symbol}({params}) -> u32 {{ \
                 #[allow(unused_unsafe)] unsafe {{ stay(); {body} stay(); }} {code} }}\n"
            );
        }
        source
    }

    /// A folder with the library in it, for `LD_LIBRARY_PATH`.
    pub(crate) fn compile(&self) -> Folder {
        let folder = Folder::create();
        let (source, library) = (folder.0.join("stub.rs"), folder.0.join("libcuda.so"));
        fs::write(&source, self.source()).expect("writing the stub's source");
        let output = Command::new("rustc")
            .args(["--edition=2024", "--crate-type=cdylib", "--crate-name=cuda", "-o"])
            .args([&library, &source])
            .output()
            .expect("running rustc");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        folder
    }
}

/// A folder that is removed when dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    fn create() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let name = format!("headwater-stub-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("making a folder");
        Folder(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
