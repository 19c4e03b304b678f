//! The paths of the files under test, and of files that the tests need.
//! Touches: the environment variable `GPUSLICE_TARGET`, on each call.

use std::path::{Path, PathBuf};

/// The root of the repository.
#[must_use]
pub fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// The build output that is tested: `GPUSLICE_TARGET`, or the workspace's own.
#[must_use]
pub fn target() -> PathBuf {
    std::env::var_os("GPUSLICE_TARGET").map_or_else(|| workspace().join("target"), PathBuf::from)
}

/// Returns a path, and panics if it does not exist.
fn built(path: PathBuf, by: &str) -> PathBuf {
    assert!(
        path.exists(),
        "{} is not there: run {by} first",
        path.display()
    );
    path
}

/// The library that is preloaded.
#[must_use]
pub fn shim() -> PathBuf {
    built(target().join("release/libgpuslice.so"), "make")
}

/// The command line.
#[must_use]
pub fn gpuslice() -> PathBuf {
    built(target().join("release/gpuslice"), "make")
}

/// The OCI hook.
#[must_use]
pub fn hook() -> PathBuf {
    built(target().join("release/gpuslice-hook"), "make")
}

/// The folder of the simulated driver.
#[must_use]
pub fn sim() -> PathBuf {
    let folder = target().join("sim");
    built(folder.join("libcuda.so.1"), "make");
    folder
}

/// The folder with the simulated driver of a branch: 535, 550, 580 or 615.
#[must_use]
pub fn sim_branch(branch: &str) -> PathBuf {
    let folder = sim().join(branch);
    built(folder.join("libcuda.so.1"), "make");
    folder
}

/// A program of the Python environment that `tests/clients/setup.sh` installs.
#[must_use]
pub fn venv(program: &str) -> PathBuf {
    built(
        target().join("clients-venv/bin").join(program),
        "tests/clients/setup.sh",
    )
}

/// A real libcudart, as PyPI has it.
///
/// # Panics
/// When it is not there.
#[must_use]
pub fn real_cudart(version: &str) -> PathBuf {
    let is_it = |name: &str| name.starts_with("libcudart.so.");
    let found = unpacked(version, &is_it).pop();
    found.unwrap_or_else(|| panic!("no libcudart {version}: run tests/clients/setup.sh first"))
}

/// The archives of a real static cudart, in the order in which a linker wants them.
///
/// # Panics
/// When they are not there.
#[must_use]
pub fn real_static_cudart(version: &str) -> Vec<PathBuf> {
    let is_it = |name: &str| matches!(name, "libcudart_static.a" | "libculibos.a");
    let mut found = unpacked(version, &is_it);
    assert!(
        !found.is_empty(),
        "no static cudart {version}: run tests/clients/setup.sh first"
    );
    // libcudart_static before libculibos, which it needs.
    found.sort();
    found
}

/// The files of an unpacked wheel whose names `wanted` accepts.
fn unpacked(version: &str, wanted: &dyn Fn(&str) -> bool) -> Vec<PathBuf> {
    let folder = target().join("cudart").join(version);
    let mut folders = vec![built(folder, "tests/clients/setup.sh")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else if wanted(&entry.file_name().to_string_lossy()) {
                found.push(entry.path());
            }
        }
    }
    found
}

/// The source of a client or of another program that tests run.
#[must_use]
pub fn source(path: &str) -> PathBuf {
    workspace().join("tests/clients").join(path)
}
