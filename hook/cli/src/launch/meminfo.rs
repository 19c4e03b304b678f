//! `--meminfo mount`: the slice's meminfo page over `/proc/meminfo`.
//! Touches: this process's own mount namespace.
//! Law: the programs of the run see the page, and no other process does. The library of the run still
//! reads the host's own file, which is mounted beside the page.

use crate::launch::facts::Facts;
use crate::runs::{host_memory, run_dir};
use crate::slice::choices::MeminfoChoice;
use crate::slice::options::SliceOptions;
use gpuslice_config::answer::observed::shared_device;
use gpuslice_config::slice::{PresentAs, Slice};
use gpuslice_host::base::own_mounts::{self, Later};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Why the page cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MeminfoError {
    /// The caller is not root.
    #[error(
        "--meminfo mount requires root: a user namespace would take groups and set-user-ID programs \
         away from the program (without root, use --present-as discrete for a static program)"
    )]
    NotRoot,
    /// The slice shows a card.
    #[error("--meminfo mount contradicts --present-as discrete, which leaves /proc/meminfo alone")]
    Discrete,
    /// The programs of `gpuslice env` run already.
    #[error("gpuslice env cannot mount /proc/meminfo for a shell that runs already")]
    Env,
    /// The page would be on a disk.
    #[error("--meminfo mount requires a tmpfs: $XDG_RUNTIME_DIR, $TMPDIR or /dev/shm")]
    NoTmpfs,
    /// The page cannot be made.
    #[error("cannot make {path}, which shows the slice's memory")]
    Make {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The kernel refuses a mount.
    #[error("cannot mount {path} over /proc/meminfo (--meminfo preload does not mount)")]
    Mount {
        path: PathBuf,
        #[source]
        source: nix::Error,
    },
}

/// Decides whether a run gets a page. On a card with memory of its own the option has no effect.
pub(crate) fn decide(
    options: &SliceOptions,
    slice: Option<&Slice>,
    facts: &Facts,
) -> Result<bool, MeminfoError> {
    let Some(slice) = slice.filter(|_| options.meminfo == Some(MeminfoChoice::Mount)) else {
        return Ok(false);
    };
    let shares = slice.devices().any(|one| one.integrated == Some(true));
    match () {
        () if !shares => Ok(false),
        () if slice.present_as == PresentAs::Discrete => Err(MeminfoError::Discrete),
        () if facts.owner.is_some() => Err(MeminfoError::Env),
        () if !facts.is_root => Err(MeminfoError::NotRoot),
        () => Ok(shared_device(slice).is_some()),
    }
}

/// Makes the place at which the programs of a run find the host's own meminfo, and returns it.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn make_place(private: &Path) -> Result<PathBuf, MeminfoError> {
    let path = private.join(run_dir::HOSTS_MEMINFO);
    match File::create_new(&path) {
        Ok(_) => Ok(path),
        Err(source) => Err(MeminfoError::Make { path, source }),
    }
}

/// Mounts a page at `/proc/meminfo` for this process and all processes that it starts.
///
/// # Errors
/// When the kernel refuses it.
pub(crate) fn show(page: &Path) -> Result<(), MeminfoError> {
    let failed = |source| MeminfoError::Mount {
        path: page.to_owned(),
        source,
    };
    own_mounts::enter(Later::Seen).map_err(failed)?;
    let (meminfo, place) = (
        Path::new(host_memory::MEMINFO),
        page.with_file_name(run_dir::HOSTS_MEMINFO),
    );
    // A simulated machine has a meminfo of its own.
    if place.exists() {
        own_mounts::bind(meminfo, &place).map_err(failed)?;
    }
    own_mounts::bind_read_only(page, meminfo).map_err(failed)
}
