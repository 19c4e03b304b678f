//! Removes gpuslice from a node when no slice and no engine needs it any more.
//! Touches: the records of slices, the CDI files of claims, the configuration of engines (reads), the
//! folder that is removed.

use anyhow::Context;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// The files of the driver in the CDI folder contain this in their names, one for each claim.
const CLAIM: &str = "gpuslice.io-claim-";

/// The folders whose files can name the hook to an engine, and the ends of the names of such files.
/// Packages warn of these files when they are removed.
const ENGINES: [(&str, &[&str]); 18] = [
    ("etc/docker", &["daemon.json"]),
    ("etc/containerd", &[".toml", ".json"]),
    ("etc/containerd/conf.d", &[".toml"]),
    ("etc/crio", &["crio.conf"]),
    ("etc/crio/crio.conf.d", &[""]),
    ("etc/containers", &["containers.conf"]),
    ("etc/containers/containers.conf.d", &[".conf"]),
    ("etc/containers/oci/hooks.d", &[".json"]),
    ("usr/share/containers/oci/hooks.d", &[".json"]),
    ("etc/nvidia-container-runtime", &["config.toml"]),
    ("etc/cdi", &[".json", ".yaml"]),
    ("run/cdi", &[".json", ".yaml"]),
    ("var/run/cdi", &[".json", ".yaml"]),
    ("etc/k0s", &[".toml", ".json"]),
    ("etc/k0s/containerd.d", &[".toml"]),
    (
        "var/lib/rancher/k3s/agent/etc/containerd",
        &[".toml", ".tmpl", ".json"],
    ),
    (
        "var/lib/rancher/rke2/agent/etc/containerd",
        &[".toml", ".tmpl", ".json"],
    ),
    ("var/snap/microk8s/current/args", &[".toml", ".json"]),
];

/// Removes what crashed containers have left, so that their records keep nothing alive.
pub(crate) fn collect_garbage(folder: &Path) {
    let mut command = Command::new(folder.join("bin/gpuslice"));
    command.arg("gc").stdin(Stdio::null()).stdout(Stdio::null());
    // If it cannot run, a stale record keeps the folder, which is reported.
    let _ = command.status();
}

fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}

/// The names of a folder's entries, in order; none if there is no such folder.
fn names(folder: &Path) -> anyhow::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        read => read.with_context(|| format!("cannot read {}", folder.display()))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// The slices and prepared claims of the node below `root`, and the files that name a program of
/// `folder` to an engine. A container of a prepared claim may start at any moment, and needs the hook
/// then. An engine starts no container with a hook that is gone.
///
/// # Errors
/// When they cannot be listed.
pub(crate) fn users(root: &Path, folder: &Path) -> anyhow::Result<Vec<String>> {
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
    users.extend(engines(root, folder)?);
    Ok(users)
}

/// The files of engines that name a program of the folder.
fn engines(root: &Path, folder: &Path) -> anyhow::Result<Vec<String>> {
    let programs = folder.join("bin/gpuslice");
    let programs = programs.as_os_str().as_bytes();
    let mut files = Vec::new();
    let mut seen = Vec::new();
    for (place, ends) in ENGINES {
        // /var/run is a link to /run on most nodes.
        let place = root.join(place);
        let real = place.canonicalize().unwrap_or(place);
        if seen.contains(&real) {
            continue;
        }
        for name in names(&real)? {
            let is_read = ends.iter().any(|end| name.ends_with(end)) && !name.contains(CLAIM);
            let path = real.join(&name);
            if !is_read || !path.is_file() {
                continue;
            }
            let text = match fs::read(&path) {
                Err(error) if is_absent(&error) => continue,
                read => read.with_context(|| format!("cannot read {}", path.display()))?,
            };
            if names_any(&text, programs) {
                files.push(format!("engine file {}", path.display()));
            }
        }
        seen.push(real);
    }
    Ok(files)
}

/// Whether a text names a program in this folder, and not in one whose path only ends like it.
fn names_any(text: &[u8], programs: &[u8]) -> bool {
    let is_path = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-".contains(byte);
    let mut places = text.windows(programs.len()).enumerate();
    places.any(|(place, part)| {
        let before = place.checked_sub(1).and_then(|place| text.get(place));
        part == programs && !before.is_some_and(is_path)
    })
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
        let users = || users(root.path(), Path::new("/opt/gpuslice")).unwrap();
        assert_eq!(users(), Vec::<String>::new());
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
        assert_eq!(users(), ["slice default-q8", "claim 9f0c"]);
    }

    #[test]
    fn an_engines_file_that_names_the_hook_keeps_the_folder() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let write = |file: &str, text: &str| {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let hook = r#"{"hooks": {"createRuntime": [{"path": "/opt/gpuslice/bin/gpuslice-hook"}]}}"#;
        for file in [
            "etc/docker/daemon.json",
            "etc/containerd/gpuslice-base-spec.json",
            "etc/containers/oci/hooks.d/gpuslice.json",
            "etc/crio/crio.conf.d/99-gpuslice.conf",
            "run/cdi/gpuslice.json",
            "var/lib/rancher/k3s/agent/etc/containerd/config.toml.tmpl",
        ] {
            write(file, hook);
            let users = users(&root, Path::new("/opt/gpuslice")).unwrap();
            assert_eq!(users, [format!("engine file {}/{file}", root.display())]);
            fs::remove_file(root.join(file)).unwrap();
        }
        // No engine reads the first two, and the last two name another installation.
        write("etc/containerd/config.toml.before-gpuslice", hook);
        write("etc/docker/daemon.json.before-gpuslice", hook);
        write("etc/docker/daemon.json", "/usr/bin/gpuslice-runtime");
        write("etc/crio/crio.conf", "/mnt/opt/gpuslice/bin/gpuslice-hook");
        fs::create_dir_all(root.join("var")).unwrap();
        std::os::unix::fs::symlink(root.join("run"), root.join("var/run")).unwrap();
        write("run/cdi/k8s.gpuslice.io-claim-9f0c.json", hook);
        let users = users(&root, Path::new("/opt/gpuslice")).unwrap();
        assert_eq!(users, ["claim 9f0c"]);
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
