//! Checks of the slice that a container sees.
//! Touches: the exec of a runtime.

use crate::check::Check;
use crate::engine::Engine;
use crate::host::Host;

/// The bytes of a GiB.
pub const GIB: u64 = 1 << 30;

/// Asserts that every answer inside the container gives the slice's limit, and that our mounted
/// library is loaded.
///
/// # Panics
/// When an answer differs.
#[track_caller]
pub fn assert_sliced(engine: &dyn Engine, id: &str, limit: u64) {
    assert_sliced_from(engine, id, limit, "/.gpuslice/libgpuslice.so");
}

/// Like [`assert_sliced`], with another path of the library.
///
/// # Panics
/// When an answer differs.
#[track_caller]
pub fn assert_sliced_from(engine: &dyn Engine, id: &str, limit: u64, library: &str) {
    let check = Check::run(engine, id);
    let name = engine.name();
    assert!(check.consistent(), "{name}: {}", check.json());
    assert_eq!(check.library(), Some(library), "{name}: {}", check.json());
    assert_eq!(check.totals(), [limit], "{name}: {}", check.json());
    assert!(check.answers() > 50, "{name}: {}", check.json());
}

/// Asserts that the container has no file of ours and no slice.
///
/// # Panics
/// When it has one.
#[track_caller]
pub fn assert_unsliced(engine: &dyn Engine, id: &str) {
    let check = Check::run(engine, id);
    assert_eq!(check.library(), None, "{}", engine.name());
    assert!(check.json()["slice"].is_null(), "{}", engine.name());
}

/// Asserts that the host keeps no state of any container.
///
/// # Panics
/// When it keeps some.
#[track_caller]
pub fn assert_nothing_left(host: &Host) {
    let containers = host.list("/run/gpuslice/containers");
    if !containers.is_empty() {
        // Shows which process still holds the slice.
        let status = host.run("gpuslice", &["status", "--json"]);
        panic!("{containers:?} are left: {status:?}");
    }
    assert_eq!(host.list("/run/gpuslice/slices"), Vec::<String>::new());
    assert_eq!(host.list("/run/gpuslice/ledgers"), Vec::<String>::new());
    assert_eq!(host.list("/run/gpuslice/promises"), Vec::<String>::new());
    assert_eq!(host.list("/run/gpuslice/tenants"), Vec::<String>::new());
    assert_eq!(host.list("/run/gpuslice/meminfo"), Vec::<String>::new());
    // The promises' own file system stays mounted, and its folder stays, too.
    let mut mounts = host.mounts();
    mounts.retain(|point| point.starts_with("/run/gpuslice/") && point != "/run/gpuslice/promises");
    assert_eq!(mounts, Vec::<String>::new());
}
