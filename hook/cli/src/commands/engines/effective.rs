//! Compares the configurations of the engines on a host with what slices need.
//! Touches: the engines' files and the hook's (reads); runs `containerd config dump`.
//! Law: nothing is written, and an engine that is not installed is not reported.

use super::toml_file::{find, parse};
use super::{NAME, change, containerd, containerd_host, docker, drop_in, imports, nvidia};
use crate::base::hook_entry::{HOOK, RUNTIME};
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::engine::toolkit;
use gpuslice_host::machine::policy;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use toml_edit::{DocumentMut, Item};

/// A difference, and the sentence that describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Its kind.
    pub(crate) kind: FaultKind,
    /// One sentence, which names the engine and the file.
    pub(crate) sentence: String,
    /// The engine, as `gpuslice runtime configure --runtime` takes it.
    pub(crate) engine: &'static str,
}

/// The kinds of differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// The engine runs neither the hook nor the wrapper.
    NotConfigured,
    /// The engine's files name a hook or wrapper that does not exist.
    HookMissing,
    /// A handler names a base specification that does not exist.
    BaseSpecMissing,
    /// gpuslice's handler is not in the configuration in effect.
    WithoutEffect,
    /// A handler passes no annotations on.
    DropsAnnotations,
    /// CDI devices are ignored, although one of gpuslice's is described.
    CdiDisabled,
    /// The toolkit provides GPUs without their device nodes in the configuration.
    ToolkitLegacy,
    /// The toolkit takes GPUs from CDI files, of which there are none.
    ToolkitWithoutCdi,
}

/// Returns the differences on the host below `root`.
pub(crate) fn faults(root: &Path) -> Vec<Fault> {
    let host = Host { root };
    let all = [
        host.docker(),
        host.containerd(),
        host.drop_in(&drop_in::CRIO, "usr/bin/crio"),
        host.drop_in(&drop_in::PODMAN, "usr/bin/podman"),
        host.nvidia(),
    ];
    all.into_iter().flatten().collect()
}

struct Host<'a> {
    root: &'a Path,
}

/// The files of NVIDIA's toolkit, below the root: that of packages, and the GPU operator's.
const TOOLKIT: [&str; 2] = [
    "etc/nvidia-container-runtime/config.toml",
    toolkit::OPERATOR,
];

/// The folders in which engines look for CDI files, below the root.
const CDI: [&str; 3] = ["etc/cdi", "var/run/cdi", "run/cdi"];

