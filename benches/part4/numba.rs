//! The pipeline of `overlap` on ordinary arrays, beside the same program in Python with numba.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::pageable::Pageable;
use crate::report::{Pair, Ratio, Report};
use crate::{Answer, Bench};

const CHUNKS: usize = 16;
const STREAMS: usize = 4;

/// On four streams, in turn with numba on the same GPU. The Python program is beside this one, or where
/// `NUMBA_OVERLAP` says.
pub(crate) fn overlap(bench: &Bench, report: &mut Report) -> Answer<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let mut pipeline = Pageable::new(&bench.device, CHUNKS, bench.plan.chunk, STREAMS)?;
    let mut ours = || -> Answer<Duration> {
        let took = runtime.block_on(pipeline.run(STREAMS))?;
        pipeline.check();
        Ok(took)
    };
    if bench.raw.is_none() {
        let took = ours()?.as_secs_f64() * 1e6;
        report.ours_alone("overlap_pageable_vs_numba", [took].into_iter());
        return Ok(());
    }
    let mut numba = Numba::start(CHUNKS, bench.plan.chunk, STREAMS)?;
    let mut runs = Vec::new();
    for run in 0..=bench.plan.runs {
        let base = numba.run()?;
        let ours = ours()?.as_secs_f64() * 1e6;
        // The first warms up.
        if run > 0 {
            runs.push(Pair { ours, base });
        }
    }
    numba.stop()?;
    let base_is =
        "numba: copy_to_device, kernel, copy_to_host of 16 chunks on 4 streams, ordinary arrays";
    report.ratio("overlap_pageable_vs_numba", Ratio::OfBase, base_is, &runs)
}

/// A Python process that runs the program once for each line it is given, and answers with microseconds.
struct Numba {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Numba {
    fn start(chunks: usize, len: usize, streams: usize) -> Answer<Self> {
        let beside = || -> Option<PathBuf> {
            Some(env::current_exe().ok()?.parent()?.parent()?.join("numba_overlap.py"))
        };
        let program = env::var_os("NUMBA_OVERLAP").map(PathBuf::from).or_else(beside);
        let program = program.filter(|program| program.exists());
        let program = program.ok_or("numba_overlap.py is not there: NUMBA_OVERLAP says where")?;
        let sizes = [chunks, len, streams].map(|size| size.to_string());
        let mut command = Command::new("python3");
        command.arg(program).args(sizes).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let to = process.stdin.take().ok_or("no pipe to python3")?;
        let from = BufReader::new(process.stdout.take().ok_or("no pipe from python3")?);
        Ok(Numba { process, to, from })
    }

    fn run(&mut self) -> Answer<f64> {
        writeln!(self.to, "run")?;
        let mut answer = String::new();
        self.from.read_line(&mut answer)?;
        Ok(answer.trim().parse().map_err(|_| format!("numba answered {answer:?}"))?)
    }

    fn stop(self) -> Answer<()> {
        let Numba { mut process, to, from } = self;
        drop((to, from));
        match process.wait()?.success() {
            true => Ok(()),
            false => Err("numba ended with an error".into()),
        }
    }
}
