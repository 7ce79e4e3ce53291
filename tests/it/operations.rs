//! Copies, fills and launches: their bytes, and what is refused.

use std::sync::Arc;

use headwater::{Completion, Device, Error, KernelError, Pod, Result};

use crate::common::{
    any_device, device_buffer, eager, elements, own_device, pinned_buffer, poll_once, wait,
};
use crate::kernels::pipeline::{set_value, work, work_on_host};
use crate::kernels::{add, copy_u32, increment, trap};

fn filled<T: Pod + PartialEq + std::fmt::Debug>(device: &Device, value: T) -> Result<()> {
    for len in [1, 2, 3, 255, 1_000] {
        let mut x = device.alloc::<T>(len)?;
        x.fill(value)?;
        assert_eq!(elements(&x), vec![value; len]);
    }
    Ok(())
}

#[test]
fn a_fill_sets_every_element_whatever_its_size() -> Result<()> {
    let device = any_device();
    filled(&device, 0xA5u8)?;
    filled(&device, 0xA5B6u16)?;
    filled(&device, 0xA5B6_C7D8u32)?;
    filled(&device, -1.5f32)?;
    filled(&device, 0x0123_4567_89AB_CDEFu64)?;
    filled(&device, 1.0e300f64)?;
    filled(&device, 0x0123_4567_89AB_CDEF_0011_2233_4455_6677u128)?;
    filled(&device, [1u8, 2, 3])?;
    filled(&device, [1u16, 2, 3])?;
    filled(&device, [1u32, 2, 3])
}

#[test]
fn a_fill_of_a_repeating_value_is_one_call() -> Result<()> {
    let device = own_device();
    let calls = |fill: &dyn Fn() -> Result<Completion>| {
        let before = device.driver_calls().expect("counted");
        fill()?;
        let now = device.driver_calls().expect("counted");
        Ok::<_, Error>(now.since(&before).fills)
    };
    let count = |value: u64| calls(&|| device.alloc::<u64>(100)?.fill(value));
    assert_eq!(count(0)?, 1);
    assert_eq!(count(0x0101_0101_0101_0101)?, 1);
    assert_eq!(count(0x1234_5678_1234_5678)?, 1);
    assert_eq!(count(0x1234_5678_8765_4321)?, 2);
    Ok(())
}

#[test]
fn zeros_are_zero_and_new_memory_is_not_readable() -> Result<()> {
    let device = any_device();
    assert_eq!(elements(&device.zeros::<f64>(1_000)?), [0.0; 1_000]);
    let unread = wait(device.alloc::<f64>(1_000)?.to_vec());
    assert!(matches!(unread, Err(Error::Uninitialised { .. })), "{unread:?}");
    Ok(())
}

