use super::super::cut::FEW_PARTS;
use super::super::partition::count_looked_at;
use super::*;
use crate::random::SplitMix64;

/// A region within `bytes`: in one piece, or rows at one of a few distances.
fn any_region(random: &mut SplitMix64, bytes: usize) -> Region {
    let below = |random: &mut SplitMix64, n: usize| random.below(n as u64) as usize;
    let pitch = [3, 4, 6, 8, 12][below(random, 5)];
    if random.below(3) == 0 || pitch > bytes / 2 {
        let start = below(random, bytes);
        return Region::of_bytes(start..start + below(random, bytes - start + 1));
    }
    let row = 1 + below(random, pitch);
    let start = below(random, bytes.min(2 * pitch) - row + 1);
    let most = (bytes - start - row) / pitch + 1;
    let rows = if random.below(2) == 0 { most } else { 1 + below(random, most) };
    Region::of_rows(start, row, rows, pitch)
}

fn has(region: &Region, at: usize) -> bool {
    region.overlaps(&Region::of_bytes(at..at + 1))
}

fn holds_as(map: &RegionMap<u64>, model: &[u64]) {
    let mut count = 0;
    map.each_piece(|piece, _| {
        assert!(piece.start() < map.bytes);
        count += 1;
    });
    assert_eq!(map.pieces(), count);
    for (at, value) in model.iter().enumerate() {
        let Some((end, here)) = map.run_at(at) else { panic!("byte {at} of {map:?}") };
        assert_eq!(here, value, "byte {at} of {map:?}");
        assert!(end > at && model[at..end].iter().all(|other| other == value));
    }
}

#[test]
fn bytes_have_the_value_last_given_to_them_whatever_the_layout() {
    let mut random = SplitMix64::new(11);
    let (mut laid_out, mut taken_by_row, mut flattened) = (0, 0, 0);
    for _ in 0..600 {
        let bytes = 1 + random.below(90) as usize;
        let (mut map, mut model) = (RegionMap::new(bytes, 0), vec![0; bytes]);
        for _ in 0..20 {
            let before = map.layout();
            let region = any_region(&mut random, bytes);
            let (value, adds) = (1 + random.below(3), random.below(2) == 0);
            let change = |old: u64| if adds { (old + value) % 4 } else { value };
            let mut seen = vec![0; bytes];
            map.edit(&region, |piece, old| {
                (0..bytes).filter(|at| has(&piece, *at)).for_each(|at| {
                    assert_eq!(model[at], *old);
                    seen[at] += 1;
                });
                *old = change(*old);
            });
            for at in 0..bytes {
                assert_eq!(seen[at], usize::from(has(&region, at)), "byte {at} of {region:?}");
                if seen[at] > 0 {
                    model[at] = change(model[at]);
                }
            }
            laid_out += usize::from(map.layout() != before && !map.layout().is_flat());
            taken_by_row += usize::from(map.layout().parts(&region) > FEW_PARTS);
            holds_as(&map, &model);
            if random.below(6) == 0 {
                let (before, pieces) = (map.layout(), map.pieces());
                let at_most = random.below(4);
                map.compact(|value| *value = (*value).min(at_most));
                model.iter_mut().for_each(|value| *value = (*value).min(at_most));
                flattened += usize::from(map.layout() != before);
                assert!(map.pieces() <= pieces);
                holds_as(&map, &model);
            }
            let asked = any_region(&mut random, bytes);
            let mut firsts = vec![None; 4];
            map.visit(&asked, |first, value| {
                assert!(has(&asked, first) && model[first] == *value);
                let known = &mut firsts[*value as usize];
                *known = Some(known.map_or(first, |known: usize| known.min(first)));
            });
            for (value, first) in firsts.into_iter().enumerate() {
                let expected = (0..bytes).find(|at| has(&asked, *at) && model[*at] == value as u64);
                assert_eq!(first, expected, "{value} in {asked:?} of {map:?}");
            }
        }
    }
    let all = [laid_out, taken_by_row, flattened];
    assert!(all.iter().all(|count| *count > 500), "{all:?}");
}

