//! Whether the node's container engine uses CDI devices.
//! Touches: the engine's configuration files, by reading them.
//! Law: an engine that may ignore CDI devices is refused. It would start a container with the whole
//! GPU, and report nothing.

use crate::base::settings::Settings;
use gpuslice_host::base::read;
use gpuslice_host::base::text::shown;
use std::fs;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// A place of containerd's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// The main file that containerd reads.
    main: &'static str,
    /// The file that administrators write, if another program makes the main file from it.
    source: Option<&'static str>,
}

const CONTAINERD: Place = Place {
    main: "/etc/containerd/config.toml",
    source: None,
};
/// With containerd 2.0 or later, k3s and RKE2 make the main file from config-v3.toml.tmpl if that
/// exists, and otherwise from config.toml.tmpl.
const RANCHER_SOURCE: Option<&str> =
    Some("config.toml.tmpl beside it (or in config-v3.toml.tmpl, if that exists)");
const K3S: Place = Place {
    main: "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    source: RANCHER_SOURCE,
};
const RKE2: Place = Place {
    main: "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    source: RANCHER_SOURCE,
};
/// Its main file imports `/run/k0s/containerd-cri.toml`, which k0s makes from the files of the folder.
const K0S: Place = Place {
    main: "/etc/k0s/containerd.toml",
    source: Some("a file of /etc/k0s/containerd.d"),
};
const MICROK8S: Place = Place {
    main: "/var/snap/microk8s/current/args/containerd.toml",
    source: Some("containerd-template.toml beside it"),
};

/// All places. Without a sign of the engine that runs, the first file that exists counts.
const PLACES: [Place; 5] = [CONTAINERD, K3S, RKE2, K0S, MICROK8S];

/// The names of containerd's CRI plugin, in its formats 1 and 2, and from 3 on.
const PLUGINS: [&str; 3] = [
    "cri",
    "io.containerd.grpc.v1.cri",
    "io.containerd.cri.v1.runtime",
];

/// The largest configuration file that is read.
const CAP: usize = 1 << 20;

/// Checks the engine of a node, which the kubelet reports as `containerd://2.1.9`.
///
/// # Errors
/// Why CDI devices would be ignored, in one sentence.
pub fn check(settings: &Settings, reported: &str) -> Result<(), String> {
    let (engine, version) = reported.split_once("://").unwrap_or((reported, ""));
    let mut numbers = version.trim_start_matches('v').split('.');
    let mut number = || numbers.next().and_then(|text| text.parse::<u32>().ok());
    let version = number().zip(number());
    let shown = shown(reported);
    match (engine, version) {
        ("containerd", Some((major, minor))) if (major, minor) >= (1, 7) => {
            let is_new = major >= 2;
            let place = place(settings, reported);
            match place.and_then(|place| enabled(settings, place, is_new)) {
                Some(true) => Ok(()),
                None if is_new => Ok(()),
                _ => Err(ignored(&shown, place)),
            }
        }
        ("containerd", Some(_)) => Err(format!(
            "{shown} ignores CDI devices: containerd 1.7 with enable_cdi, or 2.0, is needed"
        )),
        ("cri-o", Some(version)) if version >= (1, 23) => Ok(()),
        ("cri-o", Some(_)) => Err(format!(
            "{shown} ignores CDI devices: CRI-O 1.23 or later is needed"
        )),
        _ => Err(format!(
            "the engine of this node, \"{shown}\", is not known to use CDI devices (containerd and \
             CRI-O are)"
        )),
    }
}

/// The sentence about a containerd that ignores CDI devices.
fn ignored(shown: &str, place: Option<Place>) -> String {
    let by = place.map(|place| format!(", according to {}", place.main));
    let source = place.and_then(|place| place.source);
    let source = source.map(|source| format!(" in {source}"));
    format!(
        "{shown} ignores CDI devices{}, so containers would have the whole GPU: set enable_cdi = true in \
         its CRI plugin{} and restart it",
        by.unwrap_or_default(),
        source.unwrap_or_default()
    )
}

