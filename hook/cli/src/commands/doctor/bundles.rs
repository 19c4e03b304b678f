//! Finds containers without a record by the bundles of their engines.
//! Touches: the engines' folders, by listing them; cgroups of processes.

use super::checks::ContainerSeen;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::base::read;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// The letters of a container's id.
const ID: usize = 64;

/// The fewest letters of an id that name a container.
const SHORTEST: usize = 4;

/// The bytes that are read of a bundle's configuration.
const CAP: usize = 64 << 20;

/// The folders with one folder for each container, and the bundle's place in that; `*` stands for
/// one folder.
const PLACES: [(&str, &str); 5] = [
    ("run/containerd/io.containerd.runtime.v2.task/*", ""),
    (
        "run/docker/containerd/daemon/io.containerd.runtime.v2.task/*",
        "",
    ),
    (
        "var/run/docker/containerd/daemon/io.containerd.runtime.v2.task/*",
        "",
    ),
    ("var/lib/containers/storage/overlay-containers", "userdata"),
    ("run/containers/storage/overlay-containers", "userdata"),
];

/// Returns the id of the container that a process is in, by the path of its cgroup.
pub(super) fn container_of(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    id_in(&text)
}

fn id_in(cgroups: &str) -> Option<String> {
    let is_part = |letter: char| letter.is_ascii_hexdigit() && !letter.is_ascii_uppercase();
    let mut words = cgroups.split(|letter: char| !is_part(letter));
    words.find(|word| word.len() == ID).map(str::to_owned)
}

/// Returns the container whose id begins with `id`.
pub(super) fn find(places: &HostPaths, id: &str) -> Option<ContainerSeen> {
    if id.len() < SHORTEST {
        return None;
    }
    let folders = PLACES.iter().flat_map(|(folder, inner)| {
        let folders = spread(&places.root().join(folder));
        folders.into_iter().map(move |folder| (folder, *inner))
    });
    for (folder, inner) in folders {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name().to_string_lossy().into_owned();
            let bundle = match inner {
                "" => entry.path(),
                inner => entry.path().join(inner),
            };
            if name.starts_with(id) && bundle.join("config.json").exists() {
                return Some(seen(name, bundle));
            }
        }
    }
    None
}

/// Replaces a last `*` by the folders that exist.
fn spread(pattern: &Path) -> Vec<PathBuf> {
    match (pattern.file_name(), pattern.parent()) {
        (Some(name), Some(above)) if name == "*" => {
            let entries = fs::read_dir(above).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect()
        }
        _ => vec![pattern.to_owned()],
    }
}

fn seen(id: String, bundle: PathBuf) -> ContainerSeen {
    let config = read::file(&bundle.join("config.json"), CAP).ok();
    let config: Option<Value> = config.and_then(|text| serde_json::from_slice(&text).ok());
    let annotation = |key: &str| {
        let value = config.as_ref()?.get("annotations")?.get(key)?.as_str()?;
        Some(value.to_owned())
    };
    let names = [
        "io.kubernetes.cri.container-name",
        "io.kubernetes.container.name",
    ];
    let name = names.into_iter().find_map(annotation);
    ContainerSeen {
        name: name.unwrap_or_else(|| id.clone()),
        id,
        bundle: Some(bundle),
        ..ContainerSeen::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_in_the_container_that_its_cgroup_names() {
        let id = "0123456789abcdef".repeat(4);
        for line in [
            format!("0::/system.slice/docker-{id}.scope\n"),
            format!("0::/kubepods.slice/kubepods-pod12_3.slice/cri-containerd-{id}.scope\n"),
            format!("12:memory:/docker/{id}\n0::/\n"),
        ] {
            assert_eq!(id_in(&line).as_deref(), Some(id.as_str()), "{line}");
        }
        assert_eq!(id_in("0::/user.slice/user-1000.slice\n"), None);
    }

    #[test]
    fn a_bundle_is_found_by_the_start_of_its_id() {
        let root = tempfile::tempdir().unwrap();
        let id = "abcdef".repeat(10) + "0123";
        let folder = "run/containerd/io.containerd.runtime.v2.task/k8s.io";
        let bundle = root.path().join(folder).join(&id);
        fs::create_dir_all(&bundle).unwrap();
        let config = r#"{"annotations": {"io.kubernetes.cri.container-name": "server"}}"#;
        fs::write(bundle.join("config.json"), config).unwrap();
        let places = HostPaths::below(root.path());
        let found = find(&places, "abcdefabcdef").unwrap();
        assert_eq!(
            (found.id.as_str(), found.name.as_str()),
            (id.as_str(), "server")
        );
        assert_eq!(find(&places, "abc"), None);
        assert_eq!(find(&places, "0123"), None);
    }
}
