//! A planted race, found and told: a pipeline loses one of its GPU-side waits at a time.
//!
//! One stream copies chunks in, another squares them and copies them back; two buffers are used in
//! turn. The program names no event: the library has one stream wait for the other where a chunk has to
//! be there, and where a buffer is not to be overwritten yet. Here each of these waits is lost in turn.
//! The race checker reports it, whichever bytes came out.
//!
//! Always on the simulated device: nobody loses waits on a GPU. The checker itself runs there too.

#[path = "common/digest.rs"]
mod digest;
#[path = "common/kernels.rs"]
mod kernels;

use headwater::sim::{Schedule, SimOptions};
use headwater::{Device, Race, Result};

use digest::Digest;
use kernels::square;

const CHUNKS: usize = 6;
const LEN: usize = 1024;

/// What a run came to.
struct Outcome {
    waits: u64,
    right: bool,
    digest: Digest,
    races: Vec<Race>,
}

fn run(lose_wait: Option<u64>) -> Result<Outcome> {
    // Lazy: an operation runs only when something needs it, so what a lost wait should have brought
    // about has not happened.
    let options = SimOptions::new().schedule(Schedule::Lazy);
    let builder = Device::builder().simulated_with(options).single_stream(false);
    let builder = builder.race_check(true).count_driver_calls(true);
    let device = match lose_wait {
        Some(nth) => builder.lose_wait(nth).open()?,
        None => builder.open()?,
    };
    let (copying, computing) = (device.stream(), device.stream());
    let mut buffers = [device.alloc::<f32>(LEN)?, device.alloc::<f32>(LEN)?];
    let mut results = Vec::new();
    for chunk in 0..CHUNKS {
        let mut source = device.alloc_host::<f32>(LEN)?;
        source.try_write()?.fill(chunk as f32);
        let mut result = device.alloc_host::<f32>(LEN)?;
        let buffer = &mut buffers[chunk % 2];
        copying.in_scope(|| buffer.copy_from(&source))?;
        computing.in_scope(|| square(&mut *buffer))?;
        computing.in_scope(|| buffer.copy_to(&mut result))?;
        results.push(result);
    }
    let mut right = true;
    let mut digest = Digest::new();
    for (chunk, result) in results.iter().enumerate() {
        let square = (chunk * chunk) as f32;
        let result = result.blocking_read()?;
        right &= result.iter().all(|x| *x == square);
        digest = digest.and(&result);
    }
    let waits = device.driver_calls().map_or(0, |calls| calls.stream_waits);
    let races = device.races().unwrap_or_default();
    Ok(Outcome { waits, right, digest, races })
}

fn main() -> Result<()> {
    let whole = run(None)?;
    assert!(whole.right && whole.races.is_empty());
    println!("{CHUNKS} chunks, {} waits on the device, no race\n", whole.waits);

    let mut wrong = 0;
    for nth in 0..whole.waits {
        let Outcome { right, races, .. } = run(Some(nth))?;
        wrong += u64::from(!right);
        let Some(race) = races.first() else { panic!("no race without wait {nth}") };
        if nth < 3 {
            println!("without wait {nth}:\n{race}\n");
        }
    }
    println!("each of the {} waits is needed: a race was reported without it,", whole.waits);
    println!("and wrong results came out of {wrong} of the {} runs", whole.waits);
    whole.digest.tell();
    Ok(())
}
