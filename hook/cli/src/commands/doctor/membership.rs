//! Determines the slice that a process is in, or should be in.
//! Touches: the process's slice file; environments of its ancestors; the registry of runs.

use super::process::ProcessFacts;
use super::process::root::Root;
use crate::commands::status::process::{Processes, name, variable};
use crate::driver::preload::LIBRARY;
use gpuslice_config::slice::{self, MAX_FILE, Slice, SliceError};
use gpuslice_config::words::paths;
use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The reason why a process should be in a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The hook has mounted the slice in the process's container.
    Mounted,
    /// The process's own environment names the slice file.
    Environment,
    /// The process has the slice's ledger mapped.
    Ledger,
    /// An ancestor's environment names the slice file, and the process's own does not.
    Ancestor {
        /// The ancestor.
        pid: u32,
        /// Its name.
        name: String,
    },
    /// The process is, or descends from, the command of a run.
    Run,
    /// The process is, or descends from, the owner of a slice that `gpuslice env` has made.
    Printed,
}

/// A run in a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunSeen {
    /// The slice file.
    pub(super) file: PathBuf,
    /// The command's process.
    pub(super) pid: Option<u32>,
    /// Whether `gpuslice env` has made it. The process is then the owner, which is not in the slice.
    pub(super) is_printed: bool,
    /// The user.
    pub(super) user: u32,
}

/// Why a slice file cannot be used.
#[derive(Debug)]
pub(super) enum FileFault {
    /// GPUSLICE_CONFIG is not set, so no file is named.
    Unnamed,
    /// It cannot be opened or read.
    Read(io::Error),
    /// Its text is not valid.
    Invalid(SliceError),
}

/// The slice of a process.
#[derive(Debug)]
pub(super) struct Membership {
    pub(super) origin: Origin,
    /// The slice file, by its path as the process sees it.
    pub(super) file: PathBuf,
    /// The slice file's contents.
    pub(super) written: Result<Box<Slice>, FileFault>,
    /// The slice as of the start, which the environment carries.
    pub(super) carried: Option<Box<Slice>>,
    /// The nearest ancestor whose LD_PRELOAD names the library, and its name.
    pub(super) preloading: Option<(u32, String)>,
}

fn text_of(name: &CStr) -> &[u8] {
    name.to_bytes()
}

/// Returns the slice files that the hook may have mounted.
pub(super) fn mounted_places() -> [PathBuf; 2] {
    [paths::MOUNTED_SLICE, paths::MOUNTED_IN_DEV]
        .map(|name| OsStr::from_bytes(text_of(name)).into())
}

/// Returns the reason, mounted by the hook, why a container runs without its slice.
pub(super) fn reason(process: &ProcessFacts) -> Option<String> {
    mounted_places().iter().find_map(|slice| {
        let file = slice.with_file_name(paths::NO_SLICE);
        let why = process.root.read(&file, process.creds, 4096).ok()?;
        let why = String::from_utf8_lossy(&why);
        Some(crate::base::text::printable(why.trim_end()))
    })
}

impl Membership {
    /// Determines the slice of a process; None if nothing says that it has one.
    pub(super) fn of(
        process: &ProcessFacts,
        processes: &Processes,
        runs: &[RunSeen],
    ) -> Option<Membership> {
        let ancestors = processes.ancestors(process.pid);
        let mut found = Membership::found(process, &ancestors, runs)?;
        if process.maps.libraries().is_empty() {
            found.preloading = ancestors.iter().find_map(|pid| {
                let listed = variable(*pid, b"LD_PRELOAD=")?;
                let mut names = listed.split(|byte| matches!(byte, b' ' | b':'));
                let is_named = names.any(|name| name.ends_with(LIBRARY.as_bytes()));
                is_named.then(|| (*pid, name(*pid).unwrap_or_default()))
            });
        }
        Some(found)
    }

