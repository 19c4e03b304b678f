//! Removes gpuslice from a node when no slice needs it any more.
//! Touches: the records of slices, the CDI files of claims, the folder that is removed.

use anyhow::Context;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// The files of the driver in the CDI folder contain this in their names, one for each claim.
const CLAIM: &str = "gpuslice.io-claim-";

/// Removes what crashed containers have left, so that their records keep nothing alive.
pub(crate) fn collect_garbage(folder: &Path) {
    let mut command = Command::new(folder.join("bin/gpuslice"));
    command.arg("gc").stdin(Stdio::null()).stdout(Stdio::null());
    // If it cannot run, a stale record keeps the folder, which is reported.
    let _ = command.status();
}

/// The names of a folder's entries, in order; none if there is no such folder.
fn names(folder: &Path) -> anyhow::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.with_context(|| format!("cannot read {}", folder.display()))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// The slices and prepared claims of the node below `root`. A container of a prepared claim may
/// start at any moment, and needs the hook then.
///
/// # Errors
/// When they cannot be listed.
pub(crate) fn users(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut users = Vec::new();
    for name in names(&root.join("run/gpuslice/slices"))? {
        if let Some(slice) = name.strip_suffix(".json") {
            users.push(format!("slice {slice}"));
        }
    }
    for name in names(&root.join("var/run/cdi"))? {
        let claim = name.split_once(CLAIM).map(|(_, claim)| claim);
        if let Some(claim) = claim.and_then(|claim| claim.strip_suffix(".json")) {
            users.push(format!("claim {claim}"));
        }
    }
    Ok(users)
}

/// Removes the folder, the hook first: without it no container gets a slice, and with it alone every
/// start would fail.
///
/// # Errors
/// When it cannot be removed.
pub(crate) fn remove(folder: &Path) -> anyhow::Result<()> {
    let gone = |done: io::Result<()>| match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    };
    gone(fs::remove_file(folder.join("bin/gpuslice-hook")))
        .and_then(|()| gone(fs::remove_dir_all(folder)))
        .with_context(|| format!("cannot remove {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_slices_and_prepared_claims_keep_the_folder() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(users(root.path()).unwrap(), Vec::<String>::new());
        for file in [
            "run/gpuslice/slices/default-q8.json",
            "run/gpuslice/slices/.new",
            "var/run/cdi/k8s.gpuslice.io-claim-9f0c.json",
            "var/run/cdi/k8s.gpuslice.io-claim-9f0c.json.new",
            "var/run/cdi/nvidia.yaml",
        ] {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "{}").unwrap();
        }
        assert_eq!(
            users(root.path()).unwrap(),
            ["slice default-q8", "claim 9f0c"]
        );
    }

    #[test]
    fn removing_twice_is_no_error() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("opt/gpuslice");
        fs::create_dir_all(folder.join("bin")).unwrap();
        fs::write(folder.join("bin/gpuslice-hook"), "").unwrap();
        remove(&folder).unwrap();
        assert!(!folder.exists() && folder.parent().unwrap().exists());
        remove(&folder).unwrap();
    }
}
