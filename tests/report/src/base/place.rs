//! Where the source and what `make` has built are.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// The root of the source.
pub(crate) fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folder of the built files.
pub(crate) fn target() -> Result<PathBuf> {
    let named = std::env::var_os("GPUSLICE_TARGET").map(PathBuf::from);
    let target = named.unwrap_or_else(|| source().join("target"));
    let built = target.join("release/libgpuslice.so");
    anyhow::ensure!(
        built.exists(),
        "{} is not there: run make first",
        built.display()
    );
    target
        .canonicalize()
        .with_context(|| target.display().to_string())
}
