//! Standard streams, exit statuses, text and files, which every room uses.
//! Touches: descriptors, files.

pub mod atomic_write;
pub(crate) mod destination;
pub mod exit;
pub mod hook_entry;
pub mod host_files;
pub mod sigchld;
pub mod stack;
pub mod streams;
pub mod text;
