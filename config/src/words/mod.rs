//! Basic types that all other modules use: amounts, devices, texts, names of files.
//! Touches: its arguments.

pub mod device;
pub mod json;
pub mod paths;
pub mod shown;
pub mod text;
pub mod time;
pub mod units;
