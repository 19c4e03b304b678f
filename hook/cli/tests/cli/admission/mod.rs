//! Slices beside each other: which ones fit, what is promised, and what a run learns.
//! Touches: simulated machines that several runs share.

mod headroom;
mod promises;
mod tenants;
