//! Memory as elements of another type: the same bytes, the same order of who touches them.

use headwater::{DeviceBuffer, Error, HostBuffer, Pod, Result};

use crate::common::{
    any_device, device_buffer, elements, last_waits, own_device, pinned_buffer, run_to_end, sim,
    stepped, wait,
};
use crate::kernels::increment;

/// A value of 12 bytes, aligned to 4.
const THREE: [u32; 3] = [0x0302_0100, 0x0706_0504, 0x0b0a_0908];

fn counted(bytes: u8) -> Vec<u8> {
    (0..bytes).collect()
}

#[test]
fn a_buffer_that_was_cast_has_the_same_bytes_and_no_call_is_made_for_it() -> Result<()> {
    let device = own_device();
    let (x, host) = (device_buffer(&device, &counted(24)), pinned_buffer(&device, &counted(24)));
    let before = device.driver_calls();
    let mut x = x.cast::<[u32; 3]>().map_err(|refused| refused.error)?;
    let mut host = host.cast::<[u32; 3]>().map_err(|refused| refused.error)?;
    assert_eq!((device.driver_calls(), x.len(), host.len()), (before, 2, 2));
    assert_eq!(wait(host.read())?[0], THREE);
    x.slice_mut(1..)?.fill(THREE)?;
    host.slice_mut(1..)?.copy_from(&x.slice(..1)?)?;
    assert_eq!(elements(&x), [THREE; 2]);
    wait(host.read())?;
    let back = |error| panic!("{error:?}");
    let x: DeviceBuffer<u8> = x.cast().unwrap_or_else(back);
    let host: HostBuffer<u8> = host.cast().unwrap_or_else(|error| panic!("{error:?}"));
    assert_eq!(elements(&x), [counted(12), counted(12)].concat());
    assert_eq!(*wait(host.read())?, elements(&x));
    Ok(())
}

#[test]
fn a_slice_is_cast_from_where_it_begins() -> Result<()> {
    let device = any_device();
    let mut x = device_buffer(&device, &counted(64));
    // 12 bytes an element, from byte 4 on, which is no multiple of that.
    let threes = x.slice(4..28)?.cast::<[u32; 3]>()?;
    assert_eq!(threes.len(), 2);
    let second = wait(threes.slice(1..)?.cast::<u8>()?.to_vec())?;
    assert_eq!(second, (16..28).collect::<Vec<_>>());
    let words = wait(threes.cast::<u32>()?.as_matrix(3)?.column(1)?.to_vec())?;
    assert_eq!(words, [0x0b0a_0908, 0x1716_1514]);
    increment(x.slice_mut(8..16)?.cast_mut::<u32>()?.slice_mut(1..)?)?;
    let mut expected = counted(64);
    expected[12] += 1;
    x.slice_mut(33..39)?.cast_mut::<[u8; 3]>()?.fill([9; 3])?;
    expected[33..39].fill(9);
    assert_eq!(elements(&x), expected);

    let mut host = pinned_buffer(&device, &counted(64));
    assert_eq!(wait(host.slice(8..16)?.cast::<u64>()?.read())?[..], [0x0f0e_0d0c_0b0a_0908]);
    wait(host.slice_mut(8..16)?.cast_mut::<u32>()?.slice_mut(1..)?.write())?[0] = 0;
    assert_eq!(wait(host.slice(10..18)?.read())?[..], [10, 11, 0, 0, 0, 0, 16, 17]);
    let parts = host.into_parts(2).map_err(|refused| refused.error)?;
    assert_eq!(wait(parts[1].cast::<[u8; 4]>()?.read())?[0], [32, 33, 34, 35]);
    Ok(())
}

#[test]
fn what_is_cast_is_ordered_by_its_bytes() -> Result<()> {
    let device = stepped();
    let sim = sim(&device);
    let mut x = device_buffer(&device, &counted(64));
    let beside = device_buffer(&device, &[0u32; 3]);
    device.stream().in_scope(|| x.slice_mut(4..16)?.cast_mut::<[u32; 3]>()?.fill([0; 3]))?;
    device.stream().in_scope(|| x.slice_mut(16..28)?.cast_mut()?.copy_from(&beside))?;
    assert!(!last_waits(sim), "they meet, and have no byte in common");
    device.stream().in_scope(|| x.slice_mut(..4)?.fill(1))?;
    assert!(!last_waits(sim), "it ends where the others begin");
    device.stream().in_scope(|| x.slice_mut(27..29)?.cast_mut::<u8>()?.fill(1))?;
    assert!(last_waits(sim), "byte 27 is of an element of 12 bytes");
    run_to_end(&device);
    Ok(())
}

