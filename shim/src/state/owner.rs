//! The owners of the places in `reservations`.
//! Touches: nothing.

use gpuslice_config::ledger::Kind;

/// The kind of a place's owner.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// A pool, by its handle.
    Pool(u64),
    /// A pool of managed memory, by its handle.
    Managed(u64),
    /// A pool of the host's memory, by its handle.
    Pinned(u64),
    /// The graphs of the device that they are charged to.
    Graphs,
}

impl What {
    /// The kind of memory that it is charged as.
    #[cold]
    #[inline(never)]
    pub(crate) fn kind(self) -> Kind {
        match self {
            What::Managed(_) => Kind::Managed,
            What::Pinned(_) => Kind::Pinned,
            What::Pool(_) | What::Graphs => Kind::Pool,
        }
    }
}
