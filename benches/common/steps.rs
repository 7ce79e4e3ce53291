//! How a benchmark is called, and its steps one after the other.

use std::time::Instant;

use headwater::{Device, DeviceBuilder};

use crate::Answer;
use crate::report::Report;

/// What a benchmark was called with.
pub(crate) struct Args {
    /// A file for the figures.
    pub(crate) json: Option<String>,
    /// Tiny, on the simulated device and without figures.
    pub(crate) dry: bool,
}

impl Args {
    pub(crate) fn parse(name: &str) -> Answer<Args> {
        let mut parsed = Args { json: None, dry: false };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            match &*arg {
                "--json" => {
                    let file = args.next().ok_or("--json takes the name of a file")?;
                    parsed.json = Some(file);
                }
                "--dry-run" => parsed.dry = true,
                "--bench" => {} // cargo says so to every benchmark
                _ => return Err(format!("{arg}? {name} [--json FILE] | {name} --dry-run").into()),
            }
        }
        match parsed.dry && parsed.json.is_some() {
            true => Err("a dry run has no figures to write".into()),
            false => Ok(parsed),
        }
    }

    /// Opens the device to measure on.
    pub(crate) fn open(&self, builder: DeviceBuilder) -> Answer<Device> {
        let opened = if self.dry { builder.simulated().open() } else { builder.open() };
        let device = opened.map_err(|error| format!("needs an NVIDIA GPU: {error}"))?;
        match device.info().simulated && !self.dry {
            true => {
                Err("a simulated device has no figures: needs an NVIDIA GPU, or --dry-run".into())
            }
            false => Ok(device),
        }
    }

    /// Begins the report.
    pub(crate) fn report(&self, device: &Device) -> Answer<Report> {
        println!("device: {}{}", device.info().name, if self.dry { ", dry run" } else { "" });
        Report::new(self.json.as_deref())
    }
}

/// Does something with a `B` and reports it.
pub(crate) type Step<B> = fn(&B, &mut Report) -> Answer<()>;

/// A step that fails does not keep the others from running.
pub(crate) fn run_steps<B>(
    bench: &B,
    steps: &[(&str, Step<B>)],
    report: &mut Report,
    failed: &mut Vec<String>,
) {
    for (name, step) in steps {
        let start = Instant::now();
        if let Err(why) = step(bench, report) {
            failed.push(format!("{name}: {why}"));
        }
        println!("  ({name}: {:.1} s)", start.elapsed().as_secs_f64());
    }
}
