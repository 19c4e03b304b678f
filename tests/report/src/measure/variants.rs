//! The ways to run a program that are compared: bare, with an empty preload, with gpuslice's library
//! outside and inside a slice, and with another preload.

use super::readings::{self, Reading};
use crate::base::child;
use crate::base::place;
use crate::base::workshop::{LIMIT, Workshop};
use anyhow::{Context, Result, bail};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The longest that one turn of a variant may take.
const TURN: Duration = Duration::from_secs(180);

/// The device of `c/driver.c`.
const DEVICE: &str = "GPU-57575757-5757-5757-5757-575757575757";

/// What `PEER` and `PEER_ENV` name.
#[derive(Clone)]
pub(crate) struct Peer {
    library: PathBuf,
    environment: Vec<(String, String)>,
}

impl Peer {
    /// Reads the environment. `%d` in a value becomes a folder that is new in each section.
    pub(crate) fn of_environment() -> Result<Option<Peer>> {
        let Some(library) = std::env::var_os("PEER").filter(|library| !library.is_empty()) else {
            return Ok(None);
        };
        let library = PathBuf::from(library);
        let library = library
            .canonicalize()
            .with_context(|| format!("PEER={}", library.display()))?;
        let words = std::env::var("PEER_ENV").unwrap_or_default();
        let environment = words
            .split_whitespace()
            .map(|word| {
                let (name, value) = word
                    .split_once('=')
                    .with_context(|| format!("PEER_ENV: {word:?} is not NAME=VALUE"))?;
                Ok((name.to_owned(), value.to_owned()))
            })
            .collect::<Result<_>>()?;
        Ok(Some(Peer {
            library,
            environment,
        }))
    }

