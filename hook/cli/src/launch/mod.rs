//! Plans and prepares the start of a program in a slice.
//! Touches: the environment, the driver (in a child), the files of runs.

pub(crate) mod apply;
pub(crate) mod clients;
pub(crate) mod dry_run;
pub(crate) mod facts;
pub(crate) mod fence;
pub(crate) mod fit;
pub(crate) mod meminfo;
pub(crate) mod plan;
pub(crate) mod prepare;
pub(crate) mod program;
mod scratch;
