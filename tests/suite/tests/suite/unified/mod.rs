//! Unified memory, where the GPU uses the memory of the host.
//! Touches: workers on simulated DGX Sparks and Jetsons.

mod basics;
mod host;
mod meminfo_mounted;
mod meminfo_readers;
mod meminfo_shown;
mod mounted;
mod pinned;
mod promises;
mod release;
mod unsliced;