    /// The name of its file.
    pub(crate) fn name(&self) -> String {
        let name = self.library.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

/// One way to run a program.
pub(crate) struct Variant {
    pub(crate) name: String,
    environment: Vec<(OsString, OsString)>,
}

impl Variant {
    /// A way with this preload, and these variables besides.
    pub(crate) fn new(
        name: &str,
        libraries: &Path,
        preload: Option<&Path>,
        more: &[(&str, &OsStr)],
    ) -> Variant {
        let mut environment: Vec<(OsString, OsString)> = vec![
            ("PATH".into(), "/usr/bin:/bin".into()),
            ("LD_LIBRARY_PATH".into(), libraries.into()),
        ];
        if let Some(preload) = preload {
            environment.push(("LD_PRELOAD".into(), preload.into()));
        }
        let more = more.iter().map(|(name, value)| (name.into(), value.into()));
        environment.extend(more);
        Variant {
            name: name.to_owned(),
            environment,
        }
    }

    /// A command with the variant's environment, and no other.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        let variables = self.environment.iter().map(|(name, value)| (name, value));
        command.env_clear().envs(variables);
        command
    }

    /// What a program prints.
    pub(crate) fn output(&self, program: &Path, words: &[impl AsRef<OsStr>]) -> Result<String> {
        child::output(self.command(program).args(words), TURN)
    }

    /// Measures with a program of the workshop.
    pub(crate) fn measure(
        &self,
        workshop: &Workshop,
        program: &str,
        words: &[&str],
    ) -> Result<Vec<Reading>> {
        readings::parse(&self.output(&workshop.program(program), words)?)
    }

    /// Measures with programs that `launch` starts. Launch itself has no preload.
    pub(crate) fn launch(
        &self,
        workshop: &Workshop,
        how: &[&OsStr],
        program: &[&OsStr],
    ) -> Result<Vec<Reading>> {
        let mut command = Command::new(workshop.program("launch"));
        command.env_clear().args(how);
        for (name, value) in &self.environment {
            let mut pair = name.clone();
            pair.push("=");
            pair.push(value);
            command.arg(pair);
        }
        command.arg("--").args(program);
        readings::parse(&child::output(&mut command, TURN)?)
    }
}

/// The variants of a section on the drivers that answer at once, with a slice of its own.
pub(crate) fn on_stub(workshop: &Workshop, peer: Option<&Peer>) -> Result<Vec<Variant>> {
    let config = workshop.slice("slice", &format!(r#","memory":{LIMIT}"#))?;
    of_preloads(workshop, &workshop.drivers(), &[], &config, peer)
}

/// The variants with a slice file, on the drivers in a folder.
pub(crate) fn of_preloads(
    workshop: &Workshop,
    drivers: &Path,
    common: &[(&str, &OsStr)],
    config: &Path,
    peer: Option<&Peer>,
) -> Result<Vec<Variant>> {
    let library = place::target()?.join("release/libgpuslice.so");
    let variant = |name: &str, preload: Option<&Path>| Variant::new(name, drivers, preload, common);
    let empty = workshop.empty();
    let mut sliced = variant("gpuslice, in a slice", Some(&library));
    let config = ("GPUSLICE_CONFIG".into(), config.into());
    sliced.environment.push(config);
    let mut variants = vec![
        variant("no preload", None),
        variant("an empty preload", Some(&empty)),
        variant("gpuslice, no slice", Some(&library)),
        sliced,
    ];
    if let Some(peer) = peer {
        let mut other = variant(&format!("peer: {}", peer.name()), Some(&peer.library));
        let folder = workshop.fresh("peer")?;
        let folder = folder.to_string_lossy();
        let own = peer.environment.iter();
        let own = own.map(|(name, value)| (name.into(), value.replace("%d", &folder).into()));
        other.environment.extend(own);
        variants.push(other);
    }
    Ok(variants)
}

/// A slice whose limit the driver holds, for the cgroup of this process: the library only counts.
/// None: this machine has no cgroup v2.
pub(crate) fn held_by_driver(workshop: &Workshop) -> Result<Option<Variant>> {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Some(cgroup) = own.lines().find_map(|line| line.strip_prefix("0::")) else {
        return Ok(None);
    };
    let keys = format!(
        r#","driver_cgroup":"{cgroup}","devices":[{{"uuid":"{DEVICE}","memory":{LIMIT},"integrated":false,"driver_limit":"dmem"}}]"#
    );
    let config = workshop.slice("held", &keys)?;
    let library = place::target()?.join("release/libgpuslice.so");
    let name = "gpuslice, the driver enforces the limit";
    let more = [("GPUSLICE_CONFIG", config.as_os_str())];
    Ok(Some(Variant::new(
        name,
        &workshop.drivers(),
        Some(&library),
        &more,
    )))
}

/// The names of variants.
pub(crate) fn names(variants: &[Variant]) -> Vec<String> {
    variants
        .iter()
        .map(|variant| variant.name.clone())
        .collect()
}

/// Checks that gpuslice's variants are what their names say, by the total that CUDA reports. Returns
/// the total that a peer reports, as a note.
pub(crate) fn verify(workshop: &Workshop, variants: &[Variant]) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    for variant in variants {
        let said = variant.output(&workshop.program("start"), &["total"]);
        let total: u64 = match &said {
            Ok(said) => said.trim().parse().context("a total")?,
            // The rounds say why a peer fails.
            Err(_) if variant.name.starts_with("peer") => continue,
            Err(error) => bail!("{}: {error:#}", variant.name),
        };
        let is_sliced = variant
            .environment
            .iter()
            .any(|(name, _)| name == "GPUSLICE_CONFIG");
        let expected = match is_sliced {
            true => LIMIT,
            false => LIMIT.saturating_mul(2),
        };
        let says = format!(
            "{}: CUDA reports a total of {} GiB",
            variant.name,
            total >> 30
        );
        if variant.name.starts_with("peer") {
            notes.push(says);
        } else if total != expected {
            bail!(says);
        }
    }
    Ok(notes)
}
