//! Random programs compute what they say, line by line, in whatever order the device may run them.
//!
//! Four streams, four device buffers, two pinned ones. Beside each program runs a model that does
//! every line at once, one after the other; what the program reads, midway and at the end, has to
//! be what the model holds, and what the model knows to be unwritten has to be refused.

use headwater::sim::Fault;
use headwater::{Completion, Device, DeviceBuffer, DriverError, Error, HostBuffer, Result, Stream};

use crate::common::{
    Random, any_device, eager, poll_once, run_to_end, sim, step_at_random, stepped, until, wait,
};
use crate::kernels::{copy_u32, increment};

const STREAMS: usize = 4;
const BUFFERS: usize = 4;
const PINNED: usize = 2;
const LEN: usize = 8;
const LINES: usize = 24;
const NOT_SUPPORTED: u32 = DriverError::NOT_SUPPORTED;

/// Elements as the model has them; `None`: nothing has written them.
type Model = Option<[u32; LEN]>;

/// How programs are run.
#[derive(Clone, Copy, Default)]
struct Mode {
    /// Operations run when the program says so.
    stepped: bool,
    /// Calls of the driver are refused now and then; what was refused did nothing.
    refused: bool,
}

struct Program<'a> {
    device: &'a Device,
    random: Random,
    mode: Mode,
    streams: Vec<Stream>,
    buffers: Vec<DeviceBuffer<u32>>,
    pinned: Vec<HostBuffer<u32>>,
    buffer_models: [Model; BUFFERS],
    pinned_models: [Model; PINNED],
    held: Vec<Completion>,
}

impl<'a> Program<'a> {
    fn new(device: &'a Device, seed: u64, mode: Mode) -> Result<Self> {
        Ok(Program {
            device,
            random: Random::new(seed),
            mode,
            streams: (0..STREAMS).map(|_| device.stream()).collect(),
            buffers: (0..BUFFERS).map(|_| device.alloc(LEN)).collect::<Result<_>>()?,
            pinned: (0..PINNED).map(|_| device.alloc_host(LEN)).collect::<Result<_>>()?,
            buffer_models: [None; BUFFERS],
            pinned_models: [None; PINNED],
            held: Vec::new(),
        })
    }

    fn run(mut self) -> Result<()> {
        for _ in 0..LINES {
            if self.mode.refused && self.random.one_in(3) {
                let after = self.random.below(8) as u64;
                sim(self.device).inject(Fault::any_call(NOT_SUPPORTED).after(after));
            }
            let models = (self.buffer_models, self.pinned_models);
            match self.line() {
                Err(Error::Refused { .. }) if self.mode.refused => {
                    (self.buffer_models, self.pinned_models) = models;
                }
                done => done?,
            }
            while self.mode.stepped && self.random.one_in(3) && self.step() {}
        }
        if self.mode.refused {
            sim(self.device).clear_faults();
        }
        for x in 0..BUFFERS {
            let to = self.random.below(PINNED);
            self.on_a_stream(|p| {
                let copied = p.buffers[x].copy_to(&mut p.pinned[to]);
                p.expect(copied, p.buffer_models[x].is_some())
            })?;
            self.pinned_models[to] = self.buffer_models[x].or(self.pinned_models[to]);
            self.read(to)?;
        }
        Ok(())
    }

    fn step(&mut self) -> bool {
        step_at_random(sim(self.device), &mut self.random)
    }

    /// Where operations have to be stepped: at random until `done`. Asking may record an event, or
    /// meet the reactor's thread asking, so it may take some more asking once all has run.
    fn step_until(&mut self, done: impl Fn(&mut Self) -> bool) {
        let mut more = self.mode.stepped;
        while more && !done(self) {
            more = self.step();
        }
        if self.mode.stepped && !more {
            until("not in flight, with nothing left to run", || done(self));
        }
    }

