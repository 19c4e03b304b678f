//! Keeps the slices of this machine: records, admission, and the removal of dead slices.
//! Touches: /run/gpuslice, and /proc by reading it.

pub mod admission;
pub mod ended;
pub mod figures;
pub mod gc;
pub mod host_state;
pub mod liveness;
pub mod meminfo_page;
pub mod record_lock;
pub mod records;
pub mod removal;
pub mod resized;
pub mod run_folder;
pub mod tenants;
