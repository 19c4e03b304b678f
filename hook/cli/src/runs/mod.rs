//! Running slices: their folders, watchers and records, and the memory they were admitted for.
//! Touches: the private folders, the registry, the folders of promises and tenants, /proc.

pub mod admission;
pub(crate) mod folder_users;
pub mod former;
pub mod headroom_store;
pub mod private_dir;
pub mod process;
pub mod promise;
pub mod registry;
pub mod run_dir;
pub mod tenancy;
pub mod watcher;
