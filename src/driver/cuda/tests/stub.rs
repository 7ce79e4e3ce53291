//! Broken driver libraries, compiled here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::api::SYMBOLS;

/// What stands in front of a child's result in its output.
pub(super) const OUTCOME: &str = "outcome: ";

/// A driver library whose functions answer a code and keep track of the current context (of one
/// thread). It has two devices, of which only the first reaches the other; their primary context is
/// 0x10, and every attribute of theirs is its own number.
pub(super) struct Stub {
    version: i32,
    missing: Vec<&'static str>,
    codes: Vec<(&'static str, u32)>,
}

impl Stub {
    pub(super) fn new(version: i32) -> Self {
        Stub { version, missing: Vec::new(), codes: Vec::new() }
    }

    pub(super) fn without(mut self, symbols: &[&'static str]) -> Self {
        self.missing.extend(symbols);
        self
    }

    pub(super) fn answering(mut self, symbol: &'static str, code: u32) -> Self {
        self.codes.push((symbol, code));
        self
    }

    fn source(&self) -> String {
        let mut source = String::from(
            "#![allow(non_snake_case, static_mut_refs)]\nstatic mut STACK: Vec<usize> = Vec::new();\n",
        );
        for symbol in SYMBOLS.iter().filter(|s| !self.missing.contains(s)) {
            let code = self.codes.iter().find(|c| c.0 == *symbol).map_or(0, |c| c.1);
            let version = self.version;
            let (params, body) = match *symbol {
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
                _ => ("", String::new()),
            };
            source += &format!(
                "#[unsafe(no_mangle)] pub extern \"C\" fn {symbol}({params}) -> u32 {{ \
                 #[allow(unused_unsafe)] unsafe {{ {body} }} {code} }}\n"
            );
        }
        source
    }

    /// `None` where there is no compiler.
    fn compile(&self, folder: &Path) -> Option<()> {
        let (source, library) = (folder.join("stub.rs"), folder.join("libcuda.so"));
        fs::write(&source, self.source()).unwrap();
        let output = Command::new("rustc")
            .args(["--edition=2024", "--crate-type=cdylib", "--crate-name=cuda", "-o"])
            .args([&library, &source])
            .output()
            .ok()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(())
    }

    /// Runs the ignored test `child` in a process that finds this library, and expects it to
    /// print `outcome`.
    pub(super) fn expect(self, name: &str, child: &str, outcome: &str) {
        let folder = Folder::create(name);
        if self.compile(&folder.0).is_none() {
            eprintln!("skipped: no rustc to compile a stub library with");
            return;
        }
        let child = format!("driver::cuda::tests::{child}");
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &child, "--ignored", "--nocapture"])
            .env("LD_LIBRARY_PATH", &folder.0)
            .output()
            .unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let found = stdout.lines().find_map(|line| Some(line.split_once(OUTCOME)?.1));
        assert_eq!(found, Some(outcome), "{stdout}\n{stderr}");
    }
}

/// A folder that is removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn create(name: &str) -> Self {
        let folder = format!("headwater-stub-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(folder);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