/// The place of the configuration that the kubelet's engine reads, if the file exists. k3s and RKE2
/// name themselves in the engine's version. k0s and MicroK8s have a kubelet's folder of their own.
/// Without this, the file of another containerd, such as Docker's, would count.
fn place(settings: &Settings, reported: &str) -> Option<Place> {
    let kubelet = settings.plugins.parent().unwrap_or(Path::new("/"));
    // MicroK8s makes /var/lib/kubelet a link to its own folder.
    let link = fs::read_link(settings.on_host(kubelet)).unwrap_or_default();
    let is_below = |folder: &str| kubelet.starts_with(folder) || link.starts_with(folder);
    let places: &[Place] = if reported.contains("-k3s") {
        &[K3S, RKE2]
    } else if is_below("/var/lib/k0s") {
        &[K0S, CONTAINERD]
    } else if is_below("/var/snap/microk8s") {
        &[MICROK8S, CONTAINERD]
    } else {
        &PLACES
    };
    let mut places = places.iter().copied();
    places.find(|place| settings.on_host(Path::new(place.main)).exists())
}

/// What `enable_cdi` is set to. Before 2.0, the CRI table of an imported file replaces that of the
/// main file as a whole.
fn enabled(settings: &Settings, place: Place, is_new: bool) -> Option<bool> {
    let main = settings.on_host(Path::new(place.main));
    let tables = tables(settings, &main);
    // Before 2.0, the last version that a file states holds for all files.
    let common = tables.iter().filter_map(version).next_back().unwrap_or(1);
    let mut found = None;
    for table in &tables {
        let names = match is_new {
            true => plugins(version(table), is_new),
            false => plugins(Some(common), is_new),
        };
        let plugins = table.get("plugins").and_then(Value::as_table);
        let cri = names.iter().filter_map(|name| plugins?.get(*name));
        let set = cri.map(|cri| cri.get("enable_cdi").and_then(Value::as_bool));
        match set.reduce(|one, other| one.into_iter().chain(other).min()) {
            None => {}
            Some(None) if is_new => {}
            Some(set) => found = set,
        }
    }
    found
}

/// The names that containerd reads the CRI plugin's table by, in a file of this version. It ignores
/// a table with the name of another version. containerd 1 does not start with version 3 or later.
fn plugins(version: Option<i64>, is_new: bool) -> &'static [&'static str] {
    let [one, two, three] = &PLUGINS;
    match version {
        Some(1) => std::slice::from_ref(one),
        Some(2) => std::slice::from_ref(two),
        Some(3 | 4) if is_new => std::slice::from_ref(three),
        // An imported file may leave its version out.
        _ if is_new => &PLUGINS,
        _ => &[],
    }
}

fn version(table: &Table) -> Option<i64> {
    table.get("version").and_then(Value::as_integer)
}

/// The files that may be the main file of containerd.
#[must_use]
pub fn configurations(settings: &Settings) -> [PathBuf; 5] {
    PLACES.map(|place| settings.on_host(Path::new(place.main)))
}

/// The main file and the files that it imports, in the order in which they are read.
fn tables(settings: &Settings, main: &Path) -> Vec<Table> {
    let Some(first) = table(main) else {
        return Vec::new();
    };
    let patterns: Vec<PathBuf> = first
        .get("imports")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(Path::new)
        .map(|pattern| match pattern.is_absolute() {
            true => settings.on_host(pattern),
            false => main.with_file_name(pattern),
        })
        .collect();
    let imported = patterns.iter().flat_map(|pattern| files(pattern));
    let imported: Vec<Table> = imported.filter_map(|file| table(&file)).collect();
    std::iter::once(first).chain(imported).collect()
}

fn table(file: &Path) -> Option<Table> {
    let text = read::file(file, CAP).ok()?;
    String::from_utf8(text).ok()?.parse().ok()
}

/// The files that a pattern matches, by name. Only the file's name may have an asterisk.
fn files(pattern: &Path) -> Vec<PathBuf> {
    let name = pattern.file_name().unwrap_or_default().to_string_lossy();
    let Some((start, end)) = name.split_once('*') else {
        return vec![pattern.to_owned()];
    };
    let folder = pattern.parent().unwrap_or(Path::new("/"));
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut matching: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.len() >= start.len().saturating_add(end.len())
                && name.starts_with(start)
                && name.ends_with(end)
        })
        .collect();
    matching.sort();
    matching
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
