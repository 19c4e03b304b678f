//! The dynamic loader: which objects are loaded, and what their symbols are.
//! Touches: images in memory, `_r_debug`, the loader's functions.

pub(crate) mod dl;
pub(crate) mod elf;
pub(crate) mod image;
pub(crate) mod versions;
