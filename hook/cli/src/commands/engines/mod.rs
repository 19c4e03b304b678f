//! `gpuslice runtime configure`: configures container engines to run the hook or the wrapper.
//! Touches: the engine's configuration; for containerd, `ctr` and `containerd config dump`.

mod attributes;
mod below;
mod change;
mod containerd;
pub(crate) mod containerd_host;
mod docker;
mod drop_in;
pub(crate) mod effective;
mod imports;
mod nvidia;
mod nvidia_host;
mod options;
mod original;

mod toml_file;

use crate::base::hook_entry::{self, HOOK, RUNTIME, When};
use crate::base::{exit, streams};
use crate::commands::devices;
use anyhow::{Context, bail};
use change::outcome::Outcome;
use change::{Change, Files};
use gpuslice_host::base::paths::HostPaths;
pub(crate) use options::Args;
use options::{Configure, Engine, Verb, Way};
use std::path::{Path, PathBuf};

/// The name of gpuslice's runtime in every engine.
const NAME: &str = "gpuslice";

/// The planned changes.
struct Changes {
    changes: Vec<Change>,
    /// Messages about unexpected parts of the result, with their reasons.
    notes: Vec<String>,
    next: String,
}

/// Plans and applies the changes, or only shows them.
///
/// # Errors
/// When a file cannot be read, parsed or written.
pub(crate) fn main(args: &Args) -> anyhow::Result<u8> {
    let Verb::Configure(wanted) = &args.verb;
    let plan = wanted.plan()?;
    let changes: Vec<&Change> = plan.changes.iter().filter(|it| it.is_one()).collect();
    let mut outcome = Outcome::new(wanted.dry_run);
    // The diffs are those of the files before the changes.
    let diffs: Vec<_> = changes.iter().map(|change| change.diff()).collect();
    for (change, lines) in changes.iter().zip(diffs) {
        let done = match wanted.dry_run {
            true => change.rehearse(),
            false => change.apply(),
        };
        match done {
            Ok(done) => outcome.add(change, Some(done), lines),
            Err(error) => {
                outcome.add(change, None, lines);
                // The changes that were made before the failure are reported too.
                streams::print(outcome.printed(wanted.json)?.as_bytes())?;
                return Err(error);
            }
        }
    }
    outcome.notes.clone_from(&plan.notes);
    outcome.next = (!changes.is_empty()).then(|| plan.next.clone());
    let files = match wanted.dry_run {
        true => Files::after(&changes),
        false => Files::now(),
    };
    // The completed changes are reported even if the result is unknown.
    let unknown = |error| {
        vec![format!(
            "cannot determine whether containers get slices: {error:#}"
        )]
    };
    outcome.results = wanted.result(files).unwrap_or_else(unknown);
    if !wanted.remove {
        outcome.results.extend(devices::stale::of_this_host());
    }
    outcome.is_complete = true;
    streams::print(outcome.printed(wanted.json)?.as_bytes())?;
    Ok(exit::SUCCESS)
}

impl Configure {
    fn way(&self) -> anyhow::Result<Way> {
        let usual = match self.runtime {
            Engine::Docker | Engine::Nvidia => Way::Runtime,
            Engine::Containerd | Engine::Crio | Engine::Podman => Way::Hooks,
        };
        let way = self.by.unwrap_or(usual);
        let alone = matches!(self.runtime, Engine::Docker | Engine::Nvidia);
        if alone && way == Way::Hooks {
            bail!("this engine has no way to run a hook: leave out --by hooks");
        }
        if !self.size.is_empty() && self.runtime != Engine::Docker {
            bail!("--size is for docker: other engines pass annotations on");
        }
        let runtime = way == Way::Runtime && self.runtime != Engine::Nvidia;
        if self.set_as_default && !runtime && self.runtime != Engine::Containerd {
            bail!("--set-as-default needs a runtime: add --by runtime");
        }
        Ok(way)
    }

    fn plan(&self) -> anyhow::Result<Changes> {
        let way = self.way()?;
        match self.runtime {
            Engine::Docker => self.docker(),
            Engine::Containerd => containerd_host::plan(self, way),
            Engine::Crio => self.drop_in(
                &drop_in::CRIO,
                (&drop_in::PODMAN, Path::new(drop_in::PODMAN.own)),
                way,
                "systemctl restart crio",
            ),
            Engine::Podman => self.drop_in(
                &drop_in::PODMAN,
                (&drop_in::CRIO, Path::new(drop_in::CRIO.own)),
                way,
                "nothing to restart; containers that run stay as they are",
            ),
            Engine::Nvidia => nvidia_host::plan(self),
        }
    }