    fn on_a_stream<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        let stream = self.streams[self.random.below(STREAMS)].clone();
        stream.in_scope(|| f(self))
    }

    /// Checks that an operation was taken exactly where what it reads was written, and does one of
    /// the things that can be done with a completion.
    fn expect(&mut self, enqueued: Result<Completion>, defined: bool) -> Result<()> {
        match enqueued {
            Ok(mut completion) => {
                assert!(defined, "read what nothing has written");
                match self.random.below(4) {
                    0 => self.held.push(completion),
                    1 => std::mem::forget(completion),
                    2 => drop(poll_once(&mut completion)),
                    _ => {}
                }
                Ok(())
            }
            Err(Error::Uninitialised { .. }) if !defined => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn line(&mut self) -> Result<()> {
        let kind = self.random.below(20);
        let [x, y] = self.random.two_below(BUFFERS);
        let at = self.random.below(PINNED);
        let value = self.random.next() as u32;
        let (from, to) = (self.buffer_models[x], &mut self.buffer_models[y]);
        match kind {
            0..3 => {
                *to = Some([value; LEN]);
                self.on_a_stream(|p| {
                    let filled = p.buffers[y].fill(value);
                    p.expect(filled, true)
                })
            }
            3..8 => {
                let defined = to.is_some();
                to.iter_mut().flatten().for_each(|x| *x = x.wrapping_add(1));
                self.on_a_stream(|p| {
                    let incremented = increment(&mut p.buffers[y]);
                    p.expect(incremented, defined)
                })
            }
            8..12 => {
                *to = from.or(*to);
                self.on_a_stream(|p| {
                    let Ok([from_buffer, to]) = p.buffers.get_disjoint_mut([x, y]) else {
                        unreachable!("two different buffers")
                    };
                    let copied = match value % 2 {
                        0 => copy_u32(&*from_buffer, to),
                        _ => to.copy_from(from_buffer),
                    };
                    p.expect(copied, from.is_some())
                })
            }
            12..14 => {
                let from = self.pinned_models[at];
                *to = from.or(*to);
                self.on_a_stream(|p| {
                    let copied = p.buffers[y].copy_from(&p.pinned[at]);
                    p.expect(copied, from.is_some())
                })
            }
            14..16 => {
                self.pinned_models[at] = from.or(self.pinned_models[at]);
                self.on_a_stream(|p| {
                    let copied = p.buffers[x].copy_to(&mut p.pinned[at]);
                    p.expect(copied, from.is_some())
                })
            }
            16 => self.write(at, value),
            17 => self.read(at),
            18 => {
                *to = None;
                self.buffers[y] = self.on_a_stream(|p| p.device.alloc(LEN))?;
                Ok(())
            }
            _ => {
                self.pinned_models[at] = None;
                self.pinned[at] = self.device.alloc_host(LEN)?;
                self.held.clear();
                Ok(())
            }
        }
    }

    fn write(&mut self, at: usize, value: u32) -> Result<()> {
        let model = std::array::from_fn(|i| value.wrapping_add(i as u32));
        self.pinned_models[at] = Some(model);
        self.step_until(|p| !matches!(p.pinned[at].try_write(), Err(Error::InFlight { .. })));
        wait(self.pinned[at].write())?.copy_from_slice(&model);
        Ok(())
    }

    fn read(&mut self, at: usize) -> Result<()> {
        self.step_until(|p| !matches!(p.pinned[at].try_read(), Err(Error::InFlight { .. })));
        let read = match self.random.one_in(2) {
            true => self.pinned[at].blocking_read(),
            false => wait(self.pinned[at].read()),
        };
        match (read, self.pinned_models[at]) {
            (Ok(read), Some(model)) => assert_eq!(*read, model),
            (Err(Error::Uninitialised { .. }), None) => {}
            (read, model) => panic!("read {read:?}, expected {model:?}"),
        }
        Ok(())
    }
}

/// Runs the programs of these seeds, a new device for every 500, and names the seed that failed.
fn run_programs(seeds: std::ops::Range<u64>, mode: Mode, open: impl Fn() -> Device) -> Result<()> {
    struct Seed(u64);
    impl Drop for Seed {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("the program of seed {} failed", self.0);
            }
        }
    }
    let mut device = open();
    for seed in seeds {
        let _seed = Seed(seed);
        Program::new(&device, seed, mode)?.run()?;
        if (seed + 1).is_multiple_of(500) && device.simulator().is_some() {
            run_to_end(&device);
            if mode.refused {
                assert!(sim(&device).injected().len() > 500, "few calls were refused");
            } else {
                // Where a free is refused, the memory stays.
                assert_eq!(sim(&device).live_device_bytes(), 0, "memory of programs that ended");
            }
            device = open();
        }
    }
    Ok(())
}

#[test]
fn random_programs_compute_what_they_say_in_any_order_the_device_may_choose() -> Result<()> {
    run_programs(0..5_000, Mode { stepped: true, ..Mode::default() }, stepped)
}

#[test]
fn random_programs_compute_what_they_say_while_the_device_runs_beside_the_host() -> Result<()> {
    run_programs(5_000..10_000, Mode::default(), eager)
}

#[test]
fn random_programs_compute_what_they_say_on_any_device() -> Result<()> {
    run_programs(10_000..10_500, Mode::default(), any_device)
}

#[test]
fn random_programs_compute_what_they_say_where_the_driver_refuses_calls() -> Result<()> {
    run_programs(11_000..13_000, Mode { stepped: true, refused: true }, stepped)?;
    run_programs(13_000..15_000, Mode { stepped: false, refused: true }, eager)
}
