//! The slice of this process: loaded once, laid out for answering.
//! Touches: the slice file, the environment, the ledger's file, /proc/self/cgroup.

mod driver_limit;
mod load;
pub(crate) mod loaded_slice;
mod release;
pub(crate) mod slice_ledger;
mod source;

pub(crate) use load::{current, is_known_to_be_unsliced, unsliced};