/// How many pieces a look at each of `regions` and a change of it look at, at most, when all have
/// a value of their own.
fn most_looked_at(bytes: usize, regions: &[Region]) -> (usize, usize, usize) {
    let mut map = RegionMap::new(bytes, 0);
    let mut random = SplitMix64::new(2);
    let mut order: Vec<_> = (0..regions.len()).collect();
    (1..order.len()).for_each(|i| order.swap(i, random.below(i as u64 + 1) as usize));
    let (mut visited, mut edited) = (0, 0);
    for i in &order {
        map.edit(&regions[*i], |_, value| *value = 1 + i);
    }
    for i in &order {
        let (region, mut met) = (&regions[*i], Vec::new());
        visited = visited.max(count_looked_at(|| map.visit(region, |_, value| met.push(*value))));
        assert_eq!(met, [1 + i]);
        edited = edited.max(count_looked_at(|| map.edit(region, |_, value| *value += 10_000)));
        edited = edited.max(count_looked_at(|| map.edit(region, |_, value| *value -= 10_000)));
    }
    (visited, edited, map.pieces())
}

#[test]
fn one_of_a_thousand_ranges_is_found_and_changed_looking_at_few() {
    let ranges: Vec<_> = (0..1_000).map(|i| Region::of_bytes(100 * i..100 * i + 100)).collect();
    let (visited, edited, pieces) = most_looked_at(100_000, &ranges);
    assert!(visited <= 2 && edited <= 12, "{visited} and {edited}");
    assert_eq!(pieces, 1_000);
}

#[test]
fn one_of_a_thousand_columns_is_found_and_changed_looking_at_few() {
    let columns: Vec<_> = (0..1_000).map(|i| Region::of_rows(4 * i, 4, 500, 4_000)).collect();
    let (visited, edited, pieces) = most_looked_at(2_000_000, &columns);
    assert!(visited <= 4 && edited <= 12, "{visited} and {edited}");
    assert_eq!(pieces, 1_000);
}

#[test]
fn one_of_a_thousand_tiles_is_found_and_changed_looking_at_few() {
    let at = |i: usize, j: usize| Region::of_rows(25 * i * 3_200 + 100 * j, 100, 25, 3_200);
    let tiles: Vec<_> = (0..1_024).map(|i| at(i / 32, i % 32)).collect();
    let (visited, edited, pieces) = most_looked_at(32 * 25 * 3_200, &tiles);
    assert!(visited <= 4 && edited <= 12, "{visited} and {edited}");
    assert_eq!(pieces, 1_024);
}

#[test]
fn a_change_between_a_thousand_ranges_looks_at_few() {
    let mut map = RegionMap::new(100_000, 0);
    for i in 0..1_000 {
        map.edit(&Region::of_bytes(100 * i..100 * i + 100), |_, value| *value = 1 + i);
    }
    let between = Region::of_bytes(50_050..50_250);
    let edited = count_looked_at(|| map.edit(&between, |_, value| *value = 9_999));
    assert!(edited <= 16, "{edited}");
    assert_eq!(map.pieces(), 1_000);
}

#[test]
fn a_column_is_looked_up_in_one_piece_at_once_however_many_rows_it_has() {
    let mut map = RegionMap::new(1 << 40, 0);
    let column = Region::of_rows(16, 4, 1 << 30, 1 << 10);
    assert_eq!(count_looked_at(|| map.visit(&column, |_, _| {})), 0);
    map.edit(&Region::of_bytes(0..20), |_, value| *value = 1);
    let mut met = Vec::new();
    assert!(count_looked_at(|| map.visit(&column, |first, value| met.push((first, *value)))) <= 4);
    met.sort_unstable();
    assert_eq!(met, [(16, 1), (1040, 0)]);
}

