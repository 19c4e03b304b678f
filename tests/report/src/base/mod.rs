//! What every section needs: programs, bounded processes, and facts of this machine.

pub(crate) mod child;
pub(crate) mod interrupt;
pub(crate) mod machine;
pub(crate) mod place;
pub(crate) mod processor;
pub(crate) mod workshop;
