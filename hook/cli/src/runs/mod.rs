//! Running slices: their folders, watchers and records, and the memory they were admitted for.
//! Touches: the private folders, the registry, the folders of promises and tenants, /proc, the
//! cgroups of runs; the event file and the history of runs; the meminfo pages.

pub(crate) mod admission;
pub(crate) mod folder_users;
pub(crate) mod former;
pub(crate) mod headroom_store;
pub(crate) mod host_memory;
pub(crate) mod leaf;
pub(crate) mod meminfo;
pub(crate) mod private_dir;
pub(crate) mod process;
pub(crate) mod promise;
mod promise_maker;
pub(crate) mod recording;
pub(crate) mod registry;
pub(crate) mod resizing;
pub(crate) mod run_dir;
pub(crate) mod tenancy;
mod tenant_folders;
pub(crate) mod watcher;
