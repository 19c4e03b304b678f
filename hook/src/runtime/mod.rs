//! `gpuslice runtime configure`: container engines that run the hook, or the wrapper.
//! Touches: the engine's configuration; for containerd, `ctr`.

mod change;
mod containerd;
mod docker;
mod drop_in;
mod nvidia;
mod toml_file;

use crate::hook_entry::{self, HOOK, RUNTIME, When};
use crate::sizes::Size;
use crate::{exit, standard_streams};
use anyhow::{Context, bail};
use change::Change;
use clap::{Subcommand, ValueEnum};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What our runtime is called in every engine.
const NAME: &str = "gpuslice";

/// `gpuslice runtime`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What can be done with container engines.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Let a container engine give its containers slices
    Configure(Box<Configure>),
}

/// `gpuslice runtime configure`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Configure {
    /// The engine
    #[arg(long, value_enum, value_name = "ENGINE")]
    pub runtime: Engine,

    /// How: by a hook that the engine runs, or by gpuslice-runtime in place of its runtime
    #[arg(long, value_enum, value_name = "WAY")]
    pub by: Option<Way>,

    /// Its configuration [default: where the engine reads it]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// podman, CRI-O: the folder that the hook's files are put into
    #[arg(long, value_name = "DIR", default_value = HOOKS_D)]
    pub hooks_dir: PathBuf,

    /// podman, CRI-O: run the hook for every container, not only for those with an annotation
    #[arg(long)]
    pub always: bool,

    /// docker: a runtime `gpuslice-8gib` too, for an engine that passes no annotations on
    #[arg(long, value_name = "SIZE")]
    pub size: Vec<Size>,

    /// Make it the runtime of containers that ask for none
    #[arg(long)]
    pub set_as_default: bool,

    /// The hook's executable [default: gpuslice-hook beside gpuslice]
    #[arg(long, value_name = "FILE")]
    pub hook: Option<PathBuf>,

    /// Take out what an earlier call has put in
    #[arg(long)]
    pub remove: bool,

    /// Show what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

const EXAMPLES: &str = "\
What a file of others said is kept beside it as FILE.before-gpuslice.

Examples:
  gpuslice runtime configure --runtime docker --size 8GiB
  gpuslice runtime configure --runtime containerd --dry-run
  gpuslice runtime configure --runtime podman --remove";

/// Where an administrator's hooks are.
const HOOKS_D: &str = "/etc/containers/oci/hooks.d";

/// The engines that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// Docker Engine
    Docker,
    /// containerd, for Kubernetes
    Containerd,
    /// CRI-O
    Crio,
    /// podman
    Podman,
    /// nvidia-container-runtime, below which gpuslice-runtime is put
    Nvidia,
}

/// The ways in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// The engine runs gpuslice-hook
    Hooks,
    /// The engine runs gpuslice-runtime, which runs the real one
    Runtime,
}

/// What is to be done, all of it known.
struct Plan {
    changes: Vec<Change>,
    /// What would change as well, were it ours alone: and why it does not.
    kept: Option<String>,
    next: &'static str,
}

