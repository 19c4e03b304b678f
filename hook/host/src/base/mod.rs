//! Paths, times, bounded reads, system calls and ELF files.
//! Touches: files and mounts that the caller names.

pub mod clock;
pub mod elf;
pub mod paths;
pub mod read;
pub mod sys;
pub mod text;
pub(crate) mod uuid_text;
