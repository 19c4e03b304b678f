//! What a container has to show for its slice.
//! Touches: a runtime's exec.

use crate::check::Check;
use crate::engine::Engine;
use crate::host::Host;

/// A GiB.
pub const GIB: u64 = 1 << 30;

/// Inside, everything tells the slice, by our library from our mount.
///
/// # Panics
/// When it does not.
#[track_caller]
pub fn assert_sliced(engine: &dyn Engine, id: &str, limit: u64) {
    assert_sliced_from(engine, id, limit, "/.gpuslice/libgpuslice.so");
}

/// The same, with the library somewhere else.
///
/// # Panics
/// When it does not.
#[track_caller]
pub fn assert_sliced_from(engine: &dyn Engine, id: &str, limit: u64, library: &str) {
    let check = Check::run(engine, id);
    let name = engine.name();
    assert!(check.consistent(), "{name}: {}", check.json());
    assert_eq!(check.library(), Some(library), "{name}: {}", check.json());
    assert_eq!(check.totals(), [limit], "{name}: {}", check.json());
    assert!(check.answers() > 50, "{name}: {}", check.json());
}

/// Inside, nothing of ours is there.
///
/// # Panics
/// When something is.
#[track_caller]
pub fn assert_unsliced(engine: &dyn Engine, id: &str) {
    let check = Check::run(engine, id);
    assert_eq!(check.library(), None, "{}", engine.name());
    assert!(check.json()["slice"].is_null(), "{}", engine.name());
}

/// The host has nothing left of any container.
///
/// # Panics
/// When it has.
#[track_caller]
pub fn assert_nothing_left(host: &Host) {
    assert_eq!(host.list("/run/gpuslice/containers"), Vec::<String>::new());
    assert_eq!(host.list("/run/gpuslice/slices"), Vec::<String>::new());
    assert_eq!(host.list("/run/gpuslice/ledgers"), Vec::<String>::new());
    assert_eq!(host.list("/run/gpuslice/promises"), Vec::<String>::new());
    assert_eq!(host.list("/run/gpuslice/tenants"), Vec::<String>::new());
    // The promises' own file system stays, as their folder does.
    let mut mounts = host.mounts();
    mounts.retain(|point| point.starts_with("/run/gpuslice/") && point != "/run/gpuslice/promises");
    assert_eq!(mounts, Vec::<String>::new());
}
