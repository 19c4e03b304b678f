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
const K3S: Place = Place {
    main: "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    source: Some("config.toml.tmpl beside it"),
};
const RKE2: Place = Place {
    main: "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    source: Some("config.toml.tmpl beside it"),
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
mod tests {
    use super::*;
    use clap::Parser;

    /// A host with these files.
    fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
        let host = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = host.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        host
    }

    /// The answer on a host, for an engine and a kubelet's folder.
    fn on(host: &Path, kubelet: &str, engine: &str) -> Result<(), String> {
        let root = host.to_string_lossy().into_owned();
        let plugins = format!("{kubelet}/plugins");
        let options = ["gpuslice-dra", "--host-root", &root, "--plugins", &plugins];
        check(&Settings::parse_from(options), engine)
    }

    const KUBELET: &str = "/var/lib/kubelet";
    const PLAIN: &str = "etc/containerd/config.toml";

    /// The answer on a host whose containerd has this configuration.
    fn answer(engine: &str, config: Option<&str>, imported: Option<&str>) -> Result<(), String> {
        let config = config.map(|text| (PLAIN, text));
        let imported = imported.map(|text| ("etc/containerd/conf.d/99.toml", text));
        let files: Vec<_> = config.into_iter().chain(imported).collect();
        on(host(&files).path(), KUBELET, engine)
    }

    const ON: &str = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nenable_cdi = true\n";

    #[test]
    fn containerd_1_7_is_refused_unless_cdi_is_enabled() {
        let engine = "containerd://1.7.24~ds1";
        let refused = answer(engine, None, None).unwrap_err();
        assert_eq!(
            refused,
            "containerd://1.7.24~ds1 ignores CDI devices, so containers would have the whole GPU: \
             set enable_cdi = true in its CRI plugin and restart it"
        );
        assert_eq!(
            answer(engine, Some("version = 2\n"), None).unwrap_err(),
            "containerd://1.7.24~ds1 ignores CDI devices, according to /etc/containerd/config.toml, so \
             containers would have the whole GPU: set enable_cdi = true in its CRI plugin and restart it"
        );
        assert!(answer(engine, Some("not toml"), None).is_err());
        assert_eq!(answer(engine, Some(ON), None), Ok(()));
        assert!(answer(engine, Some(&ON.replace("true", "false")), None).is_err());
    }

    #[test]
    fn the_file_of_the_engine_that_runs_counts_and_not_that_of_another() {
        const K3S: &str = "var/lib/rancher/k3s/agent/etc/containerd/config.toml";
        const RKE2: &str = "var/lib/rancher/rke2/agent/etc/containerd/config.toml";
        const K0S: &str = "etc/k0s/containerd.toml";
        const MICROK8S: &str = "var/snap/microk8s/current/args/containerd.toml";
        let (k0s, microk8s) = (
            "/var/lib/k0s/kubelet",
            "/var/snap/microk8s/common/var/lib/kubelet",
        );
        let off = ON.replace("true", "false");
        for (file, kubelet, engine, source) in [
            (
                K3S,
                KUBELET,
                "containerd://1.7.23-k3s2",
                " in config.toml.tmpl beside it",
            ),
            (
                RKE2,
                KUBELET,
                "containerd://1.7.23-k3s2",
                " in config.toml.tmpl beside it",
            ),
            (
                K0S,
                k0s,
                "containerd://1.7.25",
                " in a file of /etc/k0s/containerd.d",
            ),
            (
                MICROK8S,
                microk8s,
                "containerd://1.7.27",
                " in containerd-template.toml beside it",
            ),
            (PLAIN, KUBELET, "containerd://1.7.27", ""),
        ] {
            let other = if file == PLAIN { K3S } else { PLAIN };
            let accepted = host(&[(file, ON), (other, &off)]);
            assert_eq!(on(accepted.path(), kubelet, engine), Ok(()), "{file}");
            let refused = host(&[(file, &off), (other, ON)]);
            assert_eq!(
                on(refused.path(), kubelet, engine).unwrap_err(),
                format!(
                    "{engine} ignores CDI devices, according to /{file}, so containers would have the whole \
                     GPU: set enable_cdi = true in its CRI plugin{source} and restart it"
                )
            );
            // Without a sign of the engine, the only file counts.
            let alone = host(&[(file, ON)]);
            let answer = on(alone.path(), KUBELET, "containerd://1.7.24");
            assert_eq!(answer, Ok(()), "{file}");
        }
        // k3s does not read the file of another containerd.
        let stray = host(&[(PLAIN, ON)]);
        assert!(on(stray.path(), KUBELET, "containerd://1.7.23-k3s2").is_err());
        // MicroK8s makes the usual folder of the kubelet a link to its own.
        let linked = host(&[(MICROK8S, ON), (PLAIN, &off), ("var/lib/x", "")]);
        let link = linked.path().join("var/lib/kubelet");
        std::os::unix::fs::symlink(microk8s, link).unwrap();
        let answer = on(linked.path(), KUBELET, "containerd://1.7.27");
        assert_eq!(answer, Ok(()));
    }

    #[test]
    fn a_drop_in_of_k0s_counts_by_the_file_that_k0s_makes() {
        let main = "version = 2\nimports = [\"/run/k0s/containerd-cri.toml\"]\n";
        let made = |text: &str| {
            let files = [
                ("etc/k0s/containerd.toml", main),
                ("run/k0s/containerd-cri.toml", text),
            ];
            let host = host(&files);
            on(host.path(), "/var/lib/k0s/kubelet", "containerd://1.7.25")
        };
        assert_eq!(made(ON), Ok(()));
        assert!(made(&ON.replace("true", "false")).is_err());
    }

    #[test]
    fn an_imported_table_replaces_the_main_one_before_containerd_2() {
        let main = format!("imports = [\"conf.d/*.toml\"]\n{ON}");
        let other = "[plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = \"x\"\n";
        assert!(answer("containerd://1.7.24", Some(&main), Some(other)).is_err());
        assert_eq!(answer("containerd://1.7.24", Some(&main), None), Ok(()));
        let imports = "imports = [\"/etc/containerd/conf.d/*.toml\"]\n";
        assert_eq!(
            answer("containerd://1.7.24", Some(imports), Some(ON)),
            Ok(())
        );
        // containerd 2 merges the tables.
        let off = main.replace("true", "false");
        assert!(answer("containerd://2.1.9", Some(&off), Some(other)).is_err());
    }

    #[test]
    fn a_table_that_containerd_ignores_in_the_files_version_counts_for_nothing() {
        const THREE: &str = "[plugins.\"io.containerd.cri.v1.runtime\"]\nenable_cdi = true\n";
        const ONE: &str = "[plugins.cri]\nenable_cdi = true\n";
        let old = "containerd://1.7.24";
        let both = format!("{THREE}{}", ON.replace("true", "false"));
        let both = format!("version = 2\n{}", both.replace("version = 2\n", ""));
        for (config, is_accepted) in [
            (both.clone(), false),
            (format!("version = 2\n{THREE}"), false),
            (format!("version = 3\n{THREE}"), false),
            (format!("version = 2\n{ONE}"), false),
            (ON.replace("version = 2\n", ""), false),
            (ONE.to_owned(), true),
            (format!("version = 1\n{ONE}"), true),
        ] {
            assert_eq!(
                answer(old, Some(&config), None).is_ok(),
                is_accepted,
                "{config}"
            );
        }
        let off = THREE.replace("true", "false");
        for (config, is_accepted) in [
            (both, false),
            (format!("version = 2\n{off}"), true),
            (format!("version = 3\n{off}"), false),
            (format!("version = 5\n{off}"), false),
            (off, false),
        ] {
            let new = answer("containerd://2.1.9", Some(&config), None);
            assert_eq!(new.is_ok(), is_accepted, "{config}");
        }
    }

    #[test]
    fn engines_that_use_cdi_unasked_are_accepted_and_others_refused() {
        for engine in [
            "containerd://2.1.9",
            "containerd://v2.0.0-rc.1",
            "cri-o://1.30.1",
        ] {
            assert_eq!(answer(engine, None, None), Ok(()), "{engine}");
        }
        for engine in [
            "containerd://1.6.20",
            "cri-o://1.22.0",
            "docker://27.0.1",
            "containerd://",
            "containerd",
            "",
        ] {
            assert!(answer(engine, Some(ON), None).is_err(), "{engine}");
        }
    }
}
