//! Paths, times, bounded reads, replaced files, system calls, children, ELF files and the library's
//! release.
//! Touches: files, mounts and commands that the caller names.

pub mod child;
pub mod clock;
pub mod elf;
pub mod files;
pub mod ledger_room;
pub mod library;
pub mod own_mounts;
pub mod paths;
pub mod read;
pub mod selinux;
pub mod sys;
pub mod text;
pub(crate) mod toml_list;
pub(crate) mod uuid_text;
