//! Settings, names, quantities and log lines.
//! Touches: standard error.

pub mod log;
pub mod names;
pub mod quantity;
pub mod settings;
