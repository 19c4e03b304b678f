//! Common to all rooms: a stage's outcome, crash points for tests, the allocator.
//! Touches: see each module.

pub mod arena;
pub mod crash_points;
pub(crate) mod outcome;
