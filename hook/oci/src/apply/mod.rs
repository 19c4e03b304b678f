//! Carries a plan out on the host, around the container.

pub(crate) mod command;
pub(crate) mod container;
pub(crate) mod driver_limit;
pub(crate) mod host_dirs;
pub mod page_cache;
pub mod seal;
