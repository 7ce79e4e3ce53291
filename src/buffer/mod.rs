//! Device and pinned memory, and who touches it when.

mod allocation;
mod cast;
mod cut;
mod device_buffer;
mod each;
mod from_vec;
mod frozen;
mod guards;
mod hazard;
mod host_access;
mod host_buffer;
mod host_copy;
mod into_vec;
mod into_view;
mod layout;
mod open;
mod part;
mod partition;
mod pieces;
mod pinned;
mod planes;
mod pod;
mod region;
mod region_map;
mod resize;
mod rows;
mod shape;
mod shared;
mod store;
mod tile;
mod tracked;
mod view;
mod volume;

pub(crate) use allocation::Allocation;
pub use cast::NotCast;
pub use device_buffer::DeviceBuffer;
pub(crate) use each::{
    for_device_slices, for_device_slices_mut, for_device_tiles, for_device_tiles_mut,
    for_device_volumes, for_device_volumes_mut, for_host_slices, for_host_slices_mut,
    for_host_tiles, for_host_tiles_mut, for_host_volumes, for_host_volumes_mut,
};
pub use from_vec::{FromVec, NotPinned};
pub(crate) use frozen::Frozen;
pub use guards::{HostMut, HostRef, Read, ReadTile, Write, WriteTile};
pub(crate) use hazard::{Access, Hazards, Mode, Notes};
pub use host_buffer::{HostBuffer, HostOptions};
pub use host_copy::{CopyOnHost, OnHost};
pub use into_vec::{IntoVec, NotUnpinned};
pub use into_view::{IntoDeviceSlice, IntoDeviceSliceMut, IntoDeviceTile, IntoDeviceTileMut};
pub(crate) use open::OpenState;
pub use part::{DevicePart, HostPart, NotDivided, NotRejoined};
pub use pieces::Pieces;
pub(crate) use planes::{Planes, Steps};
pub(crate) use pod::byte_len;
pub use resize::Resize;
pub use rows::{TileMut, TileRef};
pub(crate) use shape::{Extent, Shape};
pub use shared::SharedBuffer;
pub(crate) use store::{Backing, Place};
pub use tile::{DeviceTile, DeviceTileMut, HostTile, HostTileMut};
pub(crate) use tracked::{Memory, Tracked};
pub use view::{DeviceSlice, DeviceSliceMut, HostSlice, HostSliceMut};
pub use volume::{DeviceVolume, DeviceVolumeMut, HostVolume, HostVolumeMut};
