//! The cost models against what was reported of an H200 and of a T4: the pipeline of `overlap`, 256 MiB
//! in 16 chunks.
//!
//! Costs are those of the full size. Copies move all their bytes, 16 MiB each; kernels declare the
//! arithmetic of 2^22 elements × 500 rounds, and their twin does nothing. To keep host memory small
//! all chunks are read from one source (reads do not order each other) and each lane writes one
//! result (its own chunks are in order anyway): the order on the device is the program's.

use std::time::Duration;

use headwater::sim::{Schedule, SimOptions};
use headwater::{Device, DeviceBuffer, Elapsed, HostBuffer, Result, Stream};

use crate::common::{pinned_buffer, sim, simulated, wait};

const CHUNKS: usize = 16;
const LEN: usize = 1 << 22;

#[headwater::kernels(
    ptx = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry full_size_work(
    .param .u64 input, .param .u64 output, .param .u32 n)\n{ ret; }\n"
)]
#[allow(unsafe_code, reason = "declaring a kernel vouches for it")]
// SAFETY: it touches nothing.
unsafe extern "C" {
    #[launch(
        items = output.len(),
        block = 256,
        require = input.len() == output.len(),
        arithmetic = output.len() as u64 * 500 * 2,
        fills = [output],
    )]
    #[args(input, output, output.len() as u32)]
    #[twin(nothing_on_host)]
    safe fn full_size_work(input: &[f32], output: &mut [f32]);
}

fn nothing_on_host(_: &[f32], _: &mut [f32]) {}

struct Lane {
    stream: Stream,
    input: DeviceBuffer<f32>,
    output: DeviceBuffer<f32>,
    result: HostBuffer<f32>,
}

struct Pipeline {
    device: Device,
    source: HostBuffer<f32>,
    lanes: Vec<Lane>,
}

impl Pipeline {
    fn new(options: SimOptions) -> Result<Self> {
        let device = simulated(options);
        let source = pinned_buffer(&device, &vec![1.0; LEN]);
        let lane = || {
            let stream = device.stream();
            let memory = || Ok((device.alloc(LEN)?, device.alloc(LEN)?));
            let (input, output) = stream.in_scope(memory)?;
            Ok(Lane { stream, input, output, result: device.alloc_host(LEN)? })
        };
        let lanes = (0..4).map(|_| lane()).collect::<Result<_>>()?;
        Ok(Pipeline { device, source, lanes })
    }

    /// All chunks, dealt to so many lanes in turn: from the first call until all is seen finished.
    fn run(&mut self, lanes: usize) -> Result<Duration> {
        let start = sim(&self.device).host_now();
        for chunk in 0..CHUNKS {
            let Lane { stream, input, output, result } = &mut self.lanes[chunk % lanes];
            stream.in_scope(|| {
                input.copy_from(&self.source)?;
                full_size_work(&*input, &mut *output)?;
                output.copy_to(result)
            })?;
        }
        self.run_to_end()?;
        Ok(Duration::from_nanos(sim(&self.device).host_now() - start))
    }

    fn run_to_end(&self) -> Result<()> {
        sim(&self.device).run_all();
        self.lanes.iter().try_for_each(|lane| wait(lane.stream.synchronize()))
    }

    /// Device time of what is enqueued on the first lane's stream for each chunk, by events.
    fn alone(
        &mut self,
        enqueue: impl Fn(&HostBuffer<f32>, &mut Lane) -> Result<()>,
    ) -> Result<Duration> {
        let start = self.lanes[0].stream.record_timed()?;
        let stream = self.lanes[0].stream.clone();
        (0..CHUNKS)
            .try_for_each(|_| stream.in_scope(|| enqueue(&self.source, &mut self.lanes[0])))?;
        let end = stream.record_timed()?;
        self.run_to_end()?;
        match end.elapsed_since(&start)? {
            Elapsed::Time(time) => Ok(time),
            other => panic!("{other:?}"),
        }
    }

    fn kernels_alone(&mut self) -> Result<Duration> {
        self.alone(|_, lane| full_size_work(&lane.input, &mut lane.output).map(drop))
    }

    fn copies_alone(&mut self) -> Result<Duration> {
        self.alone(|source, lane| {
            lane.input.copy_from(source)?;
            lane.output.copy_to(&mut lane.result).map(drop)
        })
    }
}

/// 1, 2 and 4 streams, kernels alone and copies alone, in ms.
fn times(options: SimOptions) -> Result<[f64; 5]> {
    let mut pipeline = Pipeline::new(options)?;
    let mut times = Vec::new();
    for lanes in [1, 2, 4] {
        times.push(pipeline.run(lanes)?);
    }
    times.extend([pipeline.kernels_alone()?, pipeline.copies_alone()?]);
    let ms: Vec<_> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
    println!("{ms:.2?}");
    Ok(ms.try_into().expect("five of them"))
}

#[track_caller]
fn assert_within(share: f64, time: f64, reported: std::ops::RangeInclusive<f64>) {
    let (least, most) = (reported.start() * (1.0 - share), reported.end() * (1.0 + share));
    assert!((least..=most).contains(&time), "{time} ms, reported {reported:?}");
}

#[test]
fn the_h200_model_takes_as_long_as_an_h200_did() -> Result<()> {
    let [one, two, four, kernels, copies] = times(SimOptions::h200())?;
    assert_within(0.1, one, 19.0..=19.0);
    assert_within(0.1, two, 10.0..=10.0);
    assert_within(0.1, four, 9.0..=10.0);
    assert_within(0.1, kernels, 9.0..=9.0);
    // Reported: 12, by a program in Python whose copies name no stream: the host waits for each of
    // the 32, and then takes its time to call the next. At the rates that raw calls measured the
    // link needs 9.76; the 19 reported for kernels and copies on one stream agree with that.
    assert_within(0.001, copies, 9.76..=9.76);
    Ok(())
}

#[test]
fn the_t4_model_takes_as_long_as_a_t4_did() -> Result<()> {
    let [one, two, four, kernels, copies] = times(SimOptions::t4())?;
    assert_within(0.15, one, 103.0..=103.0);
    assert_within(0.15, two, 63.0..=63.0);
    assert_within(0.15, four, 50.0..=50.0);
    assert_within(0.15, kernels, 53.0..=53.0);
    assert_within(0.15, copies, 45.0..=45.0);
    Ok(())
}

#[test]
fn the_times_are_the_same_whether_it_runs_as_enqueued_or_in_steps() -> Result<()> {
    let stepped = times(SimOptions::t4().schedule(Schedule::Stepped))?;
    assert_eq!(times(SimOptions::t4())?, stepped);
    Ok(())
}
