//! What the rows share: a slice with a witness, a tracer, hosts of runs and of containers.
//! Touches: simulated machines, namespaces, child processes.

pub(super) mod containers;
pub(super) mod driver_lock;
pub(super) mod host;
pub(super) mod life;
pub(super) mod memory;
mod requests;
pub(super) mod slice;
pub(super) mod trace;
