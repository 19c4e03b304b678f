//! Paths, files and system calls.

pub mod elf;
pub mod paths;
pub mod read;
pub mod sys;
pub mod text;
pub(crate) mod uuid_text;