#[test]
fn rows_at_other_distances_take_few_pieces_where_one_divides_the_other() {
    let bytes = 1 << 20;
    let mut map = RegionMap::new(bytes, 0);
    for i in 0..8 {
        map.edit(&Region::of_rows(64 * i, 64, 1 << 10, 1 << 10), |_, value| *value = 1 + i);
    }
    // Rows of half the length: two of them in one of the others.
    map.edit(&Region::of_rows(256, 128, 1 << 11, 1 << 9), |_, value| *value = 20);
    assert!(map.pieces() <= 12, "{}", map.pieces());
    // Rows of four times the length.
    map.edit(&Region::of_rows(0, 64, 1 << 8, 1 << 12), |_, value| *value = 21);
    assert!(map.pieces() <= 48, "{}", map.pieces());
}

#[test]
fn all_is_one_row_again_when_no_column_is_told_apart() {
    let bytes = 1 << 20;
    let mut map = RegionMap::new(bytes, 0);
    let column = |i: usize| Region::of_rows(4 * i, 4, 1 << 10, 1 << 10);
    (0..256).for_each(|i| map.edit(&column(i), |_, value| *value = 1 + i));
    map.edit(&Region::of_bytes(1_000..5_000), |_, value| *value = 1_000);
    assert!(!map.layout().is_flat());
    map.compact(|value| *value = if *value == 1_000 { 1 } else { 0 });
    assert!(map.layout().is_flat());
    assert_eq!(map.pieces(), 3);
    (0..256).for_each(|i| map.edit(&column(i), |_, value| *value = 1 + i));
    map.edit(&Region::of_bytes(0..bytes), |_, value| *value = 7);
    assert!(map.layout().is_flat() && map.pieces() == 1);
}

#[test]
fn columns_are_told_apart_cheaply_among_many_ranges() {
    let bytes = 1 << 20;
    let mut map = RegionMap::new(bytes, 0);
    for i in 0..1_000 {
        map.edit(&Region::of_bytes(1_024 * i..1_024 * (i + 1)), |_, value| *value = 1 + i);
    }
    // They meet all of them.
    for i in 0..64 {
        map.edit(&Region::of_rows(4 * i, 4, 1_000, 1_024), |_, value| *value = 5_000 + i);
    }
    assert!(map.pieces() <= 1_200, "{}", map.pieces());
}

/// What `edit` hands out, given back in either order.
#[test]
fn what_a_change_of_all_bytes_replaced_can_be_put_back() {
    let mut random = SplitMix64::new(11);
    let mut cut = 0;
    for _ in 0..20_000 {
        // A last row as long as the others, or shorter; as many bytes as some columns have places.
        let (pitch, rows) = (2 + random.below(6) as usize, 1 + random.below(6) as usize);
        let bytes = if random.below(2) == 0 {
            1 + random.below(40) as usize
        } else {
            (1 + random.below(pitch as u64 - 1) as usize) * rows
        };
        let mut map = RegionMap::new(bytes, 0);
        for value in 1..1 + random.below(6) {
            map.edit(&any_region(&mut random, bytes), |_, old| *old = value);
        }
        map.compact(|value| *value %= 3);
        cut += usize::from(map.pieces() > 1);
        let values: Vec<_> = (0..bytes).filter_map(|at| Some(*map.run_at(at)?.1)).collect();
        let mut replaced = Vec::new();
        map.edit(&Region::of_bytes(0..bytes), |region, value| {
            replaced.push((region, std::mem::replace(value, 100)));
        });
        map.compact(|_| {});
        assert_eq!(map.pieces(), 1);
        if random.below(2) == 0 {
            replaced.reverse();
        }
        for (region, value) in replaced {
            map.edit(&region, |_, now| {
                assert_eq!(*now, 100, "in two of what was handed out");
                *now = value;
            });
        }
        holds_as(&map, &values);
    }
    assert!(cut > 5_000, "{cut}");
}
