//! The options of `gpuslice runtime`.
//! Touches: its arguments.

use crate::slice::sizes::Size;
use clap::{Subcommand, ValueEnum};
use std::path::PathBuf;

/// `gpuslice runtime`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The command.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The commands for container engines.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Configure a container engine to give its containers slices
    Configure(Box<Configure>),
}

/// `gpuslice runtime configure`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Configure {
    /// The engine
    #[arg(long, value_enum, value_name = "ENGINE")]
    pub runtime: Engine,

    /// How containers get slices: by a hook, or by gpuslice-runtime in place of the engine's
    /// runtime
    #[arg(long, value_enum, value_name = "WAY")]
    pub by: Option<Way>,

    /// The engine's configuration file; podman, CRI-O: gpuslice's own file in the engine's folder
    /// [default: where the engine reads it]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// podman, CRI-O: the folder for the hook's files
    #[arg(long, value_name = "DIR", default_value = HOOKS_D)]
    pub hooks_dir: PathBuf,

    /// podman, CRI-O: run the hook for every container, not only for those with an annotation
    #[arg(long)]
    pub always: bool,

    /// docker: also add a runtime for this size (gpuslice-8gib), for a Docker without annotations;
    /// may be repeated
    #[arg(long, value_name = "SIZE")]
    pub size: Vec<Size>,

    /// Make gpuslice the default runtime
    #[arg(long)]
    pub set_as_default: bool,

    /// The hook's executable [default: gpuslice-hook beside gpuslice]
    #[arg(long, value_name = "FILE")]
    pub hook: Option<PathBuf>,

    /// Revert an earlier call
    #[arg(long)]
    pub remove: bool,

    /// Show the changes and their result, and change nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

const EXAMPLES: &str = "\
Before a file is changed, a copy is kept beside it as FILE.before-gpuslice. The lines \"result:\" say
whether annotated containers get slices, and what is missing.

JSON: schema, dry_run, changes [path, action (make, change or remove), done (text), lines (of the
diff)], notes [text], next (the command that puts the changes into force, or null), results [text].

Examples:
  gpuslice runtime configure --runtime docker --size 8GiB
  gpuslice runtime configure --runtime containerd --dry-run
  gpuslice runtime configure --runtime podman --remove";

/// The folder for an administrator's hooks.
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
