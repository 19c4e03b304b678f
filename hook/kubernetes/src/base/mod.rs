//! Settings, names, quantities and files.
//! Touches: files that the caller names.

pub mod settings;
