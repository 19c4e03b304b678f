//! Checks the settings of a slice that do not break it.
//! Touches: the log file's folder; the driver's limit of a cgroup, and the ledger, by reading them.

use super::{Case, ledger};
use crate::base::text::duration;
use crate::base::text::escaped_path;
use crate::commands::doctor::codes::Code;
use crate::commands::doctor::finding::Finding;
use crate::commands::doctor::process::root::For;
use crate::commands::status::process::cgroup;
use crate::runs::host_memory;
use gpuslice_config::answer::observed::shared_device;
use gpuslice_config::slice::{PresentAs, Slice};
use gpuslice_config::words::paths;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::slices::meminfo_page;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Adds the findings about settings.
pub(super) fn check(case: &Case<'_>, found: &mut Vec<Finding>) {
    let Some(slice) = case.slice.slice() else {
        return;
    };
    if !slice.enforce && slice.limits_something() {
        let sentence = format!(
            "slice {} counts memory and refuses none (--no-enforce)",
            case.slice.name()
        );
        found.push(Finding::new(Code::NotEnforced, sentence));
    }
    found.extend(log_file(case));
    found.extend(meminfo(case, slice));
    found.extend(page(case, slice));
    found.extend(driver_limit(case, slice));
}

/// Checks whether the program can append to its log file.
fn log_file(case: &Case<'_>) -> Option<Finding> {
    let process = case.process;
    let file = process.environment.path(paths::LOG_FILE.to_bytes())?;
    let shown = escaped_path(file);
    let error = process.root.file(file, process.creds, For::Writing).err()?;
    let folder = file.parent().unwrap_or(Path::new("/"));
    let why = match error.kind() {
        ErrorKind::NotFound if !process.root.has(folder) => {
            format!("the folder of {shown} does not exist")
        }
        ErrorKind::NotFound if process.root.is_writable(folder, process.creds) => return None,
        ErrorKind::NotFound => format!("{shown} does not exist and cannot be created"),
        ErrorKind::PermissionDenied => format!("{shown} may not be written"),
        ErrorKind::IsADirectory => format!("{shown} is a folder"),
        ErrorKind::ReadOnlyFilesystem => format!("{shown} is on a read-only file system"),
        // A terminal or a pipe is a log file, too.
        _ => return None,
    };
    let sentence = format!("the log lines of {} are lost: {why}", case.who());
    Some(Finding::new(Code::LogNotWritable, sentence))
}

/// Checks whether a program on unified memory can read the host's meminfo.
fn meminfo(case: &Case<'_>, slice: &Slice) -> Option<Finding> {
    let is_unified = slice
        .devices()
        .any(|listed| listed.integrated == Some(true));
    let named = slice.meminfo.map(|path| PathBuf::from(path.as_str()));
    let mounted = Path::new(OsStr::from_bytes(paths::MOUNTED_MEMINFO.to_bytes()));
    let file = match named {
        Some(named) => named,
        None if case.is_mounted() && is_unified => mounted.to_owned(),
        None => return None,
    };
    let root = &case.process.root;
    let opened = root.file(&file, case.process.creds, For::Reading);
    let error = opened.err().filter(|_| is_unified)?;
    let shows = match slice.present_as {
        PresentAs::Uma => {
            "FREE and /proc/meminfo are then computed from a copy of the host's file, or not at all"
        }
        PresentAs::Discrete => {
            "FREE is then computed from a copy of the host's file, or not at all"
        }
    };
    let sentence = format!(
        "{} cannot read {}, the host's live meminfo ({error}); {shows}",
        case.who(),
        escaped_path(&file)
    );
    Some(Finding::new(Code::MeminfoMissing, sentence))
}

/// Checks that the meminfo that is mounted for a program is still written.
fn page(case: &Case<'_>, slice: &Slice) -> Option<Finding> {
    shared_device(slice)?;
    let meminfo = Path::new(host_memory::MEMINFO);
    let opened = case
        .process
        .root
        .file(meminfo, case.process.creds, For::Reading);
    let age = meminfo_page::age_if_mounted(&opened.ok()?)?;
    (age > meminfo_page::OLD).then(|| {
        let sentence = format!(
            "/proc/meminfo of {}, which is mounted for programs without the library, was last written \
             {} ago",
            case.who(),
            duration(Duration::from_secs(age.as_secs()))
        );
        Finding::new(Code::MeminfoOld, sentence)
    })
}

/// Compares the driver's limit of the process's cgroup with the slice. The driver keeps it in the
/// file `dmem.max`, if the kernel has that controller.
fn driver_limit(case: &Case<'_>, slice: &Slice) -> Option<Finding> {
    let cgroup = cgroup(case.process.pid)?;
    let below = cgroup.strip_prefix("/").ok()?;
    let file = case.places.root().join(below).join("dmem.max");
    let text = fs::read_to_string(&file).ok()?;
    let limits = text.lines().filter_map(|line| {
        let (region, limit) = line.rsplit_once(' ')?;
        let limit = limit.parse().ok()?;
        region.starts_with("nvidia/").then_some(Bytes::new(limit))
    });
    let lowest = limits.min()?;
    let mut slice = *slice;
    for (uuid, limit) in ledger::limits(case) {
        slice.set_limit(uuid, limit);
    }
    let own = slice.devices().filter_map(|listed| listed.memory);
    let own = own.chain(slice.memory).min()?;
    (lowest < own).then(|| {
        let sentence = format!(
            "the driver limits the cgroup of {} to {lowest}, less than the slice's {own} ({})",
            case.who(),
            escaped_path(&file)
        );
        Finding::new(Code::DriverLimitLower, sentence)
    })
}
