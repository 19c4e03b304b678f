//! Hooks of NVIDIA's Vulkan driver.
//! Touches: the driver, then the account of the device.
//! Law: a device of another vendor, or that the slice does not limit, costs nothing: its functions
//! are the driver's own.

pub(crate) mod device;
mod devices;
pub(crate) mod export;
mod group;
pub(crate) mod heaps;
pub(crate) mod memory;
