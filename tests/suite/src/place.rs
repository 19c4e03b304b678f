//! Where the things under test were built.
//! Touches: the environment variable `GPUSLICE_TARGET`, once per question.

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

/// A path that has to be there already.
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

/// The folder of the simulated driver.
#[must_use]
pub fn sim() -> PathBuf {
    let folder = target().join("sim");
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
#[must_use]
pub fn real_cudart(version: &str) -> PathBuf {
    let folder = built(
        target().join("cudart").join(version),
        "tests/clients/setup.sh",
    );
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if entry
                .file_name()
                .to_string_lossy()
                .starts_with("libcudart.so.")
            {
                return path;
            }
        }
    }
    panic!("there is no libcudart {version}: run tests/clients/setup.sh first")
}

/// The source of a client or of another program that tests run.
#[must_use]
pub fn source(path: &str) -> PathBuf {
    workspace().join("tests/clients").join(path)
}
