//! What only a GPU can show. (Tests that hold on any device run there too.)

use headwater::{Result, TileMut, TileRef};

use crate::common::{WATCHDOG, any_device, elements, own_device, wait};
use crate::kernels::pipeline::{
    accumulate, accumulate_on_host, busy, busy_on_host, mix, mix_on_host, square, square_on_host,
    work, work_on_host,
};
use crate::kernels::{
    add, add_on_host, delay, scale_rows, scale_rows_on_host, sum_rows, sum_rows_on_host,
};

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
        let mut expected = bits(&b);
        let mut x = wait(device.upload(&expected))?;
        mix(&mut x, 23)?;
        mix_on_host(&mut expected, 23);
        assert_eq!(elements(&x), expected, "mix, {n} elements");
    }
    Ok(())
}

#[test]
fn twins_of_kernels_on_tiles_compute_what_they_do_to_the_bit() -> Result<()> {
    let device = any_device();
    for (rows, columns, width) in [(1, 1, 1), (3, 5, 2), (257, 4, 3), (1_000, 33, 32)] {
        let a = values(rows * columns, 2.0);
        let mut x = wait(device.upload(&a))?;
        scale_rows(x.as_matrix_mut(columns)?.tile_mut(.., ..width)?, 0.37)?;
        let mut expected = a.clone();
        for row in expected.chunks_mut(columns) {
            scale_rows_on_host(TileMut::new(&mut row[..width], width)?, 0.37);
        }
        assert_eq!(bits(&elements(&x)), bits(&expected), "scale_rows, {rows} x {columns}");

        let b = bits(&a);
        let y = wait(device.upload(&b))?;
        let mut to = device.zeros::<u32>(2 * rows)?;
        sum_rows(y.as_matrix(columns)?, to.as_matrix_mut(2)?.column_mut(1)?)?;
        let mut sums = vec![0; rows];
        sum_rows_on_host(TileRef::new(&b, columns)?, TileMut::new(&mut sums, 1)?);
        let expected: Vec<_> = sums.into_iter().flat_map(|sum| [0, sum]).collect();
        assert_eq!(elements(&to), expected, "sum_rows, {rows} x {columns}");

        let weights = values(rows, 3.0);
        let mut z = wait(device.upload(&a))?;
        let last = columns - 1;
        accumulate(
            z.as_matrix_mut(columns)?.column_mut(last)?,
            &wait(device.upload(&weights))?,
            19,
        )?;
        let mut column: Vec<_> = a.iter().skip(last).step_by(columns).copied().collect();
        accumulate_on_host(TileMut::new(&mut column, 1)?, &weights, 19);
        let mut expected = a;
        for (row, x) in expected.chunks_mut(columns).zip(column) {
            row[last] = x;
        }
        assert_eq!(bits(&elements(&z)), bits(&expected), "accumulate, {rows} x {columns}");
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
