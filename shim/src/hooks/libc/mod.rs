//! Hooks of libc: files, mappings, and reports of the host's memory.
//! Touches: libc's function, then the page cache's bookkeeping.

pub(crate) mod close;
pub(crate) mod isolation;
pub(crate) mod mmap;
pub(crate) mod open;
pub(crate) mod read;
pub(crate) mod stat;
pub(crate) mod sysinfo;
