//! What the hooked functions do: the only code that calls a real function for a caller.
//! Touches: the real functions, once each, with the caller's own arguments, or not at all where
//! the slice has no room.
//! Law: no value with a destructor is alive across a real call.

pub(crate) mod admit;
pub(crate) mod alone;
pub(crate) mod array;
pub(crate) mod capture;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod descriptors;
pub(crate) mod files;
pub(crate) mod graph;
pub(crate) mod green;
pub(crate) mod growth;
pub(crate) mod ipc;
pub(crate) mod mappings;
pub(crate) mod nvml;
pub(crate) mod out;
pub(crate) mod pinned;
pub(crate) mod pool;
pub(crate) mod processes;
pub(crate) mod properties;
pub(crate) mod query;
pub(crate) mod reading;
pub(crate) mod release;
pub(crate) mod resolve;
pub(crate) mod runtime_info;
pub(crate) mod stat;
pub(crate) mod sysinfo;
pub(crate) mod vmm;
