//! Makes the driver of a branch: copies of the libraries in which every function that is newer than
//! the branch is undefined. R535 and R550 have the exports of NVIDIA's libraries; later branches
//! have what the headers of their CUDA version declare.
//! Touches: copies of `libcuda.so.1` and `libnvidia-ml.so.1`.

use crate::without::{LIBRARIES, read, remove, unexpected, write};
use anyhow::{Context as _, Result, bail};
use gpuslice_sim_machine::branches;
use std::path::Path;

const CUDA: &str = include_str!("../../cuda/names.txt");
const NVML: &str = include_str!("../../nvml/names.txt");

/// The header declares this name since 12000, but NVIDIA's R535 and R550 do not export it.
const NOT_EXPORTED: (&str, i32) = ("cuGetProcAddress_v2_ptsz", 12_040);

/// The branches, oldest first.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    branches().map(|(name, _)| name)
}

/// Copies both libraries as the branch has them.
pub(crate) fn copy(from: &Path, to: &Path, branch: &str) -> Result<()> {
    let Some((_, cuda)) = branches().find(|(name, _)| *name == branch) else {
        let known: Vec<_> = names().collect();
        bail!(
            "there is no driver `{branch}` (drivers: {})",
            known.join(", ")
        );
    };
    for (library, list, column) in [(LIBRARIES[0], CUDA, 2), (LIBRARIES[1], NVML, 1)] {
        let mut newer = newer(list, column, cuda).with_context(|| format!("names of {library}"))?;
        if column == 2 && cuda <= NOT_EXPORTED.1 {
            newer.push(NOT_EXPORTED.0);
        }
        let mut bytes = read(from, library)?;
        let removed = remove(&mut bytes, &newer).with_context(|| unexpected(library))?;
        if let Some(name) = newer.iter().find(|name| !removed.contains(**name)) {
            bail!("{library} has no function {name}");
        }
        write(to, library, &bytes)?;
    }
    Ok(())
}

/// The names whose first CUDA version, in that column, is above `cuda`.
fn newer(list: &'static str, column: usize, cuda: i32) -> Result<Vec<&'static str>> {
    let mut newer = Vec::new();
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split(' ');
        let (name, since) = (words.next(), words.nth(column.saturating_sub(1)));
        let (Some(name), Some(since)) = (name, since) else {
            bail!("not a name and a version: {line}");
        };
        if since.parse::<i32>().context(line)? > cuda {
            newer.push(name);
        }
    }
    Ok(newer)
}
