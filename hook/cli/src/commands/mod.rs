//! The commands, each in a file or folder of its own.
//! Touches: the rooms below.

pub mod cache;
pub mod cdi;
pub mod check;
pub mod devices;
pub mod docs;
pub mod driver_limit;
pub mod engines;
pub mod gc;
pub mod headroom;
pub mod report;
pub mod run;
pub mod status;
