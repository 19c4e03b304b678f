//! Turns facts about a device into one answer, and decides whether an allocation is granted.
//! Touches: nothing but its arguments.

pub mod admit;
pub mod heaps;
pub mod meminfo_text;
pub mod observed;
pub mod reclaim;
pub mod room;
pub mod view;
