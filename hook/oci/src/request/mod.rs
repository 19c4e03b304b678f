//! What a container requests, and what it is given: the runtime's input.

pub mod annotations;
pub mod arguments;
pub mod hook_sizes;
pub mod identity;
pub mod json_filter;
pub mod spec;
pub mod state;
pub mod toolkit_limit;
pub mod visible_gpus;
