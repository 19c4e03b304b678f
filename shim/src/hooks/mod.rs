//! The hooks: one implementation for each intercepted function. Only hooks call a real function for
//! a caller.
//! Touches: the real functions, once each, with the caller's own arguments, or not at all where
//! the slice has no room.
//! Law: no value with a destructor is alive across a real call.

pub(crate) mod cuda;
pub(crate) mod libc;
pub(crate) mod nvml;
pub(crate) mod opencl;
pub(crate) mod opengl;
pub(crate) mod out;
pub(crate) mod runtime;
pub(crate) mod vulkan;
