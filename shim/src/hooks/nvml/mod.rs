//! Hooks of NVML.
//! Touches: NVML, then what it has written.

pub(crate) mod memory;
pub(crate) mod processes;