fn refused<V>(cast: Result<V>) -> (usize, usize) {
    match cast.map(drop) {
        Err(Error::NotElements { bytes, element_size, .. }) => (bytes, element_size),
        Err(Error::Misaligned { offset, align, .. }) => (offset, align),
        other => panic!("{other:?}"),
    }
}

#[test]
fn bytes_that_are_no_elements_of_the_other_type_are_refused_with_both_numbers() -> Result<()> {
    let device = any_device();
    let mut x = device_buffer(&device, &counted(30));
    assert_eq!(refused(x.slice(..)?.cast::<u32>()), (30, 4));
    assert_eq!(refused(x.slice(2..22)?.cast::<u32>()), (2, 4));
    assert_eq!(refused(x.slice_mut(4..20)?.cast_mut::<u64>()), (4, 8));
    assert_eq!(refused(x.cast_mut::<[u8; 7]>()), (30, 7));
    assert_eq!(refused(x.slice(1..1)?.cast::<u16>()), (1, 2)); // there is no such empty slice either
    let halves = x.slice(2..26)?.cast::<[u16; 3]>()?;
    assert_eq!(refused(halves.slice(1..)?.cast::<[u32; 3]>()), (18, 12));
    assert_eq!(refused(halves.slice(3..)?.cast::<[u32; 3]>()), (6, 12));
    let mut host = pinned_buffer(&device, &counted(30));
    assert_eq!(refused(host.slice(..)?.cast::<u32>()), (30, 4));
    assert_eq!(refused(host.slice_mut(2..22)?.cast_mut::<u32>()), (2, 4));
    Ok(())
}

#[test]
fn a_buffer_that_cannot_be_cast_comes_back() -> Result<()> {
    let device = any_device();
    let x = device_buffer(&device, &counted(30));
    let refused = x.cast::<u32>().expect_err("7 words and a half");
    assert!(refused.to_string().contains("30 bytes"), "{refused}");
    assert_eq!(elements(&refused.buffer), counted(30));
    let refused = pinned_buffer(&device, &counted(30)).cast::<u32>().expect_err("as well");
    assert_eq!(*wait(refused.buffer.read())?, counted(30));
    let shared = device_buffer(&device, &counted(30)).into_shared();
    let refused = shared.cast::<u32>().expect_err("as well");
    assert_eq!(wait(refused.buffer.to_vec())?, counted(30));
    Ok(())
}

#[test]
fn one_handle_of_shared_memory_is_cast_and_the_others_are_not() -> Result<()> {
    let device = any_device();
    let bytes = device_buffer(&device, &counted(24)).into_shared();
    let words = bytes.clone().cast::<[u32; 3]>().map_err(|refused| refused.error)?;
    assert_eq!((bytes.len(), words.len(), words.clone().len()), (24, 2, 2));
    assert_eq!(wait(words.slice(..1)?.to_vec())?, [THREE]);
    assert_eq!(wait(bytes.slice(20..)?.to_vec())?, [20, 21, 22, 23]);
    drop(bytes);
    let words = words.try_into_buffer().expect("the last handle");
    assert_eq!((words.len(), elements(&words)[0]), (2, THREE));
    let parts = words.into_parts(2).map_err(|refused| refused.error)?;
    assert_eq!(wait(parts[1].to_vec())?.len(), 1);
    Ok(())
}

#[test]
fn elements_without_bytes_are_cast_to_as_many_of_their_kind_and_to_none_with_bytes() -> Result<()> {
    fn len<U: Pod, T: Pod>(buffer: DeviceBuffer<T>) -> usize {
        buffer.cast::<U>().map_err(|refused| refused.error).expect("defined").len()
    }
    let device = any_device();
    assert_eq!(len::<[u64; 0], _>(device.alloc::<()>(5)?), 5);
    assert_eq!(len::<u32, _>(device.alloc::<()>(5)?), 0);
    assert_eq!(len::<(), _>(device.alloc::<u32>(0)?), 0);
    let x = device_buffer(&device, &counted(8));
    assert_eq!(x.slice(3..3)?.cast::<()>()?.len(), 0);
    assert_eq!(refused(x.slice(..3)?.cast::<()>()), (3, 0));
    Ok(())
}
