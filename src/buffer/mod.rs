//! Device and pinned memory, and who touches it when.

mod allocation;
mod device_buffer;
mod guards;
mod hazard;
mod host_buffer;
mod pod;
mod region;
mod tracked;
mod view;

pub use device_buffer::DeviceBuffer;
pub use guards::{HostMut, HostRef, Read, Write};
pub(crate) use hazard::{Access, Hazards, Mode, Note};
pub use host_buffer::HostBuffer;
#[expect(unused_imports, reason = "views of parts are not offered yet")]
pub(crate) use region::Region;
pub(crate) use tracked::{Memory, Tracked};
pub use view::{DeviceSlice, DeviceSliceMut, IntoDeviceSlice, IntoDeviceSliceMut};
