//! Settings, names, quantities, files and log lines.
//! Touches: files that the caller names, standard error.

pub mod files;
pub mod log;
pub mod names;
pub mod quantity;
pub mod settings;
