//! Reads the parts of a container's config.json that a hook needs.
//! Touches: its arguments; `read` the file in the bundle.
//! Law: fields that a container's user sets and a hook does not need (its environment, its
//! arguments, foreign annotations) are skipped, whatever their length.

use crate::request::annotations;
use crate::request::dialects::table;
use crate::request::json_filter::{self, Ambiguous, Keep};
use crate::request::nvidia_variables::{OLD_CUDA, VISIBLE};
use crate::request::spec_error::SpecError;
use gpuslice_host::base::read;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The most bytes kept of a config.json. An ordinary one needs a few KiB.
pub const CAP: usize = 8 << 20;

/// The annotations in which engines record a container and its pod.
const ENGINES: &str = "io.kubernetes.";

/// The prefix of the variables that tell NVIDIA's toolkit which limit to set in the driver.
pub const MEMORY: &str = "NVIDIA_GPU_MEMORY_";

/// The variables to read.
const ENV: [&str; 9] = {
    let [cuda, priority, oversubscribe, control, mps, toolkit] = table::VARIABLES;
    let [version, require] = OLD_CUDA;
    [
        VISIBLE,
        version,
        require,
        cuda,
        priority,
        oversubscribe,
        control,
        mps,
        toolkit,
    ]
};

/// The annotations to read.
pub(crate) const ANNOTATIONS: Keep = Keep::Named(&{
    let [memory, fraction, mps, container, portion, shares] = table::ANNOTATIONS;
    [
        annotations::PREFIX,
        ENGINES,
        memory,
        fraction,
        mps,
        container,
        portion,
        shares,
    ]
});

/// The members of a config.json to read: the fields of [`Spec`].
const KEPT: Keep = Keep::Members(&[
    (
        "root",
        Keep::Members(&[("path", Keep::All), ("readonly", Keep::All)]),
    ),
    (
        "process",
        Keep::Members(&[("args", Keep::First), ("env", Keep::Starting(&ENV))]),
    ),
    ("mounts", Keep::All),
    ("annotations", ANNOTATIONS),
    (
        "linux",
        Keep::Members(&[
            ("namespaces", Keep::All),
            ("devices", Keep::All),
            ("maskedPaths", Keep::All),
            ("resources", Keep::Members(&[("devices", Keep::All)])),
        ]),
    ),
    (
        "hooks",
        Keep::Each(&Keep::Elements(&Keep::Members(&[
            ("path", Keep::All),
            ("args", Keep::All),
        ]))),
    ),
]);

/// A container's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Spec {
    /// Its file system.
    #[serde(default)]
    pub root: SpecRoot,
    /// Its first program.
    #[serde(default)]
    pub process: Option<SpecProcess>,
    /// Its mounts.
    #[serde(default)]
    pub mounts: Vec<SpecMount>,
    /// The annotations of users and engines.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// The settings that only Linux has.
    #[serde(default)]
    pub linux: Option<Linux>,
    /// The hooks of every stage.
    #[serde(default)]
    pub hooks: Option<BTreeMap<String, Option<Vec<Hook>>>>,
}

/// `root`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct SpecRoot {
    /// Its path, relative to the bundle.
    #[serde(default)]
    pub path: PathBuf,
    /// Whether it is read-only once the container runs.
    #[serde(default)]
    pub readonly: bool,
}

/// `process`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct SpecProcess {
    /// The program. Its arguments are left out.
    #[serde(default)]
    pub args: Vec<String>,
    /// The variables that request GPUs or GPU memory, in the words of NVIDIA and HAMi.
    #[serde(default)]
    pub env: Vec<String>,
}

/// One of `mounts`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct SpecMount {
    /// The path in the container.
    pub destination: PathBuf,
    /// The path on the host.
    #[serde(default)]
    pub source: Option<PathBuf>,
    /// The file system's type; `bind` or none for a folder of the host.
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
    /// Its options.
    #[serde(default)]
    pub options: Vec<String>,
}

/// `linux`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Linux {
    /// The namespaces that the container does not share with the runtime.
    #[serde(default)]
    pub namespaces: Vec<Namespace>,
    /// The devices that are created in its /dev.
    #[serde(default)]
    pub devices: Option<Vec<DeviceNode>>,
    /// The resources that its cgroup allows.
    #[serde(default)]
    pub resources: Option<Resources>,
    /// The paths that the runtime hides below empty mounts, after all hooks have run.
    #[serde(default, rename = "maskedPaths")]
    pub masked_paths: Option<Vec<PathBuf>>,
}

/// One of `linux.devices`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct DeviceNode {
    /// The path in the container.
    #[serde(default)]
    pub path: PathBuf,
    /// `c`, `b`, ...
    #[serde(default, rename = "type")]
    pub kind: String,
    /// The major number.
    #[serde(default)]
    pub major: Option<i64>,
    /// The minor number.
    #[serde(default)]
    pub minor: Option<i64>,
}

