//! The simulated machine: its devices, the memory of them that each process holds, and its host's
//! numbers.
//! Touches: one mapped file, one lock file, one meminfo file. Never: the real host's memory
//! numbers.
#![expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "a simulator of fixed tables; every index is bounded by the table it comes from"
)]

mod alive;
mod charge;
mod faults;
mod limits;
mod map;
mod meminfo;
mod query;
mod scenario;
mod segments;
mod shared;
mod truth;
mod units;

pub use charge::{Kind, Refused, STEP};
pub use faults::{Faults, Verdict};
pub use limits::{Limit, NotSet};
pub use map::{Machine, OpenError, memory_file, segment_of};
pub use meminfo::HostMemory;
pub use query::{ProcessUse, Use};
pub use scenario::{
    Domain, Gpu, MemoryLimits, Mig, NvmlMemory, Scenario, ScenarioError, branches, names,
};
pub use segments::SegmentId;
pub use truth::{DeviceTruth, ProcessTruth, Truth};
pub use units::{UnitError, parse_bytes, parse_change};