    /// Reports whether containers get slices now, and the settings that are missing.
    fn result(&self, files: Files<'_>) -> anyhow::Result<Vec<String>> {
        let way = self.way()?;
        let mut results = match self.runtime {
            Engine::Docker => self.docker_result(),
            Engine::Containerd => containerd_host::result(self, files)?,
            Engine::Crio => self.drop_in_result(&drop_in::CRIO, way, files)?,
            Engine::Podman => self.drop_in_result(&drop_in::PODMAN, way, files)?,
            Engine::Nvidia => nvidia_host::result(self, files)?,
        };
        let is_drop_in = matches!(self.runtime, Engine::Crio | Engine::Podman);
        let (which, remedy, is_for_all) = match (self.runtime, way) {
            // Containers get GPUs in other ways, too: by CDI devices, or by Docker's --gpus.
            (Engine::Nvidia, _) => (
                "that NVIDIA's runtime starts",
                "configure the engine as well, with --set-as-default",
                false,
            ),
            (_, Way::Hooks) if is_drop_in => (
                "with an annotation of gpuslice",
                "add --always",
                self.always,
            ),
            // With deny-unannotated, no pod of the node's own would start.
            (Engine::Containerd, _) => (
                "of the runtime gpuslice",
                "add --set-as-default, or use the NRI plugin on a node of Kubernetes",
                self.set_as_default,
            ),
            _ => (
                "of the runtime gpuslice",
                "add --set-as-default",
                self.set_as_default,
            ),
        };
        if !self.remove && !is_for_all {
            results.extend(drop_in::left_out(&HostPaths::default(), which, remedy)?);
        }
        Ok(results)
    }

    fn config(&self, usual: &str) -> anyhow::Result<PathBuf> {
        let path = self.config.as_deref().unwrap_or(Path::new(usual));
        std::path::absolute(path).with_context(|| format!("cannot use {}", path.display()))
    }

    /// Returns the hook's path as text. `find` has refused paths that are not UTF-8.
    fn hook(&self) -> anyhow::Result<String> {
        let hook = hook_entry::find(self.hook.as_deref(), HOOK)?;
        Ok(hook.to_string_lossy().into_owned())
    }

    /// Returns the path of the wrapper, which is in the hook's folder.
    fn wrapper(&self) -> anyhow::Result<String> {
        let beside = self.hook.as_ref().map(|hook| hook.with_file_name(RUNTIME));
        let wrapper = hook_entry::find(beside.as_deref(), RUNTIME)?;
        Ok(wrapper.to_string_lossy().into_owned())
    }

    fn docker(&self) -> anyhow::Result<Changes> {
        let path = self.config("/etc/docker/daemon.json")?;
        let old = change::read(&path)?;
        let wrong = || format!("cannot change {}", path.display());
        let change = if self.remove {
            let new = old.as_deref().map(docker::remove).transpose();
            let again = |text: Option<&str>| {
                if text.is_some_and(docker::has) {
                    return None;
                }
                let runtime = docker::Wanted {
                    runtime: RUNTIME,
                    ..docker::Wanted::default()
                };
                docker::remove(&docker::add(text, &runtime).ok()?).ok()
            };
            let new = new.with_context(wrong)?.unwrap_or_default();
            Change::back(&path, old, new, again)
        } else {
            let wrapper = self.wrapper()?;
            self.docker_allows(&path, old.as_deref(), &wrapper)?;
            let sizes = self.size.iter().map(|it| (it.name(), it.argument()));
            let wanted = docker::Wanted {
                runtime: &wrapper,
                sizes: sizes.collect(),
                default: self.set_as_default,
            };
            let new = docker::add(old.as_deref(), &wanted).with_context(wrong)?;
            Change::edit(&path, old, new)
        };
        Ok(Changes {
            changes: vec![change],
            notes: Vec::new(),
            next: "systemctl reload docker".to_owned(),
        })
    }

