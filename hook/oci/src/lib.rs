//! gpuslice in containers: an OCI hook decides, admits, prepares, injects and cleans up.
//! Touches: see each room.
//! Law: no claim of an image or a pod grants more than the operator's policy allows.

pub mod apply;
pub mod base;
pub(crate) mod inject;
pub mod plan;
pub mod request;
pub mod stage;
pub mod wrapper;
