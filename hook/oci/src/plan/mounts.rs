//! The mounts of a container: its slice, the library, the ledger, the promises and the loader's
//! list.
//! Touches: its arguments.

use super::PlanInput;
use gpuslice_config::promises;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::paths::{HostPaths, MOUNT, PRELOAD};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Below [`MOUNT`]: the slice's own promise.
pub(super) const PROMISE: &str = "promise";

/// The target of the slice's meminfo page.
pub(crate) const PROC_MEMINFO: &str = "/proc/meminfo";

/// A mount in the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedMount {
    /// The source, on the host.
    pub source: PathBuf,
    /// The target, in the container.
    pub target: PathBuf,
    /// The mount options.
    pub options: &'static str,
}

/// The path of a slice's promise on the host.
pub(super) fn promise(paths: &HostPaths, promised: Bytes, slice: &str) -> PathBuf {
    let name = promises::file_name(promised, slice).unwrap_or_default();
    paths.promises().join(name)
}

/// Read-only, without device files or set-user-id programs.
pub(crate) const READ_ONLY: &str = "ro,nosuid,nodev";
/// Like [`READ_ONLY`], and without programs.
pub(crate) const READ_ONLY_DATA: &str = "ro,nosuid,nodev,noexec";
/// For files that a container writes to.
const WRITABLE: &str = "rw,nosuid,nodev,noexec";

/// The mounts of a slice that is promised this much of the host's memory.
pub(super) fn mounts(
    given: &PlanInput<'_>,
    id: &str,
    slice: &str,
    promised: Bytes,
    has_page: bool,
) -> Vec<PlannedMount> {
    let paths = given.paths;
    let root = paths.container_root(id);
    let inside = Path::new("/").join(MOUNT);
    let library = given.policy.library.clone();
    let preload = root.join(PRELOAD);
    let mount = |source: PathBuf, name: &str, options| PlannedMount {
        source,
        target: inside.join(name),
        options,
    };
    let mut mounts = vec![
        PlannedMount {
            source: root,
            target: inside.clone(),
            options: READ_ONLY,
        },
        mount(
            library.unwrap_or_else(|| paths.library()),
            "libgpuslice.so",
            READ_ONLY,
        ),
        mount(paths.meminfo(), "meminfo", READ_ONLY_DATA),
        // Mount the file, not its folder: from a folder, a container's root could remove the file.
        mount(paths.ledger_file(slice), "ledger/ledger", WRITABLE),
        mount(paths.locks_file(slice), "ledger/locks", WRITABLE),
    ];
    if promised > Bytes::ZERO {
        mounts.push(mount(paths.promises(), "promises", READ_ONLY_DATA));
        mounts.push(mount(promise(paths, promised, slice), PROMISE, WRITABLE));
    }
    if has_page {
        mounts.push(PlannedMount {
            source: paths.page(slice),
            target: Path::new(PROC_MEMINFO).to_owned(),
            options: READ_ONLY_DATA,
        });
    }
    mounts.push(PlannedMount {
        source: preload,
        target: Path::new("/").join(PRELOAD),
        options: READ_ONLY_DATA,
    });
    mounts
}