#[test]
fn uploads_and_downloads_carry_the_bytes() -> Result<()> {
    let device = any_device();
    for len in [1usize, 7, 1_000, 1 << 18] {
        let data: Vec<u64> =
            (0..len as u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        let x = wait(device.upload(&data))?;
        assert_eq!((x.len(), x.is_empty()), (len, false));
        assert!(elements(&x) == data, "{len} elements");
    }
    Ok(())
}

#[test]
fn copies_carry_the_bytes_in_every_direction() -> Result<()> {
    let device = any_device();
    let data: Vec<u32> = (0..1_000).collect();
    let up = pinned_buffer(&device, &data);
    let mut x = device.alloc::<u32>(1_000)?;
    let mut y = device.alloc::<u32>(1_000)?;
    let mut z = device.alloc::<u32>(1_000)?;
    let mut down = device.alloc_host::<u32>(1_000)?;
    up.copy_to(&mut x)?;
    y.copy_from(&x)?;
    y.copy_to(&mut z)?;
    down.copy_from(&z)?;
    assert_eq!(*wait(down.read())?, *data);
    Ok(())
}

#[test]
fn kernels_compute_what_their_twins_do() -> Result<()> {
    let device = any_device();
    let a: Vec<f32> = (0..1_000).map(|i| i as f32 * 0.37 - 11.0).collect();
    let x = device_buffer(&device, &a);
    let mut sum = device.alloc::<f32>(1_000)?;
    let mut out = device.alloc::<f32>(1_000)?;
    add(&x, &x, &mut sum)?;
    work(&sum, &mut out, 33)?;
    let doubled: Vec<f32> = a.iter().map(|x| x + x).collect();
    let mut expected = vec![0.0; 1_000];
    work_on_host(&doubled, &mut expected, 33);
    let bits = |x: Vec<f32>| x.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    assert_eq!(bits(elements(&out)), bits(expected));
    Ok(())
}

#[test]
fn nothing_is_done_where_there_is_nothing_to_do() -> Result<()> {
    let device = own_device();
    let before = device.driver_calls();
    let mut x = device.alloc::<u32>(0)?;
    let mut y = device.zeros::<u32>(0)?;
    let mut pinned = device.alloc_host::<u32>(0)?;
    let completions = [
        x.fill(1)?,
        increment(&mut x)?,
        copy_u32(&x, &mut y)?,
        x.copy_from(&y)?,
        x.copy_to(&mut pinned)?,
        y.copy_from(&pinned)?,
    ];
    for mut completion in completions {
        assert!(completion.is_finished()?);
        assert!(poll_once(&mut completion).is_ready());
    }
    assert_eq!(*pinned.try_read()?, []);
    assert_eq!(*wait(pinned.write())?, []);
    assert_eq!(*pinned.blocking_read()?, []);
    assert_eq!(wait(x.to_vec())?, []);
    assert!(wait(device.upload::<u32>([]))?.is_empty());
    // Elements without bytes are none to the device either.
    let unit = wait(device.upload(vec![(); 5]))?;
    assert_eq!((unit.len(), wait(unit.to_vec())?.len()), (5, 5));
    assert_eq!(device.driver_calls(), before);
    Ok(())
}

#[test]
fn lengths_that_differ_are_refused() -> Result<()> {
    let device = any_device();
    let three = device.zeros::<u32>(3)?;
    let pinned_three = pinned_buffer(&device, &[0u32; 3]);
    let none = device.alloc::<u32>(0)?;
    let mut four = device_buffer(&device, &[1u32; 4]);
    let mut pinned_four = pinned_buffer(&device, &[1u32; 4]);
    for (refused, lengths) in [
        (four.copy_from(&three), (3, 4)),
        (four.copy_from(&pinned_three), (3, 4)),
        (four.copy_from(&none), (0, 4)),
        (three.copy_to(&mut pinned_four), (3, 4)),
        (pinned_four.copy_from(&three), (3, 4)),
        (pinned_three.copy_to(&mut four), (3, 4)),
    ] {
        let Err(Error::LengthMismatch { source_len, destination_len, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!((source_len, destination_len), lengths);
    }
    assert_eq!(elements(&four), [1; 4]);
    assert_eq!(*pinned_four.try_read()?, [1; 4]);
    Ok(())
}

#[test]
fn memory_of_another_device_is_refused_and_both_are_named() -> Result<()> {
    let [one, two] = [eager(), eager()];
    let x = device_buffer(&one, &[1u32; 64]);
    let mut y = device_buffer(&two, &[2u32; 64]);
    let mut pinned = pinned_buffer(&two, &[3u32; 64]);
    for refused in [copy_u32(&x, &mut y), y.copy_from(&x), x.copy_to(&mut pinned)] {
        let Err(Error::WrongDevice { of, on, .. }) = refused else { panic!("{refused:?}") };
        let mut named = [of, on];
        named.sort_unstable();
        assert_eq!(named, [one.number(), two.number()]);
    }
    // A scope of another device changes nothing.
    two.stream().in_scope(|| increment(&mut device_buffer(&one, &[1u32; 64])))?;
    assert_eq!((elements(&y), &*pinned.try_read()?), (vec![2; 64], &[3; 64][..]));
    Ok(())
}

#[test]
fn what_a_kernel_requires_is_checked_before_anything_is_enqueued() -> Result<()> {
    let device = own_device();
    let x = device_buffer(&device, &[1u32; 3]);
    let mut y = device_buffer(&device, &[2u32; 4]);
    let before = device.driver_calls();
    let refused = copy_u32(&x, &mut y);
    let Err(Error::Kernel(KernelError::Requirement {
        kernel: "copy_u32", condition, given, ..
    })) = refused
    else {
        panic!("{refused:?}");
    };
    assert_eq!(condition.replace(' ', ""), "from.len()==to.len()");
    assert_eq!(given, [("from.len()", 3), ("to.len()", 4)]);
    assert_eq!(device.driver_calls(), before);
    assert_eq!(elements(&y), [2; 4]);
    Ok(())
}

#[headwater::kernels(ptx = include_str!("../../kernels/probe.ptx"))]
#[allow(unsafe_code, reason = "declaring a kernel vouches for it")]
// SAFETY: thread i < n touches element i of the slice, whose length is n. `wide` is asked for no row
// of blocks or for more than any device takes, so no two threads are the same i; the last two do not
// match the module and cannot be launched.
unsafe extern "C" {
    #[launch(grid = (1, grid_y), block = 256, entry = "increment")]
    #[args(x, x.len() as u32)]
    #[twin(increment_in_grid)]
    safe fn wide(x: &mut [u32], grid_y: u32);

    #[launch(grid = 1, block = block, entry = "increment")]
    #[args(x, x.len() as u32)]
    #[twin(increment_in_grid)]
    safe fn thick(x: &mut [u32], block: u32);

    #[launch(grid = 1, block = 256, entry = "not_in_the_module")]
    #[args(x, x.len() as u32)]
    safe fn missing(x: &mut [u32]);

    #[launch(grid = 1, block = 256, entry = "copy_u32")]
    #[args(x, x.len() as u32)]
    safe fn misdeclared(x: &mut [u32]);
}

fn increment_in_grid(x: &mut [u32], _: u32) {
    crate::kernels::increment_on_host(x);
}

#[test]
fn a_geometry_that_the_device_does_not_take_is_refused_with_its_limits() -> Result<()> {
    let device = own_device();
    let mut x = device_buffer(&device, &[0u32; 64]);
    let before = device.driver_calls();
    let refused = wide(&mut x, 65_536);
    let Err(Error::Kernel(KernelError::Geometry { kernel: "wide", given, allowed, .. })) = refused
    else {
        panic!("{refused:?}");
    };
    assert_eq!((given[1], allowed[1]), (65_536, 65_535));
    for block in [0, 1_025, u32::MAX] {
        let refused = thick(&mut x, block);
        assert!(
            matches!(refused, Err(Error::Kernel(KernelError::Geometry { kernel: "thick", .. }))),
            "{refused:?}"
        );
    }
    assert!(wide(&mut x, 0)?.is_finished()?, "no blocks: nothing to do");
    assert_eq!(device.driver_calls(), before);
    thick(&mut x, 64)?;
    assert_eq!(elements(&x), [1; 64]);
    Ok(())
}

#[test]
fn a_kernel_that_is_not_what_it_was_declared_as_cannot_be_launched() -> Result<()> {
    let device = any_device();
    let mut x = device_buffer(&device, &[0u32; 64]);
    match missing(&mut x) {
        Err(Error::Kernel(KernelError::NoSuchKernel {
            kernel: "missing", entry, found, ..
        })) => {
            assert_eq!(entry, "not_in_the_module");
            assert!(found.iter().any(|name| name == "increment"), "{found:?}");
        }
        other => panic!("{other:?}"),
    }
    match misdeclared(&mut x) {
        Err(Error::Kernel(KernelError::SignatureMismatch {
            kernel: "misdeclared",
            declared,
            found,
            ..
        })) => {
            assert_eq!((&*declared, &*found), (&[8, 4][..], &[8, 8, 4][..]));
        }
        other => panic!("{other:?}"),
    }
    increment(&mut x)?;
    assert_eq!(elements(&x), [1; 64]);
    Ok(())
}

#[test]
fn more_than_there_is_or_can_be_addressed_is_refused() -> Result<()> {
    let device = own_device();
    let most = device.info().total_memory as usize;
    let allocs = || device.driver_calls().expect("counted").allocs;
    let before = allocs();
    let refused = device.alloc::<u8>(most + 1);
    assert!(
        matches!(refused, Err(Error::OutOfMemory { requested, .. }) if requested == most as u64 + 1)
    );
    assert!(matches!(device.alloc::<u64>(usize::MAX), Err(Error::TooLarge { .. })));
    assert!(matches!(device.alloc_host::<u64>(usize::MAX), Err(Error::TooLarge { .. })));
    assert_eq!(allocs(), before, "the driver was asked, which takes all there is for a moment");
    assert_eq!(elements(&device.zeros::<u32>(4)?), [0; 4]);
    Ok(())
}

#[test]
fn values_of_a_kernel_that_fills_need_not_be_written_before() -> Result<()> {
    let device = any_device();
    let mut x = device.alloc::<f32>(100)?;
    set_value(&mut x, 2.5)?;
    assert_eq!(elements(&x), [2.5; 100]);
    Ok(())
}

#[test]
fn a_fill_that_would_take_many_calls_is_refused() -> Result<()> {
    let device = own_device();
    let mut x = device.alloc::<[u32; 17]>(8)?;
    let mut wide = [0; 17];
    wide[3] = 1;
    let refused = x.fill(wide);
    let Err(Error::FillTooWide { element_size, calls, most, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!((element_size, calls, most), (68, 17, 16));
    x.fill([9; 17])?;
    assert_eq!(elements(&x), [[9; 17]; 8]);
    Ok(())
}

#[test]
fn a_kernel_without_a_twin_is_refused_by_a_simulated_device_with_the_reason() -> Result<()> {
    let device = eager();
    let mut x = device.zeros::<u32>(4)?;
    let refused = trap(&mut x).map(drop);
    assert!(
        matches!(refused, Err(Error::Kernel(KernelError::NoTwin { kernel: "trap", .. }))),
        "{refused:?}"
    );
    assert_eq!(elements(&x), [0; 4]);
    Ok(())
}

#[test]
fn a_buffer_that_is_only_read_is_shared_by_an_arc() -> Result<()> {
    let device = any_device();
    let weights = Arc::new(device_buffer(&device, &[7u32; 64]));
    let mut x = device.alloc(64)?;
    copy_u32(&weights, &mut x)?;
    assert_eq!(elements(&x), [7; 64]);
    Ok(())
}
