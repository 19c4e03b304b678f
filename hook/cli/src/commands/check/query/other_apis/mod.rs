//! What is queried beside CUDA and NVML: Vulkan and OpenCL.
//! Touches: nothing by itself.

pub(super) mod opencl;
pub(super) mod vulkan;
