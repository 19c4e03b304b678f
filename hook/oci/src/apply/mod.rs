//! Carries a plan out on the host, around the container.

pub mod command;
pub(crate) mod container;
pub mod driver_limit;
pub mod host_dirs;
pub mod page_cache;
pub mod seal;
