//! Hooks of the CUDA runtime: its own reports. What it allocates, it allocates through the driver.

pub(crate) mod info;
pub(crate) mod properties;
