//! Reading a copy's result too early: an error here, and never the old value.
//!
//! A slow kernel, then a quick one and an asynchronous copy of its result on the same stream. Where
//! plain CUDA lets the host read the old zeros at once, without a word, `try_read` says that the
//! buffer is in flight and `read` awaits it. What is enqueued after the copy is not waited for.

#[path = "common/device.rs"]
mod device;
#[path = "common/digest.rs"]
mod digest;
#[path = "common/kernels.rs"]
mod kernels;

use headwater::{Error, Result};

use digest::Digest;
use kernels::{busy, set_value};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let device = device::open()?;
    let (len, rounds) = if device.info().simulated { (1 << 16, 500) } else { (1 << 20, 20_000) };

    let mut scratch = device.upload(vec![1.0f32; len]).await?;
    let mut d = device.zeros::<f32>(len)?;
    let mut out = device.alloc_host::<f32>(len)?;
    out.write().await?.fill(0.0);

    busy(&mut scratch, rounds)?; // slow work first
    set_value(&mut d, 3.0)?;
    let copied = d.copy_to(&mut out)?; // on the stream when this returns, not done
    match out.try_read() {
        Err(Error::InFlight { .. }) => println!("read too early: refused, the copy is in flight"),
        Ok(out) => {
            // The device was quick. What can never be read is the old value.
            println!("read early: {} {}", out[0], out[len - 1]);
            assert!(out.iter().all(|x| *x == 3.0));
        }
        Err(error) => return Err(error),
    }

    let later = busy(&mut scratch, rounds)?; // enqueued after the copy: not waited for
    let read = out.read().await?;
    println!("after read().await: {} {}", read[0], read[len - 1]);
    assert!(read.iter().all(|x| *x == 3.0));
    assert!(copied.is_finished()?);
    let finished = later.is_finished()?;
    println!("what was enqueued after the copy is finished: {finished} (it was not waited for)");
    Digest::of(&read).tell();
    later.await
}