    /// Refuses changes that would take over the name of another tool's runtime, or remove the GPU
    /// from containers.
    fn docker_allows(&self, path: &Path, old: Option<&str>, wrapper: &str) -> anyhow::Result<()> {
        let is_wrapper = |program: &String| {
            Path::new(program)
                .file_name()
                .is_some_and(|name| name == RUNTIME)
        };
        if let Some(other) = docker::program(old, NAME).filter(|it| !is_wrapper(it)) {
            bail!(
                "{} has another runtime {NAME}, {other}: give it another name",
                path.display()
            );
        }
        let Some(default) = docker::default_runtime(old).filter(|_| self.set_as_default) else {
            return Ok(());
        };
        let program = docker::program(old, &default);
        let name = |path: &Path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("nvidia-container-runtime")
        };
        let is_nvidia = program
            .as_deref()
            .is_some_and(|program| name(Path::new(program)));
        if is_nvidia && !below::of(wrapper).is_ok_and(|below| name(&below)) {
            bail!(
                "the default runtime is {default}: with {NAME} in its place, containers that have \
                 NVIDIA_VISIBLE_DEVICES would have no driver; use gpuslice runtime configure --runtime nvidia, \
                 which puts gpuslice below it"
            );
        }
        match is_nvidia {
            true => Ok(()),
            false => below::may_replace(wrapper, &default, program.as_deref()),
        }
    }

    fn docker_result(&self) -> Vec<String> {
        if self.remove {
            return Vec::new();
        }
        let sized = self.size.iter().map(|size| {
            let (name, size) = (size.name(), size.argument());
            format!(", --runtime {NAME}-{name} one of {size}")
        });
        let all = match self.set_as_default {
            true => String::new(),
            false => format!("--runtime {NAME} with "),
        };
        vec![
            format!(
                "{all}--annotation gpuslice.io/memory=8GiB gives a container a slice (Docker 24 and later){}",
                sized.collect::<String>()
            ),
            "the GPU itself comes by --gpus or --device nvidia.com/gpu=0, not by NVIDIA_VISIBLE_DEVICES"
                .to_owned(),
        ]
    }

    fn drop_in(
        &self,
        engine: &drop_in::Engine,
        (other, others): (&drop_in::Engine, &Path),
        way: Way,
        next: &str,
    ) -> anyhow::Result<Changes> {
        let path = self.config(engine.own)?;
        engine.refuse_others(&path)?;
        let folder = std::path::absolute(&self.hooks_dir)?;
        let when = match self.always {
            true => When::Always,
            false => When::Annotated,
        };
        let (mut file, mut files) = (None, Vec::new());
        if !self.remove {
            let by_hooks = way == Way::Hooks;
            let runtime = (!by_hooks).then(|| self.wrapper()).transpose()?;
            let wanted = drop_in::Wanted {
                hooks: by_hooks.then(|| folder.to_str()).flatten(),
                runtime: runtime.as_deref(),
                default: self.set_as_default,
            };
            file = engine.file(&path, &wanted)?;
            if by_hooks {
                files = hook_entry::folder_files(&self.hook()?, when);
            }
        }
        let needed = other.needs(others, &folder.to_string_lossy());
        let (mut changes, mut notes) = (Vec::new(), Vec::new());
        // Files that this call does not need are removed, in case an earlier call has created them.
        for (name, _) in hook_entry::folder_files("", when) {
            let text = files.iter().find(|(other, _)| *other == name);
            let text = text.map(|(_, text)| text.clone());
            let change = Change::whole(&folder.join(name), text)?;
            match &needed {
                Some(why) if change.new.is_none() && change.is_one() => {
                    let note = format!("the hook's files in {} stay: {why}", folder.display());
                    if !notes.contains(&note) {
                        notes.push(note);
                    }
                }
                _ => changes.push(change),
            }
        }
        changes.push(Change::whole(&path, file)?);
        Ok(Changes {
            changes,
            notes,
            next: next.to_owned(),
        })
    }

    fn drop_in_result(
        &self,
        engine: &drop_in::Engine,
        way: Way,
        files: Files<'_>,
    ) -> anyhow::Result<Vec<String>> {
        let path = self.config(engine.own)?;
        if self.remove {
            let is_left = |file: &String| {
                let change = files.change_of(Path::new(file));
                change.is_none_or(|change| change.new.is_some())
            };
            let left = engine.hooks_left(&path)?.into_iter().filter(is_left);
            return Ok(left
                .map(|file| format!("annotated containers still get slices, by {file}: remove it"))
                .collect());
        }
        let folder = std::path::absolute(&self.hooks_dir)?;
        if way == Way::Hooks
            && let Some(file) = engine.replaced_by(&path, &folder.to_string_lossy())?
        {
            return Ok(vec![format!(
                "no container gets a slice: {} is read later, and its hooks_dir replaces that of {} \
                 (add {} to it)",
                file.display(),
                path.display(),
                folder.display()
            )]);
        }
        if way == Way::Runtime
            && self.set_as_default
            && let Some((file, name)) = engine.default_replaced_by(&path)?
        {
            return Ok(vec![format!(
                "no container gets a slice: {} is read later, and makes {name} the default runtime",
                file.display()
            )]);
        }
        let what = match (way, self.set_as_default) {
            (Way::Hooks, _) | (_, true) => "every container with",
            (Way::Runtime, false) if engine.name == drop_in::CRIO.name => {
                "a pod with runtimeClassName of handler gpuslice and"
            }
            (Way::Runtime, false) => "a container of --runtime gpuslice with",
        };
        Ok(vec![format!(
            "{what} annotation gpuslice.io/memory gets a slice"
        )])
    }
}

#[cfg(test)]
#[path = "change_tests.rs"]
mod change_tests;
