//! Slices that share a machine: which of them fit, which memory is promised, and the headroom that
//! a run learns.
//! Touches: simulated machines that several runs share.

mod headroom;
mod orphans;
mod promises;
mod resize;
mod resize_driver;
mod resize_shared;
mod tenants;
