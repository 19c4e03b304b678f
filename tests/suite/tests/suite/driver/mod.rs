//! Driver branches, NVIDIA's own libraries, recorded answers, and the driver's own limits.
//! Touches: the simulated driver of each branch, recordings, cgroups.

mod branches;
pub(crate) mod limit;
mod nvidia_libraries;
mod recorded;