/// `linux.resources`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Resources {
    /// The rules; later ones override earlier ones.
    #[serde(default)]
    pub devices: Option<Vec<DeviceRule>>,
}

/// One of `linux.resources.devices`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct DeviceRule {
    /// Whether the rule allows.
    #[serde(default)]
    pub allow: bool,
    /// The type; `a` or none for all.
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
    /// The major number; none or negative for all.
    #[serde(default)]
    pub major: Option<i64>,
    /// The minor number; none or negative for all.
    #[serde(default)]
    pub minor: Option<i64>,
    /// The access, some of `rwm`; none for all.
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
    /// The namespace to join; empty for a new one.
    #[serde(default)]
    pub path: PathBuf,
}

/// Reads the config.json of a bundle.
///
/// # Errors
/// When it is missing, is invalid, or needs more than [`CAP`] bytes.
pub fn read(bundle: &Path) -> Result<Spec, SpecError> {
    if bundle.as_os_str().is_empty() {
        return Err(SpecError::NoBundle);
    }
    let path = bundle.join("config.json");
    match read::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && bundle == Path::new("/") => {
            Err(SpecError::RootBundle)
        }
        Err(source) => Err(SpecError::Read { path, source }),
        Ok(file) => reduced(file).map_err(|source| match Ambiguous::of(&source) {
            Some(_) => SpecError::Ambiguous { path, source },
            None => SpecError::Content { path, source },
        }),
    }
}

/// Parses the text of a config.json.
///
/// # Errors
/// When it is not a config.json.
pub fn parse(text: &[u8]) -> io::Result<Spec> {
    reduced(text)
}

fn reduced(from: impl Read) -> io::Result<Spec> {
    let kept = json_filter::reduce(from, &KEPT, CAP)?;
    Ok(serde_json::from_slice(&kept)?)
}

impl Spec {
    /// The paths that the runtime masks after the hooks.
    #[must_use]
    pub fn masked_paths(&self) -> &[PathBuf] {
        let linux = self.linux.as_ref();
        linux
            .and_then(|linux| linux.masked_paths.as_deref())
            .unwrap_or_default()
    }

    /// The variables that are read.
    #[must_use]
    pub fn env(&self) -> &[String] {
        let process = self.process.as_ref();
        process
            .map(|process| process.env.as_slice())
            .unwrap_or_default()
    }

    /// The container's file system, on the host.
    #[must_use]
    pub fn rootfs(&self, bundle: &Path) -> PathBuf {
        bundle.join(&self.root.path)
    }

    /// Whether it has a user namespace of its own, apart from the runtime's.
    #[must_use]
    pub fn has_user_namespace(&self) -> bool {
        let namespaces = self.linux.iter().flat_map(|linux| &linux.namespaces);
        namespaces.into_iter().any(|own| own.kind == "user")
    }

    /// Whether its pid namespace has foreign processes: it joins a namespace, or uses the
    /// runtime's.
    #[must_use]
    pub fn shares_pids(&self) -> bool {
        let namespaces = self.linux.iter().flat_map(|linux| &linux.namespaces);
        let mut pids = namespaces.filter(|own| own.kind == "pid");
        !pids.any(|own| own.path.as_os_str().is_empty())
    }

    /// The host folder that the container sees at `destination`.
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
            "annotations":{"a":"b","gpuslice.io/memory":"1GiB","io.kubernetes.cri.container-name":"c"},
            "linux":{"namespaces":[{"type":"mount"}],"seccomp":{}}}"#,
        )
        .unwrap();
        assert_eq!(spec.rootfs(Path::new("/b")), Path::new("/b/rootfs"));
        assert!(spec.root.readonly);
        assert_eq!(spec.process.clone().unwrap().args, ["/bin/sh"]);
        assert_eq!(spec.annotations.len(), 2);
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
        assert!(matches!(
            read(bundle.path()),
            Err(SpecError::Content { .. })
        ));
        assert!(matches!(read(Path::new("")), Err(SpecError::NoBundle)));
        assert!(matches!(read(Path::new("/")), Err(SpecError::RootBundle)));
    }

    #[test]
    fn an_environment_of_many_megabytes_is_skipped() {
        let bundle = tempfile::tempdir().unwrap();
        let variable = format!("X={}", "<".repeat(60_000)).replace('<', "\\u003c");
        let env = vec![format!("\"{variable}\""); 30].join(",");
        let text = format!(
            r#"{{"process":{{"env":[{env}],"args":["/bin/true",{env}]}},"annotations":{{"x":"{variable}","gpuslice.io/memory":"1GiB"}}}}"#
        );
        assert!(text.len() > 2 * CAP);
        std::fs::write(bundle.path().join("config.json"), text).unwrap();
        let spec = read(bundle.path()).unwrap();
        assert_eq!(spec.process.unwrap().args, ["/bin/true"]);
        assert_eq!(spec.annotations["gpuslice.io/memory"], "1GiB");
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
