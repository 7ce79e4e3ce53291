//! Blocks of volumes, at random, against a loop.

use super::*;

/// A block of a volume on each side, of one shape.
#[derive(Clone, Debug)]
struct Blocks {
    /// Planes, rows and columns of each side's volume.
    volumes: [[usize; 3]; 2],
    /// Where the block begins in each.
    starts: [[usize; 3]; 2],
    shape: [usize; 3],
}

impl Blocks {
    fn ranges(&self, side: usize) -> [Range<usize>; 3] {
        std::array::from_fn(|i| self.starts[side][i]..self.starts[side][i] + self.shape[i])
    }

    fn indices(&self, side: usize) -> Vec<usize> {
        let [_, rows, columns] = self.volumes[side];
        indices_of_block(self.ranges(side), [rows, columns])
    }

    fn len(&self, side: usize) -> usize {
        self.volumes[side].iter().product()
    }
}

fn blocks() -> impl Strategy<Value = Blocks> {
    // What is before and behind the block in each direction, often nothing.
    let around = || prop_oneof![2 => Just(0_usize), 1 => 1..4_usize];
    let side = move || [[around(), around(), around()], [around(), around(), around()]];
    ([0..5_usize, 0..5_usize, 0..7_usize], side(), side()).prop_map(|(shape, from, to)| {
        let volume = |[before, behind]: &[[usize; 3]; 2]| {
            // One element at least, so that there is a volume.
            std::array::from_fn(|i| (before[i] + shape[i] + behind[i]).max(1))
        };
        Blocks { volumes: [volume(&from), volume(&to)], starts: [from[0], to[0]], shape }
    })
}

/// Both ways and within the device, and on the host.
fn copy_blocks<T: Pod>(device: &Device, blocks: &Blocks) -> Result<[Vec<T>; 4]> {
    let (from, to) = (values::<T>(blocks.len(0), 1), values::<T>(blocks.len(1), 101));
    let [[_, rows, columns], [_, to_rows, to_columns]] = blocks.volumes;
    let (x, host) = (device_buffer(device, &from), pinned_buffer(device, &from));
    let mut targets = (device_buffer(device, &to), device_buffer(device, &to));
    let mut on_host = (pinned_buffer(device, &to), pinned_buffer(device, &to));
    let ([p, r, c], [q, s, d]) = (blocks.ranges(0), blocks.ranges(1));
    let x = x.as_volume(rows, columns)?.block(p.clone(), r.clone(), c.clone())?;
    let host = host.as_volume(rows, columns)?.block(p, r, c)?;
    macro_rules! target {
        ($target:expr, $block:ident => $copy:expr) => {{
            let mut volume = $target.as_volume_mut(to_rows, to_columns)?;
            let mut $block = volume.block_mut(q.clone(), s.clone(), d.clone())?;
            $copy?;
        }};
    }
    target!(targets.0, block => block.copy_from(&x));
    target!(targets.1, block => block.copy_from(&host));
    target!(on_host.0, block => x.copy_to(&mut block));
    target!(on_host.1, block => wait(block.copy_from_host(&host)));
    let [in_0, in_1] = [pinned_elements(&on_host.0)?, pinned_elements(&on_host.1)?];
    Ok([elements(&targets.0), elements(&targets.1), in_0, in_1])
}

fn blocks_are_moved<T: Pod>(device: &Device, blocks: &Blocks) -> Result<(), TestCaseError> {
    let (from, mut expected) = (values::<T>(blocks.len(0), 1), values::<T>(blocks.len(1), 101));
    for (here, there) in blocks.indices(0).into_iter().zip(blocks.indices(1)) {
        expected[there] = from[here];
    }
    let copied = copy_blocks::<T>(device, blocks);
    for copied in copied.map_err(|error| TestCaseError::fail(error.to_string()))? {
        prop_assert_eq!(bytes_of(&copied), bytes_of(&expected));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 96,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn any_block_of_a_volume_is_copied_to_any_other_as_a_loop_does(blocks in blocks()) {
        let device = any_device();
        blocks_are_moved::<u32>(&device, &blocks)?;
        blocks_are_moved::<[u8; 3]>(&device, &blocks)?;
    }

    /// Blocks of one plane are tiles.
    #[test]
    fn any_tile_of_a_matrix_is_copied_to_any_other_as_a_loop_does(blocks in blocks()) {
        let [[planes, rows, columns], [to_planes, to_rows, to_columns]] = blocks.volumes;
        let blocks = Blocks {
            volumes: [[1, planes * rows, columns], [1, to_planes * to_rows, to_columns]],
            starts: blocks.starts.map(|[_, row, column]| [0, row, column]),
            shape: [1, blocks.shape[1], blocks.shape[2]],
        };
        let (device, [_, r, c], [_, s, d]) = (any_device(), blocks.ranges(0), blocks.ranges(1));
        let (from, mut expected) = (values::<u16>(blocks.len(0), 1), values(blocks.len(1), 101));
        let (x, mut y) = (device_buffer(&device, &from), device_buffer(&device, &expected));
        for (here, there) in blocks.indices(0).into_iter().zip(blocks.indices(1)) {
            expected[there] = from[here];
        }
        let source = x.as_matrix(columns).and_then(|x| x.tile(r, c)).expect("inside");
        let mut target = y.as_matrix_mut(to_columns).expect("a matrix");
        let mut target = target.tile_mut(s, d).expect("inside");
        target.copy_from(&source).expect("of one shape");
        prop_assert_eq!(elements(&y), expected);
    }
}
