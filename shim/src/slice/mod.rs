//! The slice of this process: loaded once, laid out for answering.
//! Touches: the slice file, the environment, the ledger's file.

pub(crate) mod load;
pub(crate) mod runtime;
pub(crate) mod slice_ledger;
mod source;
