//! The paths of the build output under test.
//! Touches: the environment variable `GPUSLICE_TARGET`, once per call.

use std::path::{Path, PathBuf};

/// The folder of this package.
#[must_use]
pub fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The build output that is tested: `GPUSLICE_TARGET`, or the workspace's own.
#[must_use]
pub fn target() -> PathBuf {
    let workspace = package().ancestors().nth(2).unwrap_or(package());
    std::env::var_os("GPUSLICE_TARGET").map_or_else(|| workspace.join("target"), PathBuf::from)
}

/// The roots that `tests/containers/setup.sh` has built.
#[must_use]
pub fn roots() -> PathBuf {
    target().join("containers")
}
