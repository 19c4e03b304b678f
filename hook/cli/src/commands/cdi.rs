//! `gpuslice cdi generate`: writes a CDI device for each size of a slice.
//! Touches: the driver (in a child) if no size is given; the requested file.

use crate::base::hook_entry::{self, ENVIRONMENT, HOOK, STAGES};
use crate::base::streams::tell;
use crate::base::{atomic_write, exit, streams};
use crate::commands::devices;
use crate::commands::engines::containerd_host;
use crate::driver::devices_file;
use crate::driver::inventory::Inventory;
use crate::slice::sizes::Size;
use clap::{Subcommand, ValueEnum};
use gpuslice_config::words::units::{Bytes, GIB};
use serde_json::{Value, json};
use std::path::PathBuf;

/// The kind of the devices, the first part of their names: `gpuslice.io/slice=24gib`.
pub(crate) const KIND: &str = "gpuslice.io/slice";

/// The lowest CDI version that lets a device's name begin with a digit. A reader refuses a version
/// newer than its own.
pub(crate) const VERSION: &str = "0.5.0";

/// `gpuslice cdi`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The command.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What can be done with CDI.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Write a CDI device for each size of slice, for podman run --device gpuslice.io/slice=24gib
    Generate(Generate),
}

/// `gpuslice cdi generate`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Generate {
    /// Write to a file instead of standard output [without FILE: /etc/cdi/gpuslice.yaml]
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = USUAL)]
    pub output: Option<PathBuf>,

    /// yaml or json [default: json for a file named *.json, else yaml]
    #[arg(long, value_enum, value_name = "FORMAT", hide_possible_values = true)]
    pub format: Option<Format>,

    /// A size; may be given several times [default: every whole GiB that the largest GPU has]
    #[arg(long, value_name = "SIZE")]
    pub size: Vec<Size>,

    /// The hook's executable [default: gpuslice-hook beside gpuslice]
    #[arg(long, value_name = "FILE")]
    pub hook: Option<PathBuf>,

    /// For the GPUs of a simulated machine, as in `gpuslice run`
    #[arg(long, value_name = "MACHINE")]
    pub sim: Option<String>,
}

const USUAL: &str = "/etc/cdi/gpuslice.yaml";

const EXAMPLES: &str = "\
Examples:
  gpuslice cdi generate --output /etc/cdi/gpuslice.yaml
  gpuslice cdi generate --size 8GiB --size 1536MiB";

/// How it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// YAML
    Yaml,
    /// JSON
    Json,
}

/// Writes the CDI specification.
///
/// # Errors
/// When there is no hook, when there is neither a working driver nor a size, or when the file
/// cannot be written.
pub(crate) fn main(args: &Args) -> anyhow::Result<u8> {
    let Verb::Generate(args) = &args.verb;
    if let Some(file) = &args.output {
        devices_file::refuse_simulated(args.sim.as_deref(), file)?;
    }
    let hook = hook_entry::find(args.hook.as_deref(), HOOK)?;
    let mut sizes = match args.size.is_empty() {
        true => whole_gibibytes(&devices::list(args.sim.as_deref())?),
        false => args.size.clone(),
    };
    sizes.sort_unstable();
    sizes.dedup();
    let called_json = || {
        let name = args.output.as_ref()?.extension()?;
        (name == "json").then_some(Format::Json)
    };
    let hook = hook.to_string_lossy();
    let text = match args.format.or_else(called_json).unwrap_or(Format::Yaml) {
        Format::Yaml => yaml(&hook, &sizes),
        Format::Json => hook_entry::pretty(&spec(&hook, &sizes)),
    };
    match &args.output {
        None => streams::print(text.as_bytes())?,
        Some(file) => {
            if let Some(folder) = atomic_write::make_folder_of(file, 0o755)? {
                tell(&format!("made the folder {}", folder.display()));
            }
            atomic_write::replace(file, text.as_bytes())?;
            tell(&format!(
                "{} devices of {KIND} in {}",
                sizes.len(),
                file.display()
            ));
            if let Some(why) = containerd_host::without_cdi() {
                tell(&why);
            }
        }
    }
    Ok(exit::SUCCESS)
}

/// Returns every whole number of GiB up to the memory of the largest GPU.
fn whole_gibibytes(inventory: &Inventory) -> Vec<Size> {
    let totals = inventory.devices.iter().flat_map(|device| {
        let instances = device.mig.iter().map(|instance| instance.total);
        instances.chain(device.mig.is_empty().then_some(device.total))
    });
    let most = totals
        .max()
        .map_or(0, |total| Bytes::new(total).get() / GIB);
    (1..=most).map(Size::gib).collect()
}

fn spec(hook: &str, sizes: &[Size]) -> Value {
    let devices = sizes.iter().map(|size| {
        let hooks = STAGES.map(|stage| {
            json!({
                "hookName": stage,
                "path": hook,
                "args": hook_entry::arguments(&options(*size), stage),
                "env": [ENVIRONMENT],
            })
        });
        json!({"name": size.name(), "containerEdits": {"hooks": hooks}})
    });
    json!({"cdiVersion": VERSION, "kind": KIND, "devices": devices.collect::<Vec<_>>()})
}

fn options(size: Size) -> Vec<String> {
    vec!["--memory".to_owned(), size.argument()]
}

/// Formats the YAML. Every JSON string is also a YAML string.
fn yaml(hook: &str, sizes: &[Size]) -> String {
    let mut text = format!(
        "# Made by gpuslice cdi generate: a slice of each size, for engines that know CDI.\n\
         cdiVersion: {}\nkind: {}\ndevices:\n",
        json!(VERSION),
        json!(KIND)
    );
    for size in sizes {
        text.push_str(&format!(
            "  - name: {}\n    containerEdits:\n      hooks:\n",
            json!(size.name())
        ));
        for stage in STAGES {
            text.push_str(&format!(
                "        - hookName: {}\n          path: {}\n          args: {}\n          env: {}\n",
                json!(stage),
                json!(hook),
                json!(hook_entry::arguments(&options(*size), stage)),
                json!([ENVIRONMENT])
            ));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_is_a_device_with_the_hook_and_its_environment() {
        let sizes = [Size::gib(24)];
        assert_eq!(
            yaml("/usr/bin/gpuslice-hook", &sizes),
            r#"# Made by gpuslice cdi generate: a slice of each size, for engines that know CDI.
cdiVersion: "0.5.0"
kind: "gpuslice.io/slice"
devices:
  - name: "24gib"
    containerEdits:
      hooks:
        - hookName: "createRuntime"
          path: "/usr/bin/gpuslice-hook"
          args: ["gpuslice-hook","--memory","24GiB","createRuntime"]
          env: ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
        - hookName: "poststop"
          path: "/usr/bin/gpuslice-hook"
          args: ["gpuslice-hook","--memory","24GiB","poststop"]
          env: ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
"#
        );
    }
}
