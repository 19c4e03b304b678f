//! One slice: its options, its limits on the GPUs of this machine, its file and its ledger.
//! Touches: slice files, ledgers, the environment variables that carry a slice.

pub mod budget;
pub mod current;
pub mod file;
pub mod ledger;
pub mod options;
pub mod pressure_options;
pub mod sizes;
pub mod visible_gpus;