/// Does it.
///
/// # Errors
/// When a file cannot be read, understood or written.
pub fn main(args: &Args) -> anyhow::Result<u8> {
    let Verb::Configure(wanted) = &args.verb;
    let plan = wanted.plan()?;
    let changes: Vec<&Change> = plan.changes.iter().filter(|it| it.is_one()).collect();
    let mut said = String::new();
    for change in &changes {
        if wanted.dry_run {
            said.push_str(&change.shown());
        } else {
            said.push_str(&format!("{}\n", change.apply()?));
        }
    }
    if let Some(kept) = &plan.kept {
        said.push_str(&format!("{kept}\n"));
    }
    if changes.is_empty() {
        said.push_str("nothing to change\n");
    } else if !wanted.dry_run {
        said.push_str(&format!("next: {}\n", plan.next));
    }
    standard_streams::print(said.as_bytes())?;
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

    fn plan(&self) -> anyhow::Result<Plan> {
        let way = self.way()?;
        match self.runtime {
            Engine::Docker => self.docker(),
            Engine::Containerd => self.containerd(way),
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
            Engine::Nvidia => self.nvidia(),
        }
    }

    fn config(&self, usual: &str) -> anyhow::Result<PathBuf> {
        let path = self.config.as_deref().unwrap_or(Path::new(usual));
        std::path::absolute(path).with_context(|| format!("cannot use {}", path.display()))
    }

    /// The hook, as text: `find` has refused what is none.
    fn hook(&self) -> anyhow::Result<String> {
        let hook = hook_entry::find(self.hook.as_deref(), HOOK)?;
        Ok(hook.to_string_lossy().into_owned())
    }

    /// The wrapper, which is beside the hook.
    fn wrapper(&self) -> anyhow::Result<String> {
        let beside = self.hook.as_ref().map(|hook| hook.with_file_name(RUNTIME));
        let wrapper = hook_entry::find(beside.as_deref(), RUNTIME)?;
        Ok(wrapper.to_string_lossy().into_owned())
    }

    fn docker(&self) -> anyhow::Result<Plan> {
        let path = self.config("/etc/docker/daemon.json")?;
        let old = change::read(&path)?;
        let new = match self.remove {
            true => old.as_deref().map(docker::remove).transpose(),
            false => {
                let sizes = self.size.iter().map(|it| (it.name(), it.argument()));
                let wanted = docker::Wanted {
                    runtime: &self.wrapper()?,
                    sizes: sizes.collect(),
                    default: self.set_as_default,
                };
                docker::add(old.as_deref(), &wanted).map(Some)
            }
        };
        let new = new.with_context(|| format!("cannot change {}", path.display()))?;
        Ok(Plan {
            changes: vec![Change::edit(&path, old, new.unwrap_or_default())],
            kept: None,
            next: "systemctl reload docker",
        })
    }

    fn containerd(&self, way: Way) -> anyhow::Result<Plan> {
        let path = self.config("/etc/containerd/config.toml")?;
        let spec = path.with_file_name("gpuslice-base-spec.json");
        let old = change::read(&path)?;
        let wrong = || format!("cannot change {}", path.display());
        let (new, base) = if self.remove {
            let new = old.as_deref().map(containerd::remove).transpose();
            (new.with_context(wrong)?.unwrap_or_default(), None)
        } else {
            let (by, base) = match way {
                Way::Hooks => {
                    let file = spec.to_str().with_context(wrong)?;
                    let base = containerd::base_spec(old.as_deref()).with_context(wrong)?;
                    let base = base.filter(|base| Path::new(base) != spec);
                    let base = containerd::with_hooks(&base_spec(base)?, &self.hook()?)
                        .context("cannot put hooks into containerd's base specification")?;
                    (containerd::By::BaseSpec(file), Some(base))
                }
                Way::Runtime => (containerd::By::Runtime(&self.wrapper()?), None),
            };
            let new = containerd::add(old.as_deref(), by, self.set_as_default);
            (new.with_context(wrong)?, base)
        };
        // First what the other names: containerd does not start when it is not there.
        let mut changes = vec![Change::whole(&spec, base)?, Change::edit(&path, old, new)];
        if self.remove {
            changes.reverse();
        }
        Ok(Plan {
            changes,
            kept: None,
            next: "systemctl restart containerd (a RuntimeClass selects it by handler: gpuslice)",
        })
    }

    fn drop_in(
        &self,
        engine: &drop_in::Engine,
        (other, others): (&drop_in::Engine, &Path),
        way: Way,
        next: &'static str,
    ) -> anyhow::Result<Plan> {
        let path = self.config(engine.own)?;
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
        let (mut changes, mut kept) = (Vec::new(), None);
        // Those that are not wanted go, should another call have made them.
        for (name, _) in hook_entry::folder_files("", when) {
            let text = files.iter().find(|(other, _)| *other == name);
            let text = text.map(|(_, text)| text.clone());
            let change = Change::whole(&folder.join(name), text)?;
            match &needed {
                Some(why) if change.new.is_none() && change.is_one() => {
                    kept = Some(format!(
                        "the hook's files in {} stay: {why}",
                        folder.display()
                    ));
                }
                _ => changes.push(change),
            }
        }
        changes.push(Change::whole(&path, file)?);
        Ok(Plan {
            changes,
            kept,
            next,
        })
    }

    fn nvidia(&self) -> anyhow::Result<Plan> {
        let path = self.config("/etc/nvidia-container-runtime/config.toml")?;
        let old = change::read(&path)?;
        let wrapper = self.wrapper()?;
        let new = match (&old, self.remove) {
            (None, true) => Ok(String::new()),
            (Some(text), true) => nvidia::remove(text, &wrapper),
            (_, false) => nvidia::add(old.as_deref(), &wrapper),
        };
        let new = new.with_context(|| format!("cannot change {}", path.display()))?;
        Ok(Plan {
            changes: vec![Change::edit(&path, old, new)],
            kept: None,
            next: "nothing to restart; containers that run stay as they are",
        })
    }
}

/// The specification that ours is made from: the one that is configured, or containerd's own.
fn base_spec(configured: Option<String>) -> anyhow::Result<String> {
    if let Some(file) = configured {
        let text = change::read(Path::new(&file))?;
        return text
            .with_context(|| format!("containerd is told to read {file}, which is not there"));
    }
    let asked = Command::new("ctr").args(["oci", "spec"]).output();
    let asked = asked.context(
        "cannot run ctr, which knows containerd's own base specification (or use --by runtime)",
    )?;
    if !asked.status.success() {
        let said = String::from_utf8_lossy(&asked.stderr);
        bail!("ctr oci spec failed ({}): {}", asked.status, said.trim());
    }
    containerd::without_rlimits(&String::from_utf8(asked.stdout)?)
}

#[cfg(test)]
#[path = "change_tests.rs"]
mod change_tests;
