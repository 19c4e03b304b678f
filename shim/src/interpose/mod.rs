//! Interposition: how a call of the program reaches a hook.
//! Touches: exported symbols, registers, the loader.
//! Law: a call that is not hooked continues exactly as if the library were not loaded.

#[macro_use]
pub(crate) mod registers;
#[macro_use]
pub(crate) mod export;
mod callers;
pub(crate) mod deepbind;
pub(crate) mod dlclose;
pub(crate) mod dlopen;
pub(crate) mod dlsym;
pub(crate) mod entries;
mod opencl;
mod opengl;
mod origin;
pub(crate) mod proc_address;
pub(crate) mod stand_in;
pub(crate) mod vulkan;
