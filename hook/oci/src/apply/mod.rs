//! Carries a plan out on the host: folders, the ledger, the driver's limit, the page cache.
//! Touches: /run/gpuslice, mounts, child processes.

mod bounded;
pub(crate) mod command;
pub(crate) mod container;
pub(crate) mod driver_limit;
pub(crate) mod host_dirs;
pub(crate) mod page;
pub mod page_cache;
pub mod seal;
