//! The child's part of `check`: finds the driver's functions by one route and calls them.
//! Touches: the driver, the dynamic linker.

pub(crate) mod abi;
pub(crate) mod apis;
pub(crate) mod codes;
pub(crate) mod devices;
pub(crate) mod dl;
pub(crate) mod events;
pub(crate) mod lookup;
pub(crate) mod measure;
mod other_apis;
pub(crate) mod probe;
pub(crate) mod routes;
pub(crate) mod row;
