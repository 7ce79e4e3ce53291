//! The kernels that tests and benchmarks launch: those of the examples, and `kernels/probe.cu`.
#![allow(dead_code, reason = "whoever includes this file uses some of the kernels")]

use headwater::{TileMut, TileRef};

#[path = "../../examples/common/kernels.rs"]
pub(crate) mod pipeline;

#[headwater::kernels(ptx = include_str!("../../kernels/probe.ptx"))]
#[allow(unsafe_code, reason = "declaring a kernel vouches for it")]
// SAFETY: `empty` and `empty_stencil` touch nothing, the one thread of `delay` touches the n elements of its slice,
// and in the others thread i < n touches element i of each slice only, or row i of each tile. n is the
// length of each slice, or the rows of each tile: where there are several, equal ones are required. A
// row is as many elements as the tile has columns, of which `to` in `sum_rows` has one, and i * stride
// behind the first. `add`, `copy_u32` and `sum_rows` have a thread for every element of what they
// fill, and write it without having read it. Every bit pattern is an f32 or u32.
unsafe extern "C" {
    /// Returns at once and touches nothing.
    #[launch(items = b.len(), block = 256, nanoseconds = 1_500)]
    #[args(a, b, b.len() as u32)]
    #[twin(empty_on_host)]
    pub(crate) safe fn empty(a: &[f32], b: &mut [f32]);

    /// Returns at once and touches nothing; takes what a task of a stencil grid takes.
    #[launch(items = next.len(), block = 256, nanoseconds = 1_500)]
    #[args(cell, up, down, left, right, next, next.len() as u32)]
    #[twin(empty_stencil_on_host)]
    pub(crate) safe fn empty_stencil(
        cell: &[f32],
        up: &[f32],
        down: &[f32],
        left: &[f32],
        right: &[f32],
        next: &mut [f32],
    );

    /// Keeps one thread of the device busy for `nanoseconds`, then adds 1 to every element.
    #[launch(grid = 1, block = 1, nanoseconds = nanoseconds)]
    #[args(witness, witness.len() as u32, nanoseconds)]
    #[twin(delay_on_host)]
    pub(crate) safe fn delay(witness: &mut [u32], nanoseconds: u64);

    /// `out[i] = a[i] + b[i]`
    #[launch(
        items = out.len(),
        block = 256,
        require = a.len() == out.len(),
        require = b.len() == out.len(),
        fills = [out],
    )]
    #[args(a, b, out, out.len() as u32)]
    #[twin(add_on_host)]
    pub(crate) safe fn add(a: &[f32], b: &[f32], out: &mut [f32]);

    /// `x[i] = x[i] + 1`, wrapping.
    #[launch(items = x.len(), block = 256)]
    #[args(x, x.len() as u32)]
    #[twin(increment_on_host)]
    pub(crate) safe fn increment(x: &mut [u32]);

    /// `to[i] = from[i]`
    #[launch(items = to.len(), block = 256, require = from.len() == to.len(), fills = [to])]
    #[args(from, to, to.len() as u32)]
    #[twin(copy_u32_on_host)]
    pub(crate) safe fn copy_u32(from: &[u32], to: &mut [u32]);

    /// `out[i] = a[i] + b[i]`, wrapping.
    #[launch(
        items = out.len(),
        block = 256,
        require = a.len() == out.len(),
        require = b.len() == out.len(),
        fills = [out],
    )]
    #[args(a, b, out, out.len() as u32)]
    #[twin(add_u32_on_host)]
    pub(crate) safe fn add_u32(a: &[u32], b: &[u32], out: &mut [u32]);

    /// `x[(i, j)] = factor * x[(i, j)]`
    #[launch(items = x.rows(), block = 256)]
    #[args(x, x.rows() as u32, x.columns() as u32, x.stride() as u32, factor)]
    #[twin(scale_rows_on_host)]
    pub(crate) safe fn scale_rows(x: TileMut<'_, f32>, factor: f32);

    /// `to[(i, 0)] = from[(i, 0)] + from[(i, 1)] + …`, wrapping.
    #[launch(
        items = to.rows(),
        block = 256,
        require = from.rows() == to.rows(),
        require = to.columns() == 1,
        fills = [to],
    )]
    #[args(
        from, from.rows() as u32, from.columns() as u32, from.stride() as u32,
        to, to.stride() as u32
    )]
    #[twin(sum_rows_on_host)]
    pub(crate) safe fn sum_rows(from: TileRef<'_, u32>, to: TileMut<'_, u32>);

    /// Executes a trap, unless `x` is empty. No twin: a simulated device has its own faults.
    #[launch(grid = 1, block = 1)]
    #[args(x, x.len() as u32)]
    pub(crate) safe fn trap(x: &mut [u32]);
}

#[headwater::kernels(ptx = include_str!("../../kernels/probe.ptx"))]
#[allow(unsafe_code, reason = "declaring a kernel vouches for it")]
// SAFETY: this one does write outside its slice, 4 TiB past it. That is more than any device has,
// so no memory of anyone's is there: the launch fails with an illegal address and the process loses
// the device, which is what the tests that call it, each in a process of its own, are about.
unsafe extern "C" {
    /// Writes where there is no memory, unless `x` is empty. No twin, like `trap`.
    #[launch(grid = 1, block = 1)]
    #[args(x, x.len() as u32)]
    pub(crate) safe fn out_of_bounds(x: &mut [u32]);
}

pub(crate) fn empty_stencil_on_host(
    _: &[f32],
    _: &[f32],
    _: &[f32],
    _: &[f32],
    _: &[f32],
    _: &mut [f32],
) {
}

fn empty_on_host(_: &[f32], _: &mut [f32]) {}

pub(crate) fn delay_on_host(witness: &mut [u32], _nanoseconds: u64) {
    increment_on_host(witness);
}

pub(crate) fn add_on_host(a: &[f32], b: &[f32], out: &mut [f32]) {
    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
        *out = a + b;
    }
}

pub(crate) fn add_u32_on_host(a: &[u32], b: &[u32], out: &mut [u32]) {
    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
        *out = a.wrapping_add(*b);
    }
}

pub(crate) fn increment_on_host(x: &mut [u32]) {
    for x in x {
        *x = x.wrapping_add(1);
    }
}

pub(crate) fn scale_rows_on_host(mut x: TileMut<'_, f32>, factor: f32) {
    x.iter_rows_mut().flatten().for_each(|x| *x *= factor);
}

pub(crate) fn sum_rows_on_host(from: TileRef<'_, u32>, mut to: TileMut<'_, u32>) {
    for (i, row) in from.iter_rows().enumerate() {
        to[(i, 0)] = row.iter().fold(0, |sum, x| sum.wrapping_add(*x));
    }
}

pub(crate) fn copy_u32_on_host(from: &[u32], to: &mut [u32]) {
    to.copy_from_slice(from);
}
