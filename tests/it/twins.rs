//! The twins that are written for speed compute what a plain loop does, to the bit.

use headwater::{Result, TileMut};

use crate::kernels::pipeline::{accumulate_on_host, busy_on_host, mix_on_host, work_on_host};

/// Lengths around the pieces that the twins work in.
const LENGTHS: [usize; 9] = [0, 1, 15, 16, 17, 47, 48, 49, 200];

fn elements(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i as f32 - 7.0) * 1.37e3).collect()
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn the_twin_of_work_equals_a_plain_loop() {
    for n in LENGTHS {
        let input = elements(n);
        let plain: Vec<f32> =
            input.iter().map(|x| (0..37).fold(*x, |v, _| v * 0.99 + 0.01)).collect();
        let mut output = vec![f32::NAN; n];
        work_on_host(&input, &mut output, 37);
        assert_eq!(bits(&output), bits(&plain), "{n} elements");
    }
}

#[test]
fn the_twin_of_busy_equals_a_plain_loop() {
    for n in LENGTHS {
        let mut x = elements(n);
        let plain: Vec<f32> = x
            .iter()
            .map(|x| (0..37).fold(f64::from(*x), |v, _| v * 0.999 + 0.001) as f32)
            .collect();
        busy_on_host(&mut x, 37);
        assert_eq!(bits(&x), bits(&plain), "{n} elements");
    }
}

#[test]
fn the_twin_of_mix_equals_a_plain_loop() {
    let step = |v: u32| {
        let v = v ^ (v << 13);
        let v = v ^ (v >> 17);
        v ^ (v << 5)
    };
    for n in LENGTHS {
        let mut x = bits(&elements(n));
        let plain: Vec<u32> = x.iter().map(|x| (0..37).fold(*x, |v, _| step(v))).collect();
        mix_on_host(&mut x, 37);
        assert_eq!(x, plain, "{n} elements");
    }
}

#[test]
fn the_twin_of_accumulate_equals_a_plain_loop() -> Result<()> {
    for n in LENGTHS.into_iter().filter(|n| *n > 0) {
        let (weights, x) = (elements(n), elements(3 * n));
        let mut plain = x.clone();
        for (row, weight) in plain.chunks_mut(3).zip(&weights) {
            row[0] = (0..37).fold(row[0], |v, _| v + weight);
        }
        let mut sums = x.clone();
        for (row, weight) in sums.chunks_mut(3).zip(&weights) {
            accumulate_on_host(TileMut::new(&mut row[..1], 1)?, &[*weight], 37);
        }
        assert_eq!(bits(&sums), bits(&plain), "{n} elements, one by one");
        let mut column: Vec<_> = x.iter().step_by(3).copied().collect();
        accumulate_on_host(TileMut::new(&mut column, 1)?, &weights, 37);
        let plain: Vec<_> = plain.into_iter().step_by(3).collect();
        assert_eq!(bits(&column), bits(&plain), "{n} elements");
    }
    Ok(())
}
