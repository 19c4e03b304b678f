//! The request of a container: its state, its config.json, its annotations, the hook's arguments.
//! Touches: the bundle, by reading it.

pub mod annotations;
pub mod arguments;
pub mod dialects;
pub mod hook_slices;
pub mod identity;
pub(crate) mod json_filter;
pub mod nvidia_variables;
pub mod spec;
pub(crate) mod spec_error;
pub mod state;
pub(crate) mod toolkit_limit;
pub(crate) mod visible_gpus;
