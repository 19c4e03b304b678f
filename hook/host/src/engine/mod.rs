//! How container engines run the hook: its definitions, and the runtimes below the wrapper.

pub mod hook_arguments;
pub mod hook_entry;
pub mod json_edit;
pub mod runtimes;
pub mod toolkit;
