//! Standard streams, exit statuses, text and files, which every room uses.
//! Touches: descriptors, files.

pub(crate) mod atomic_write;
pub(crate) mod destination;
pub(crate) mod exit;
pub mod hook_entry;
pub(crate) mod host_files;
pub(crate) mod json;
pub(crate) mod local_time;
pub(crate) mod oom;
pub(crate) mod sigchld;
pub mod stack;
pub(crate) mod streams;
pub(crate) mod terminal;
pub(crate) mod text;
pub(crate) mod usage_error;
