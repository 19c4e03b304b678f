//! Describes how container engines run the hook: its definitions, and the runtimes below it.
//! Touches: the toolkit's configuration and the folders of runtimes, by reading them.

pub mod hook_arguments;
pub mod hook_entry;
pub mod json_edit;
pub mod runtimes;
pub mod toolkit;
