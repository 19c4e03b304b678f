//! Hooks of the CUDA driver.
//! Touches: the driver, then the account of the device.

pub(crate) mod array;
pub(crate) mod async_alloc;
pub(crate) mod capture;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod graph;
pub(crate) mod green;
pub(crate) mod growth;
pub(crate) mod info;
pub(crate) mod ipc;
pub(crate) mod memory;
pub(crate) mod pinned;
pub(crate) mod pool;
pub(crate) mod vdpau;
pub(crate) mod vmm;