impl Host<'_> {
    /// Returns the place of an absolute path below the root.
    fn place(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    fn is_program(&self, path: impl AsRef<Path>) -> bool {
        let facts = fs::metadata(self.place(path));
        facts.is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
    }

    /// Reports a program that a file names and that does not exist.
    fn missing(&self, engine: &'static str, file: &Path, program: &str) -> Option<Fault> {
        (!self.is_program(program)).then(|| Fault {
            kind: FaultKind::HookMissing,
            sentence: format!(
                "{} names {program}, which is no executable file: {engine} starts no container with it",
                file.display()
            ),
            engine,
        })
    }

    fn not_configured(&self, engine: &'static str, file: &Path) -> Fault {
        Fault {
            kind: FaultKind::NotConfigured,
            sentence: format!(
                "{engine} does not run gpuslice's hook ({}), so annotations give its containers no \
                 slice",
                file.display()
            ),
            engine,
        }
    }

    fn docker(&self) -> Vec<Fault> {
        let file = self.place("/etc/docker/daemon.json");
        let is_there = file.exists() || self.is_program("/usr/bin/dockerd");
        if !is_there {
            return Vec::new();
        }
        let text = change::read(&file).ok().flatten();
        let ours = docker::program(text.as_deref(), NAME);
        match ours.filter(|_| text.as_deref().is_some_and(docker::has)) {
            None => vec![self.not_configured("docker", &file)],
            Some(wrapper) => self
                .missing("docker", &file, &wrapper)
                .into_iter()
                .collect(),
        }
    }

    fn containerd(&self) -> Vec<Fault> {
        let file = self.place(containerd_host::CONFIG);
        let Some(text) = change::read(&file).ok().flatten() else {
            return Vec::new();
        };
        let fault = |kind, sentence| Fault {
            kind,
            sentence,
            engine: "containerd",
        };
        let Ok(main) = parse(Some(&text)) else {
            return Vec::new();
        };
        let dump = containerd_host::dump(&file);
        let in_effect = dump.as_ref().unwrap_or(&main);
        let handlers = containerd::handlers_of(in_effect);
        let mut found: Vec<Fault> = Vec::new();
        for handler in &handlers {
            let spec = handler.spec.as_deref().map(|spec| self.place(spec));
            if let Some(spec) = spec.filter(|spec| !spec.exists()) {
                let sentence = format!(
                    "handler {} of containerd names the base specification {}, which does not \
                     exist: containerd's CRI plugin does not start",
                    handler.name,
                    spec.display()
                );
                found.push(fault(FaultKind::BaseSpecMissing, sentence));
            }
        }
        let is_ours = |all: &DocumentMut| {
            let all = containerd::handlers_of(all);
            all.into_iter().any(|handler| handler.name == NAME)
        };
        let files = imports::of(&file, Some(&text));
        let somewhere = is_ours(&main) || files.iter().any(|file| is_ours(&file.document));
        match handlers.iter().find(|handler| handler.name == NAME) {
            None if somewhere => found.push(fault(
                FaultKind::WithoutEffect,
                format!(
                    "{} has handler {NAME}, which is not in containerd's configuration in effect: \
                     an imported file replaces the CRI plugin's table",
                    file.display()
                ),
            )),
            None => found.push(self.not_configured("containerd", &file)),
            Some(_) => {}
        }
        let wrapped = self.toolkit_runs_ours();
        // An unusable policy has a finding of its own.
        let policy = policy::read(&HostPaths::below(self.root)).unwrap_or_default();
        for handler in &handlers {
            let needs = handler.name == NAME || handler.is_nvidia() && wrapped;
            let lacking = handler.lacks(policy.dialects);
            if needs && !lacking.is_empty() {
                let sentence = format!(
                    "handler {} of containerd does not pass on {}, so its pods with these annotations get \
                     no slice",
                    handler.name,
                    lacking.join(", ")
                );
                found.push(fault(FaultKind::DropsAnnotations, sentence));
            }
            let binary = handler.binary.as_deref().filter(|_| handler.name == NAME);
            found.extend(binary.and_then(|binary| self.missing("containerd", &file, binary)));
        }
        let described = self.cdi_file("gpuslice.io");
        if let Some(described) = described.filter(|_| !containerd::knows_cdi(in_effect)) {
            let sentence = format!(
                "containerd ignores CDI devices (enable_cdi is not true in {}), although {} \
                 describes slices",
                file.display(),
                described.display()
            );
            found.push(fault(FaultKind::CdiDisabled, sentence));
        }
        found
    }

    /// Returns a CDI file that contains a text.
    fn cdi_file(&self, text: &str) -> Option<PathBuf> {
        let folders = CDI.iter().map(|folder| self.root.join(folder));
        let entries = folders.filter_map(|folder| fs::read_dir(folder).ok());
        let mut files = entries.flatten().flatten().map(|entry| entry.path());
        files.find(|file| fs::read_to_string(file).is_ok_and(|it| it.contains(text)))
    }

    fn drop_in(&self, engine: &drop_in::Engine, program: &str) -> Vec<Fault> {
        let own = self.place(engine.own);
        if !self.is_program(program) && !own.exists() {
            return Vec::new();
        }
        let Ok(mut folders) = engine.hooks_read(&own) else {
            return Vec::new();
        };
        if let Ok(Some(said)) = engine.said_in(&own) {
            // A list of a later file is in `folders` already.
            let is_last = |folder: &String| matches!(engine.replaced_by(&own, folder), Ok(None));
            folders = match said.iter().all(is_last) {
                true => said,
                false => folders,
            };
        }
        let files = folders.iter().flat_map(|folder| self.hook_files(folder));
        let mut found = Vec::new();
        let mut is_configured = false;
        for (file, hook) in files {
            is_configured = true;
            found.extend(self.missing(engine.name, &file, &hook));
        }
        let text = change::read(&own).ok().flatten();
        if let Some(wrapper) = text.as_deref().and_then(|text| engine.runtime_in(text)) {
            is_configured = true;
            found.extend(self.missing(engine.name, &own, &wrapper));
        }
        if !is_configured {
            found.push(self.not_configured(engine.name, &own));
        }
        // The two files of the hook name one program.
        found.dedup_by(|one, other| one.kind == other.kind);
        found
    }

    /// Returns the files of gpuslice's hook in a folder of hooks, and the program that each names.
    fn hook_files(&self, folder: &str) -> Vec<(PathBuf, String)> {
        let entries = fs::read_dir(self.place(folder)).into_iter().flatten();
        let hook = |file: PathBuf| {
            let text = fs::read(&file).ok()?;
            let value: Value = serde_json::from_slice(&text).ok()?;
            let path = value.get("hook")?.get("path")?.as_str()?.to_owned();
            let is_ours = Path::new(&path)
                .file_name()
                .is_some_and(|name| name == HOOK);
            is_ours.then_some((file, path))
        };
        let files = entries.flatten().map(|entry| entry.path());
        let files = files.filter(|file| file.extension().is_some_and(|it| it == "json"));
        let mut found: Vec<(PathBuf, String)> = files.filter_map(hook).collect();
        found.sort();
        found
    }

    fn toolkit(&self) -> Option<(PathBuf, DocumentMut, Vec<String>)> {
        let mut files = TOOLKIT.iter().map(|file| self.root.join(file));
        let file = files.find(|file| file.exists())?;
        let text = change::read(&file).ok().flatten()?;
        let document = parse(Some(&text)).ok()?;
        let runtimes = nvidia::runtimes(Some(&text)).ok()?;
        Some((file, document, runtimes))
    }

    /// Checks whether NVIDIA's runtime starts gpuslice's wrapper.
    fn toolkit_runs_ours(&self) -> bool {
        let runtimes = self
            .toolkit()
            .map_or(Vec::new(), |(_, _, runtimes)| runtimes);
        runtimes.iter().any(|runtime| is_wrapper(runtime))
    }

    fn nvidia(&self) -> Vec<Fault> {
        let Some((file, document, runtimes)) = self.toolkit() else {
            return Vec::new();
        };
        let fault = |kind, sentence| Fault {
            kind,
            sentence,
            engine: "nvidia",
        };
        let mut found = Vec::new();
        let wrapper = runtimes.iter().find(|runtime| is_wrapper(runtime));
        found.extend(wrapper.and_then(|it| self.missing("nvidia", &file, it)));
        let mode = find(&document, &["nvidia-container-runtime", "mode"]);
        let mode = mode.and_then(Item::as_str).unwrap_or("auto");
        if mode == "legacy" {
            let sentence = format!(
                "the NVIDIA toolkit is in legacy mode ({}): a container's configuration does not \
                 name its GPUs, so a size without an index counts on every GPU",
                file.display()
            );
            found.push(fault(FaultKind::ToolkitLegacy, sentence));
        }
        if mode == "cdi" && self.cdi_file("nvidia.com/gpu").is_none() {
            let sentence = format!(
                "the NVIDIA toolkit is in cdi mode ({}), and no file of /etc/cdi or /var/run/cdi \
                 describes nvidia.com/gpu: containers get no GPU",
                file.display()
            );
            found.push(fault(FaultKind::ToolkitWithoutCdi, sentence));
        }
        found
    }
}

fn is_wrapper(runtime: &str) -> bool {
    let name = Path::new(runtime).file_name().unwrap_or_default();
    name == RUNTIME
}
