//! What a container requests, and what it is given: the runtime's input.

pub mod annotations;
pub mod arguments;
pub(crate) mod hook_sizes;
pub mod identity;
pub(crate) mod json_filter;
pub mod spec;
pub mod state;
pub(crate) mod toolkit_limit;
pub(crate) mod visible_gpus;
