//! One slice: its options, its limits on the GPUs of this machine, its file and its ledger.
//! Touches: slice files, ledgers, the environment variables that carry a slice; the list of users.

pub(crate) mod budget;
pub(crate) mod choices;
pub(crate) mod current;
pub(crate) mod file;
pub(crate) mod ledger;
pub(crate) mod options;
pub(crate) mod sizes;
pub(crate) mod slices_file;
pub(crate) mod user;
pub(crate) mod visible_gpus;
