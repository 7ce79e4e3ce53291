//! `kernels/pipeline.cu` for the examples, the tests and the benchmarks: each kernel with its twin.
//!
//! The twins compute bit for bit what the kernels do. They take the elements in pieces small
//! enough to stay in registers, with the rounds outside, so that the compiler vectorises them.
#![allow(dead_code, reason = "whoever includes this file uses some of the kernels")]

use headwater::TileMut;

#[headwater::kernels(ptx = include_str!("../../kernels/pipeline.ptx"))]
#[allow(unsafe_code, reason = "declaring a kernel vouches for it")]
// SAFETY: thread i < n touches element i of each slice only, and n is the length of each: where
// there are two, equal lengths are required. In `accumulate` it touches row i of the tile, i * stride
// elements behind the first, which has one column and as many rows as there are weights. `work` and `set_value` have a thread for every element
// of what they fill, and write it without having read it. Every bit pattern is an f32 or u32.
unsafe extern "C" {
    /// `output[i]` is `input[i]` after `rounds` times `v * 0.99 + 0.01` in `f32`.
    #[launch(
        items = output.len(),
        block = 256,
        require = input.len() == output.len(),
        arithmetic = output.len() as u64 * u64::from(rounds) * 2,
        fills = [output],
    )]
    #[args(input, output, output.len() as u32, rounds)]
    #[twin(work_on_host)]
    pub(crate) safe fn work(input: &[f32], output: &mut [f32], rounds: u32);

    /// `x[i]` after `rounds` times `v * 0.999 + 0.001` in `f64`, rounded once at the end.
    #[launch(
        items = x.len(),
        block = 256,
        arithmetic = x.len() as u64 * u64::from(rounds) * 2,
    )]
    #[args(x, x.len() as u32, rounds)]
    #[twin(busy_on_host)]
    pub(crate) safe fn busy(x: &mut [f32], rounds: u32);

    /// `x[i] = value`
    #[launch(items = x.len(), block = 256, fills = [x])]
    #[args(x, x.len() as u32, value)]
    #[twin(set_value_on_host)]
    pub(crate) safe fn set_value(x: &mut [f32], value: f32);

    /// `x[i] = x[i] * x[i]`
    #[launch(items = x.len(), block = 256)]
    #[args(x, x.len() as u32)]
    #[twin(square_on_host)]
    pub(crate) safe fn square(x: &mut [f32]);

    /// `x[i]` after `rounds` steps of a xorshift generator, each a permutation of all numbers.
    #[launch(
        items = x.len(),
        block = 256,
        arithmetic = x.len() as u64 * u64::from(rounds) * 6,
    )]
    #[args(x, x.len() as u32, rounds)]
    #[twin(mix_on_host)]
    pub(crate) safe fn mix(x: &mut [u32], rounds: u32);

    /// `column[(i, 0)]` after `rounds` times `v + weights[i]`.
    #[launch(
        items = column.rows(),
        block = 256,
        require = column.columns() == 1,
        require = column.rows() == weights.len(),
        // A thread alone waits four cycles of 2 GHz for each sum.
        nanoseconds = u64::from(rounds) * 2,
    )]
    #[args(column, column.rows() as u32, column.stride() as u32, weights, rounds)]
    #[twin(accumulate_on_host)]
    pub(crate) safe fn accumulate(column: TileMut<'_, f32>, weights: &[f32], rounds: u32);
}

/// Twelve SSE registers, the fastest of 8 to 128 elements where there is no AVX.
const WORK_PIECE: usize = 48;

pub(crate) fn work_on_host(input: &[f32], output: &mut [f32], rounds: u32) {
    for (from, to) in input.chunks(WORK_PIECE).zip(output.chunks_mut(WORK_PIECE)) {
        let mut values = [0.0f32; WORK_PIECE];
        values[..from.len()].copy_from_slice(from);
        for _ in 0..rounds {
            for v in &mut values {
                *v = *v * 0.99 + 0.01;
            }
        }
        to.copy_from_slice(&values[..from.len()]);
    }
}

/// Eight SSE registers, the fastest of 8 to 128 elements where there is no AVX.
const BUSY_PIECE: usize = 16;

pub(crate) fn busy_on_host(x: &mut [f32], rounds: u32) {
    for piece in x.chunks_mut(BUSY_PIECE) {
        let mut values = [0.0f64; BUSY_PIECE];
        for (v, x) in values.iter_mut().zip(&*piece) {
            *v = f64::from(*x);
        }
        for _ in 0..rounds {
            for v in &mut values {
                *v = *v * 0.999 + 0.001;
            }
        }
        for (x, v) in piece.iter_mut().zip(values) {
            *x = v as f32;
        }
    }
}

pub(crate) fn set_value_on_host(x: &mut [f32], value: f32) {
    x.fill(value);
}

pub(crate) fn square_on_host(x: &mut [f32]) {
    for x in x {
        *x *= *x;
    }
}

/// Four SSE registers of numbers, and as many to shift them in.
const MIX_PIECE: usize = 16;

pub(crate) fn mix_on_host(x: &mut [u32], rounds: u32) {
    for piece in x.chunks_mut(MIX_PIECE) {
        let mut values = [0u32; MIX_PIECE];
        values[..piece.len()].copy_from_slice(piece);
        for _ in 0..rounds {
            for v in &mut values {
                *v ^= *v << 13;
                *v ^= *v >> 17;
                *v ^= *v << 5;
            }
        }
        piece.copy_from_slice(&values[..piece.len()]);
    }
}

/// Six SSE registers of sums and six of weights.
const ACCUMULATE_PIECE: usize = 24;

pub(crate) fn accumulate_on_host(mut column: TileMut<'_, f32>, weights: &[f32], rounds: u32) {
    for (piece, weights) in weights.chunks(ACCUMULATE_PIECE).enumerate() {
        let first = piece * ACCUMULATE_PIECE;
        let (mut sums, mut each) = ([0.0f32; ACCUMULATE_PIECE], [0.0f32; ACCUMULATE_PIECE]);
        each[..weights.len()].copy_from_slice(weights);
        for (i, sum) in sums.iter_mut().enumerate().take(weights.len()) {
            *sum = column[(first + i, 0)];
        }
        for _ in 0..rounds {
            for (sum, weight) in sums.iter_mut().zip(&each) {
                *sum += weight;
            }
        }
        for (i, sum) in sums.iter().enumerate().take(weights.len()) {
            column[(first + i, 0)] = *sum;
        }
    }
}
