//! What everything else is written in: amounts, devices, texts, names of files.
//! Touches: its arguments.

pub mod device;
pub mod json;
pub mod paths;
pub mod text;
pub mod units;
