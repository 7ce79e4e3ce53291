//! The types that are memory of one kind in one shape, listed once: each has the same methods,
//! which a macro writes for all of a list.
//!
//! A list calls `$with! { arguments… types… }`. A type comes as `[generics] Type, 'lifetime;`, where
//! the lifetime is that of what is borrowed from it.

/// Device memory in one piece, to read.
macro_rules! for_device_slices {
    ($with:ident! { $($arguments:tt)* }) => { $with! { $($arguments)*
        ['a, T: Pod] DeviceSlice<'a, T>, 'a;
        [T: Pod] DeviceSliceMut<'_, T>, '_;
        [T: Pod] DeviceBuffer<T>, '_;
        [T: Pod] DevicePart<T>, '_;
        [T: Pod] SharedBuffer<T>, '_;
    } };
}

/// Device memory in one piece, to write.
macro_rules! for_device_slices_mut {
    ($with:ident! { $($arguments:tt)* }) => { $with! { $($arguments)*
        [T: Pod] DeviceSliceMut<'_, T>, '_;
        [T: Pod] DeviceBuffer<T>, '_;
        [T: Pod] DevicePart<T>, '_;
    } };
}

/// Pinned memory in one piece, to read.
macro_rules! for_host_slices {
    ($with:ident! { $($arguments:tt)* }) => { $with! { $($arguments)*
        ['a, T: Pod] HostSlice<'a, T>, 'a;
        [T: Pod] HostSliceMut<'_, T>, '_;
        [T: Pod] HostBuffer<T>, '_;
        [T: Pod] HostPart<T>, '_;
    } };
}

/// Pinned memory in one piece, to write.
macro_rules! for_host_slices_mut {
    ($with:ident! { $($arguments:tt)* }) => { $with! { $($arguments)*
        [T: Pod] HostSliceMut<'_, T>, '_;
        [T: Pod] HostBuffer<T>, '_;
        [T: Pod] HostPart<T>, '_;
    } };
}

/// Device memory in rows, to read.
macro_rules! for_device_tiles {
    ($with:ident! { $($arguments:tt)* }) => { $with! { $($arguments)*
        ['a, T: Pod] DeviceTile<'a, T>, 'a;
        [T: Pod] DeviceTileMut<'_, T>, '_;
    } };
}

/// Device memory in rows, to write.
macro_rules! for_device_tiles_mut {
    ($with:ident! { $($arguments:tt)* }) => { $with! { $($arguments)*
        [T: Pod] DeviceTileMut<'_, T>, '_;
    } };
}

/// Pinned memory in rows, to read.
macro_rules! for_host_tiles {
    ($with:ident! { $($arguments:tt)* }) => { $with! { $($arguments)*
        ['a, T: Pod] HostTile<'a, T>, 'a;
        [T: Pod] HostTileMut<'_, T>, '_;
    } };
}

/// Pinned memory in rows, to write.
macro_rules! for_host_tiles_mut {
    ($with:ident! { $($arguments:tt)* }) => { $with! { $($arguments)*
        [T: Pod] HostTileMut<'_, T>, '_;
    } };
}

/// Device memory in planes, to read.
macro_rules! for_device_volumes {
    ($with:ident! { $($arguments:tt)* }) => { $with! { $($arguments)*
        ['a, T: Pod] DeviceVolume<'a, T>, 'a;
        [T: Pod] DeviceVolumeMut<'_, T>, '_;
    } };
}

/// Device memory in planes, to write.
macro_rules! for_device_volumes_mut {
    ($with:ident! { $($arguments:tt)* }) => { $with! { $($arguments)*
        [T: Pod] DeviceVolumeMut<'_, T>, '_;
    } };
}

/// Pinned memory in planes, to read.
macro_rules! for_host_volumes {
    ($with:ident! { $($arguments:tt)* }) => { $with! { $($arguments)*
        ['a, T: Pod] HostVolume<'a, T>, 'a;
        [T: Pod] HostVolumeMut<'_, T>, '_;
    } };
}

/// Pinned memory in planes, to write.
macro_rules! for_host_volumes_mut {
    ($with:ident! { $($arguments:tt)* }) => { $with! { $($arguments)*
        [T: Pod] HostVolumeMut<'_, T>, '_;
    } };
}

pub(crate) use {
    for_device_slices, for_device_slices_mut, for_device_tiles, for_device_tiles_mut,
    for_device_volumes, for_device_volumes_mut, for_host_slices, for_host_slices_mut,
    for_host_tiles, for_host_tiles_mut, for_host_volumes, for_host_volumes_mut,
};
