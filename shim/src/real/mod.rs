//! TODO

pub(crate) mod abi;
pub(crate) mod copies;
pub(crate) mod functions;
pub(crate) mod names;
