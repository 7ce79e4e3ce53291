//! What only a GPU can show. (Tests that hold on any device run there too.)

use headwater::Result;

use crate::common::{WATCHDOG, any_device, elements, own_device, wait};
use crate::kernels::pipeline::{busy, busy_on_host, square, square_on_host, work, work_on_host};
use crate::kernels::{add, add_on_host, delay};

/// Lengths around the size of a block.
const LENGTHS: [usize; 7] = [1, 2, 255, 256, 257, 1_000, 100_003];

fn values(n: usize, seed: f32) -> Vec<f32> {
    (0..n).map(|i| (i as f32 * 0.618 + seed).sin() * 10.0).collect()
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn twins_compute_what_kernels_do_to_the_bit() -> Result<()> {
    let device = any_device();
    for n in LENGTHS {
        let (a, b) = (values(n, 0.0), values(n, 1.0));
        let mut x = wait(device.upload(&a))?;
        let y = wait(device.upload(&b))?;
        let mut out = device.alloc(n)?;
        let mut expected = vec![0.0; n];

        work(&x, &mut out, 17)?;
        work_on_host(&a, &mut expected, 17);
        assert_eq!(bits(&elements(&out)), bits(&expected), "work, {n} elements");
        add(&x, &y, &mut out)?;
        add_on_host(&a, &b, &mut expected);
        assert_eq!(bits(&elements(&out)), bits(&expected), "add, {n} elements");
        let mut expected = a;
        busy(&mut x, 23)?;
        busy_on_host(&mut expected, 23);
        square(&mut x)?;
        square_on_host(&mut expected);
        assert_eq!(bits(&elements(&x)), bits(&expected), "busy and square, {n} elements");
    }
    Ok(())
}

#[test]
fn an_eight_byte_pattern_reaches_every_element() -> Result<()> {
    // Two strided fills, which count as two calls of one operation.
    let device = any_device();
    let mut x = device.alloc::<[u32; 2]>(1_000)?;
    x.fill([7, 9])?;
    assert_eq!(elements(&x), vec![[7, 9]; 1_000]);
    Ok(())
}

/// A chain of one-millisecond kernels, awaited one by one: each seen soon after its end, and few
/// queries made for it.
#[test]
fn waiting_for_long_kernels_takes_few_queries() -> Result<()> {
    const KERNELS: u64 = 100;
    let device = own_device();
    let mut witness = device.zeros::<u32>(1)?;
    let start = std::time::Instant::now();
    headwater::block_on(async {
        for _ in 0..20 {
            delay(&mut witness, 1_000_000)?.await?;
        }
        let before = device.driver_calls().map_or(0, |calls| calls.event_queries);
        for _ in 0..KERNELS {
            delay(&mut witness, 1_000_000)?.await?;
        }
        let queries = device.driver_calls().map_or(0, |calls| calls.event_queries) - before;
        assert!(queries <= KERNELS * 40, "{queries} queries for {KERNELS} kernels");
        Ok(())
    })?;
    assert!(start.elapsed() < WATCHDOG);
    Ok(())
}
