//! The real functions: the driver's, the runtime's, NVML's and libc's own, in each loaded copy of
//! their library.
//! Touches: atomics; the loader, when a function is called for the first time.

pub(crate) mod abi;
pub(crate) mod copies;
pub(crate) mod errno;
pub(crate) mod functions;
pub(crate) mod names;
pub(crate) mod opencl;
pub(crate) mod opengl;
pub(crate) mod vulkan;
pub(crate) mod vulkan_abi;