    fn found(process: &ProcessFacts, ancestors: &[u32], runs: &[RunSeen]) -> Option<Membership> {
        let places = mounted_places();
        if let Some(file) = places.iter().find(|file| process.root.has(file)) {
            return Some(Membership::read(process, Origin::Mounted, file, None));
        }
        let environment = &process.environment;
        let carried = environment
            .get(text_of(paths::SLICE))
            .filter(|it| !it.is_empty());
        let carried = carried.map(OsStr::to_owned);
        if let Some(file) = environment.path(text_of(paths::CONFIG)) {
            let origin = Origin::Environment;
            return Some(Membership::read(process, origin, file, carried));
        }
        if let Some(file) = by_ledger(process) {
            return Some(Membership::read(process, Origin::Ledger, &file, carried));
        }
        if carried.is_some() {
            return Some(Membership {
                origin: Origin::Environment,
                file: PathBuf::new(),
                written: Err(FileFault::Unnamed),
                carried: parsed(carried),
                preloading: None,
            });
        }
        let of_ancestor = ancestors.iter().find_map(|pid| {
            let file = of(*pid, paths::CONFIG).filter(|file| !file.is_empty())?;
            let name = name(*pid).unwrap_or_default();
            let origin = Origin::Ancestor { pid: *pid, name };
            Some((origin, PathBuf::from(file), of(*pid, paths::SLICE)))
        });
        if let Some((origin, file, carried)) = of_ancestor {
            return Some(Membership::read(process, origin, &file, carried));
        }
        let is_its = |run: &&RunSeen| {
            run.pid
                .is_some_and(|pid| pid == process.pid || ancestors.contains(&pid))
        };
        let run = runs.iter().find(is_its)?;
        let origin = match run.is_printed {
            true => Origin::Printed,
            false => Origin::Run,
        };
        Some(Membership::read(process, origin, &run.file, None))
    }

    fn read(
        process: &ProcessFacts,
        origin: Origin,
        file: &Path,
        carried: Option<OsString>,
    ) -> Membership {
        let written = match origin {
            // The process has lost the file's name, so its own rights do not matter.
            Origin::Ancestor { .. } | Origin::Run | Origin::Printed => here(file),
            _ => in_view(&process.root, process, file),
        };
        Membership {
            carried: parsed(carried),
            file: file.to_owned(),
            origin,
            written,
            preloading: None,
        }
    }

    /// Returns the slice that holds for the process.
    pub(super) fn slice(&self) -> Option<&Slice> {
        let written = self.written.as_deref().ok();
        self.carried.as_deref().or(written)
    }

    /// Returns the slice's name.
    pub(super) fn name(&self) -> String {
        let name = self.slice().map(|slice| slice.name.as_str()).unwrap_or("");
        match name {
            "" => crate::base::text::escaped_path(&self.file),
            name => crate::base::text::printable(name),
        }
    }

    /// Checks whether the process is told of the slice, so that the library would apply it.
    pub(super) fn is_named(&self) -> bool {
        !matches!(
            self.origin,
            Origin::Ancestor { .. } | Origin::Run | Origin::Printed
        )
    }
}

fn of(pid: u32, variable_name: &CStr) -> Option<OsString> {
    let name = [text_of(variable_name), b"="].concat();
    variable(pid, &name).map(OsString::from_vec)
}

/// Returns the slice file beside the ledger of a run that the process has mapped.
fn by_ledger(process: &ProcessFacts) -> Option<PathBuf> {
    let is_run = |path: &&Path| {
        let name = path.file_name().unwrap_or_default().as_bytes();
        let folder = path.parent().and_then(Path::file_name).unwrap_or_default();
        name.starts_with(b"ledger") && folder.as_bytes().starts_with(b"gpuslice-")
    };
    let mut mapped = process.maps.files.iter().map(|file| file.path.as_path());
    let ledger = mapped.find(is_run)?;
    Some(ledger.with_file_name(crate::runs::run_dir::SLICE))
}

fn parsed(text: Option<OsString>) -> Option<Box<Slice>> {
    let text = text?;
    slice::parse(text.as_bytes()).ok().map(Box::new)
}

fn in_view(root: &Root, process: &ProcessFacts, file: &Path) -> Result<Box<Slice>, FileFault> {
    let text = root
        .read(file, process.creds, MAX_FILE.saturating_add(1))
        .map_err(FileFault::Read)?;
    let parsed = slice::parse(&text).map_err(FileFault::Invalid)?;
    Ok(Box::new(parsed))
}

fn here(file: &Path) -> Result<Box<Slice>, FileFault> {
    let text = gpuslice_host::base::read::file(file, MAX_FILE).map_err(FileFault::Read)?;
    let parsed = slice::parse(&text).map_err(FileFault::Invalid)?;
    Ok(Box::new(parsed))
}
