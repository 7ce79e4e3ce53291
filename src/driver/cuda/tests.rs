//! What can be tested without a GPU: every way in which a driver can be missing or broken is an
//! `Err`. Broken drivers are libraries compiled here; each is loaded by a process of its own,
//! since a process loads one and keeps it.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::api::SYMBOLS;
use super::module::text;
use super::{device_count, open};
use crate::driver::{DriverError, DriverResult};

const OUTCOME: &str = "outcome: ";

fn outcome<T>(result: DriverResult<T>) -> String {
    match result {
        Ok(_) => "Ok".to_owned(),
        Err(error) => format!("{} {}", error.call(), error.code()),
    }
}

#[test]
fn a_missing_library_or_device_is_an_error_that_can_be_formatted() {
    // SAFETY: only loads and closes the library.
    #[allow(unsafe_code)]
    let library = unsafe { cudarc::driver::sys::is_culib_present() };
    for result in [
        device_count().map(drop),
        open(0).map(drop),
        open(usize::MAX).map(drop),
    ] {
        match result {
            Err(error) if !library => {
                assert_eq!(error.code(), DriverError::NO_LIBRARY);
                assert!(error.to_string().contains("libcuda"));
            }
            Err(error) => assert!(!error.to_string().is_empty() && error.code() != 0),
            Ok(()) => assert!(library),
        }
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
    expect(
        "empty",
        Stub::new(13_000).without(SYMBOLS),
        "cuDriverGetVersion 302",
    );
}

#[test]
fn each_missing_symbol_is_named() {
    // The first, a `_v2` one and the last of the table.
    for symbol in ["cuInit", "cuStreamDestroy_v2", "cuLaunchKernel"] {
        let stub = Stub::new(13_000).without(&[symbol]);
        expect(symbol, stub, &format!("{symbol} 302"));
    }
}

#[test]
fn an_old_driver_is_called_old_even_if_it_lacks_symbols() {
    let stub = Stub::new(11_080).without(&["cuMemAllocFromPoolAsync"]);
    expect("old", stub, "cuDriverGetVersion 803");
}

#[test]
fn the_toolkits_stub_library_is_an_error() {
    expect(
        "toolkit",
        Stub::new(0).answering("cuDriverGetVersion", 34),
        "cuDriverGetVersion 34",
    );
}

#[test]
fn no_device_and_codes_from_the_future_come_out_as_they_are() {
    expect(
        "no-device",
        Stub::new(12_000).answering("cuInit", 100),
        "cuInit 100",
    );
    expect(
        "future",
        Stub::new(12_000).answering("cuInit", 7_777),
        "cuInit 7777",
    );
}

#[test]
fn a_failure_half_way_through_opening_is_an_error() {
    // No pool: the context is pushed, popped and released again on the way out.
    let stub = Stub::new(12_000).answering("cuMemPoolCreate", 801);
    expect_each("no-pool", stub, "Ok", "cuMemPoolCreate 801");
}

#[test]
fn a_library_that_always_succeeds_opens() {
    expect("good", Stub::new(12_000), "Ok");
}

/// A library whose functions do nothing but answer a code.
struct Stub {
    version: i32,
    missing: Vec<&'static str>,
    codes: Vec<(&'static str, u32)>,
}

impl Stub {
    fn new(version: i32) -> Self {
        Stub {
            version,
            missing: Vec::new(),
            codes: Vec::new(),
        }
    }

    fn without(mut self, symbols: &[&'static str]) -> Self {
        self.missing.extend(symbols);
        self
    }

    fn answering(mut self, symbol: &'static str, code: u32) -> Self {
        self.codes.push((symbol, code));
        self
    }

    fn source(&self) -> String {
        let mut source = String::from("#![allow(non_snake_case)]\n");
        for symbol in SYMBOLS.iter().filter(|s| !self.missing.contains(s)) {
            let code = self
                .codes
                .iter()
                .find(|c| c.0 == *symbol)
                .map_or(0, |c| c.1);
            let (params, body) = match *symbol {
                "cuDriverGetVersion" => (
                    "v: *mut i32",
                    format!("unsafe {{ *v = {} }};", self.version),
                ),
                _ => ("", String::new()),
            };
            source += "#[unsafe(no_mangle)] ";
            source +=
                &format!("pub extern \"C\" fn {symbol}({params}) -> u32 {{ {body} {code} }}\n");
        }
        source
    }

    /// `None` where there is no compiler.
    fn compile(&self, folder: &Path) -> Option<()> {
        let (source, library) = (folder.join("stub.rs"), folder.join("libcuda.so"));
        fs::write(&source, self.source()).unwrap();
        let output = Command::new("rustc")
            .args([
                "--edition=2024",
                "--crate-type=cdylib",
                "--crate-name=cuda",
                "-o",
            ])
            .args([&library, &source])
            .output()
            .ok()?;
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Some(())
    }
}

/// Expects the same from [`device_count`] and [`open`].
fn expect(name: &str, stub: Stub, both: &str) {
    expect_each(name, stub, both, both);
}

fn expect_each(name: &str, stub: Stub, count: &str, opened: &str) {
    let folder = Folder::create(name);
    if stub.compile(&folder.0).is_none() {
        eprintln!("skipped: no rustc to compile a stub library with");
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "driver::cuda::tests::stub_child",
            "--ignored",
            "--nocapture",
        ])
        .env("LD_LIBRARY_PATH", &folder.0)
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let found = stdout
        .lines()
        .find_map(|line| Some(line.split_once(OUTCOME)?.1));
    assert_eq!(
        found,
        Some(format!("{count}, {opened}").as_str()),
        "{stdout}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
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
