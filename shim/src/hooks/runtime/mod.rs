//! Hooks of the CUDA runtime's own queries. Its allocations reach the hooks of the driver.

pub(crate) mod info;
pub(crate) mod properties;
