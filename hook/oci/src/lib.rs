//! gpuslice in containers: what the OCI hook does, and the ways by which engines run it.
//! Touches: see each module.
pub mod json_text;
pub mod wrapper;
