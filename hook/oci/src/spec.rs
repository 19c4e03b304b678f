//! The container's config.json, as far as a hook needs it.
//! Touches: its arguments; `read` the file in the bundle.

use crate::read;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// How much is read: Docker's, with its seccomp profile, is under 100 KiB.
pub const CAP: usize = 8 << 20;

/// What a runtime was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Spec {
    /// Its file system.
    #[serde(default)]
    pub root: Root,
    /// Its first program.
    #[serde(default)]
    pub process: Option<Process>,
    /// What is mounted into it.
    #[serde(default)]
    pub mounts: Vec<Mount>,
    /// What people and engines have written on it.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// What only Linux has.
    #[serde(default)]
    pub linux: Option<Linux>,
    /// The hooks of every stage.
    #[serde(default)]
    pub hooks: Option<BTreeMap<String, Option<Vec<Hook>>>>,
}

/// `root`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Root {
    /// Where it is, relative to the bundle.
    #[serde(default)]
    pub path: PathBuf,
    /// Whether it is read-only in the end.
    #[serde(default)]
    pub readonly: bool,
}

/// `process`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Process {
    /// The program and its arguments.
    #[serde(default)]
    pub args: Vec<String>,
}

/// One of `mounts`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Mount {
    /// Where the container sees it.
    pub destination: PathBuf,
    /// What it is on the host.
    #[serde(default)]
    pub source: Option<PathBuf>,
    /// Which file system; `bind` or none for a folder of the host.
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
    /// Its options.
    #[serde(default)]
    pub options: Vec<String>,
}

/// `linux`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Linux {
    /// Which namespaces are its own.
    #[serde(default)]
    pub namespaces: Vec<Namespace>,
    /// Which devices are made in its /dev.
    #[serde(default)]
    pub devices: Option<Vec<DeviceNode>>,
    /// What its cgroup allows.
    #[serde(default)]
    pub resources: Option<Resources>,
}

/// One of `linux.devices`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct DeviceNode {
    /// `c`, `b`, ...
    #[serde(default, rename = "type")]
    pub kind: String,
    /// The driver's number.
    #[serde(default)]
    pub major: Option<i64>,
    /// The device's.
    #[serde(default)]
    pub minor: Option<i64>,
}

/// `linux.resources`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Resources {
    /// The rules, the later ones over the earlier.
    #[serde(default)]
    pub devices: Option<Vec<DeviceRule>>,
}

/// One of `linux.resources.devices`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct DeviceRule {
    /// Whether it allows.
    #[serde(default)]
    pub allow: bool,
    /// `a` or none for all.
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
    /// None or less than 0 for all.
    #[serde(default)]
    pub major: Option<i64>,
    /// Likewise.
    #[serde(default)]
    pub minor: Option<i64>,
    /// Some of `rwm`; none for all.
    #[serde(default)]
    pub access: Option<String>,
}

/// One of `hooks`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Hook {
    /// The program.
    #[serde(default)]
    pub path: PathBuf,
    /// Its name and arguments.
    #[serde(default)]
    pub args: Vec<String>,
}

/// One of `linux.namespaces`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Namespace {
    /// `mount`, `user`, ...
    #[serde(rename = "type")]
    pub kind: String,
}

/// Why a config.json cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// It cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is not a config.json.
    #[error("{path} is not an OCI config.json")]
    Json {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The state says nothing of a bundle.
    #[error("the container's state names no bundle")]
    NoBundle,
}

/// Reads the config.json of a bundle.
///
/// # Errors
/// When it is not there, is not one, or is larger than any.
pub fn read(bundle: &Path) -> Result<Spec, SpecError> {
    if bundle.as_os_str().is_empty() {
        return Err(SpecError::NoBundle);
    }
    let path = bundle.join("config.json");
    match read::file(&path, CAP) {
        Err(source) => Err(SpecError::Read { path, source }),
        Ok(text) => parse(&text).map_err(|source| SpecError::Json { path, source }),
    }
}

/// Reads the text of a config.json.
///
/// # Errors
/// When it is not one.
pub fn parse(text: &[u8]) -> serde_json::Result<Spec> {
    serde_json::from_slice(text)
}

impl Spec {
    /// The container's file system, on the host.
    #[must_use]
    pub fn rootfs(&self, bundle: &Path) -> PathBuf {
        bundle.join(&self.root.path)
    }

    /// Whether its users are numbered apart from the runtime's.
    #[must_use]
    pub fn has_user_namespace(&self) -> bool {
        let namespaces = self.linux.iter().flat_map(|linux| &linux.namespaces);
        namespaces.into_iter().any(|own| own.kind == "user")
    }

    /// The folder of the host that the container sees at `destination`.
    #[must_use]
    pub fn source_of(&self, destination: &Path) -> Option<&Path> {
        let mount = self
            .mounts
            .iter()
            .rfind(|mount| mount.destination == destination)?;
        let bind = |option: &String| option == "bind" || option == "rbind";
        let is_bind = mount.kind.as_deref() == Some("bind") || mount.options.iter().any(bind);
        let source = mount.source.as_deref()?;
        (is_bind && source.is_absolute()).then_some(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_hook_needs_is_read_and_the_rest_is_passed_over() {
        let spec = parse(
            br#"{"ociVersion":"1.0.2","hostname":"h","root":{"path":"rootfs","readonly":true},
            "process":{"args":["/bin/sh"],"env":["LD_PRELOAD=/evil.so"]},
            "mounts":[{"destination":"/models","type":"bind","source":"/srv/models","options":["rbind","ro"]},
                      {"destination":"/proc","type":"proc","source":"proc"}],
            "annotations":{"a":"b"},"linux":{"namespaces":[{"type":"mount"}],"seccomp":{}}}"#,
        )
        .unwrap();
        assert_eq!(spec.rootfs(Path::new("/b")), Path::new("/b/rootfs"));
        assert!(spec.root.readonly);
        let source = |path| spec.source_of(Path::new(path));
        assert_eq!(source("/models"), Some(Path::new("/srv/models")));
        assert_eq!(source("/proc"), None);
        assert_eq!(source("/nowhere"), None);
    }

    #[test]
    fn a_cut_file_a_missing_bundle_and_a_huge_file_are_refused() {
        let bundle = tempfile::tempdir().unwrap();
        let said = |bundle: &Path| read(bundle).unwrap_err().to_string();
        let path = bundle.path().join("config.json");
        assert_eq!(
            said(bundle.path()),
            format!("cannot read {}", path.display())
        );
        std::fs::write(&path, r#"{"root":{"path":"ro"#).unwrap();
        assert!(said(bundle.path()).ends_with("is not an OCI config.json"));
        std::fs::File::create(&path)
            .unwrap()
            .set_len(1 << 30)
            .unwrap();
        assert!(matches!(read(bundle.path()), Err(SpecError::Read { .. })));
        assert!(matches!(read(Path::new("")), Err(SpecError::NoBundle)));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused_without_a_panic(
            text in proptest::collection::vec(proptest::num::u8::ANY, 0..300),
        ) {
            let _ = parse(&text);
        }
    }
}
