//! gpuslice in containers: an OCI hook decides, admits, prepares, injects and cleans up.
//! Touches: see each part.
//! Law: no claim of an image or a pod grants more than the operator's policy allows.

pub mod admission;
pub mod annotations;
pub mod arena;
pub mod arguments;
mod beside;
mod budgets;
pub mod command;
mod container;
pub mod create;
pub mod delete;
pub mod devices;
pub mod driver_limit;
pub mod elf;
pub mod gc;
pub mod given_gpus;
pub mod hook_sizes;
pub mod host;
pub mod identity;
pub mod image;
pub mod inject;
pub mod json_filter;
pub mod json_text;
pub mod outcome;
pub mod owner;
pub mod page_cache;
pub mod place;
pub mod plan;
pub mod policy;
pub mod read;
pub mod registry;
pub mod removal;
pub mod run_folder;
pub mod seal;
pub mod spec;
pub mod stages;
pub mod state;
pub mod steps;
pub mod sys;
pub mod syslog;
pub mod tenants;
mod text;
pub mod toolkit_limit;
pub mod traces;
pub mod wrapper;
