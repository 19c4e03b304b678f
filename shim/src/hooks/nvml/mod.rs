//! Hooks of NVML.
//! Touches: NVML, then the out-parameters that it has written.

pub(crate) mod memory;
pub(crate) mod processes;
