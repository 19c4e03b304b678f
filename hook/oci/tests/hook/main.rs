//! The hook and the wrapper, run as a container runtime runs them.
//! Touches: temporary folders, child processes, mounts. Most tests need root.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    unreachable_pub,
    reason = "a test that cannot be set up has failed"
)]

mod ambiguous;
mod binary;
mod claims;
mod cost;
mod crash;
mod damaged;
mod dialects;
mod dry_run;
mod events;
mod fail_closed;
mod hostile;
mod images;
mod inject;
mod loaders;
mod namespaces;
mod page_cache;
mod pages;
mod pod_limit;
mod resized;
mod seal;
mod shared;
mod support;
mod syslog;
mod unsliced;
mod wrapper;
