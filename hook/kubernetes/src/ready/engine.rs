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

/// The configuration files of containerd, of k3s and of RKE2.
const CONFIGS: [&str; 3] = [
    "/etc/containerd/config.toml",
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
];

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
            match enabled(settings, is_new).unwrap_or(is_new) {
                true => Ok(()),
                false => Err(format!(
                    "{shown} ignores CDI devices, so containers would have the whole GPU: set \
                     enable_cdi = true in its CRI plugin and restart it"
                )),
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

/// What `enable_cdi` is set to. Before 2.0, the CRI table of an imported file replaces that of the
/// main file as a whole.
fn enabled(settings: &Settings, is_new: bool) -> Option<bool> {
    let main = configurations(settings)
        .into_iter()
        .find(|file| file.exists())?;
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

/// The places where the main file of containerd may be.
#[must_use]
pub fn configurations(settings: &Settings) -> [PathBuf; 3] {
    CONFIGS.map(|file| settings.on_host(Path::new(file)))
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

    /// The answer on a host whose containerd has this configuration.
    fn answer(engine: &str, config: Option<&str>, imported: Option<&str>) -> Result<(), String> {
        let host = tempfile::tempdir().unwrap();
        let folder = host.path().join("etc/containerd/conf.d");
        fs::create_dir_all(&folder).unwrap();
        if let Some(text) = config {
            fs::write(host.path().join("etc/containerd/config.toml"), text).unwrap();
        }
        if let Some(text) = imported {
            fs::write(folder.join("99.toml"), text).unwrap();
        }
        let root = host.path().to_string_lossy().into_owned();
        let settings = Settings::parse_from(["gpuslice-dra", "--host-root", root.as_str()]);
        check(&settings, engine)
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
        assert!(answer(engine, Some("version = 2\n"), None).is_err());
        assert!(answer(engine, Some("not toml"), None).is_err());
        assert_eq!(answer(engine, Some(ON), None), Ok(()));
        assert!(answer(engine, Some(&ON.replace("true", "false")), None).is_err());
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
