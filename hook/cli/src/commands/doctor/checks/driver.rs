//! Checks the driver that a process uses: its libraries, its GPUs, MPS and MIG.
//! Touches: folders of LD_LIBRARY_PATH; the driver, in a child.

use super::Case;
use crate::base::text::escaped_path;
use crate::commands::doctor::codes::Code;
use crate::commands::doctor::finding::Finding;
use crate::driver::sim::LIBRARY_PATH;
use crate::slice::visible_gpus::{Seen, VARIABLE};
use gpuslice_config::words::device::DeviceUuid;
use std::path::{Path, PathBuf};

/// The libraries of the driver.
const LIBRARIES: [&str; 2] = ["libcuda.so", "libnvidia-ml.so"];

/// Adds the findings about the driver's libraries, and about MPS.
pub(super) fn check(case: &Case<'_>, found: &mut Vec<Finding>) {
    found.extend(LIBRARIES.iter().filter_map(|name| twice(case, name)));
    found.extend(stub(case));
    found.extend(mps(case));
}

/// Reports a library of the driver that is loaded twice, or that two folders have.
fn twice(case: &Case<'_>, name: &str) -> Option<Finding> {
    let who = case.who();
    let loaded = case.process.maps.named(name);
    if let [one, other, ..] = loaded.as_slice()
        && one.identity != other.identity
    {
        let sentence = format!(
            "{who} has loaded {name} twice: {} and {}",
            escaped_path(&one.path),
            escaped_path(&other.path)
        );
        return Some(Finding::new(Code::DriverTwice, sentence));
    }
    let folders = library_path(case);
    let mut with: Vec<&PathBuf> = Vec::new();
    for folder in folders.iter().filter(|folder| has(case, folder, name)) {
        // A branch of the simulated driver is in a folder below the driver's.
        let is_nested = |known: &&PathBuf| known.starts_with(folder) || folder.starts_with(known);
        if !with.iter().any(is_nested) {
            with.push(folder);
        }
    }
    let [first, other, ..] = with.as_slice() else {
        return None;
    };
    let sentence = format!(
        "{LIBRARY_PATH} of {who} has {name} in {} and in {}; ld.so takes the first",
        escaped_path(first),
        escaped_path(other)
    );
    Some(Finding::new(Code::DriverTwice, sentence))
}

/// Returns the folders that LD_LIBRARY_PATH of a process names.
fn library_path(case: &Case<'_>) -> Vec<PathBuf> {
    let path = case.process.environment.get(LIBRARY_PATH.as_bytes());
    let folders = path.into_iter().flat_map(std::env::split_paths);
    folders.filter(|folder| folder.is_absolute()).collect()
}

fn has(case: &Case<'_>, folder: &Path, name: &str) -> bool {
    case.process.root.has(&folder.join(format!("{name}.1")))
}

/// Reports the stub of the CUDA toolkit in the driver's place.
fn stub(case: &Case<'_>) -> Option<Finding> {
    let is_stub = |path: &&Path| {
        path.parent()
            .is_some_and(|folder| folder.ends_with("stubs"))
    };
    let drivers = case.process.maps.drivers();
    let path = drivers
        .iter()
        .map(|file| file.path.as_path())
        .find(is_stub)?;
    let sentence = format!(
        "{} has loaded {}, which has no functions: every call of the driver fails",
        case.who(),
        escaped_path(path)
    );
    Some(Finding::new(Code::DriverStub, sentence))
}

/// The variables of an MPS client.
const MPS: [&str; 4] = [
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_MPS_LOG_DIRECTORY",
];

/// Reports a process whose environment makes it a client of MPS.
fn mps(case: &Case<'_>) -> Option<Finding> {
    let set: Vec<&str> = MPS
        .into_iter()
        .filter(|name| case.process.environment.get(name.as_bytes()).is_some())
        .collect();
    (!set.is_empty()).then(|| {
        let verb = match set.len() {
            1 => "is",
            _ => "are",
        };
        let sentence = format!(
            "{} of {} {verb} set: MPS has a memory limit of its own, and NVML reports the memory \
             under the server's process",
            set.join(" and "),
            case.who()
        );
        Finding::new(Code::Mps, sentence)
    })
}

/// Adds the findings about the GPUs that a process sees, and those that its slice limits.
pub(super) fn visible(case: &Case<'_>, found: &mut Vec<Finding>) {
    let Some(slice) = case.slice.slice().filter(|slice| slice.limits_something()) else {
        return;
    };
    let who = case.who();
    let value = case.process.environment.get(VARIABLE.as_bytes());
    let value = value.map(|value| value.to_string_lossy().into_owned());
    let hides_all = value.as_deref().is_some_and(|value| {
        let first = value.split(',').next().unwrap_or_default().trim();
        first.is_empty() || first == "NoDevFiles" || first.starts_with('-')
    });
    let set = || crate::base::text::printable(value.as_deref().unwrap_or_default());
    if hides_all {
        let sentence = format!("{VARIABLE}={} hides every GPU from {who}", set());
        found.push(Finding::new(Code::NoVisibleGpu, sentence));
        return;
    }
    // A container has only some of the host's GPUs, and the driver was queried on the host.
    let inventory = case.gpus.of(case.process).filter(|_| !case.is_mounted());
    let Some(inventory) = inventory else {
        return;
    };
    let divided = inventory.devices.iter().find(|device| {
        let is_listed = |uuid: DeviceUuid| slice.devices().any(|listed| listed.uuid == uuid);
        let mut instances = device.mig.iter();
        !device.mig.is_empty()
            && is_listed(device.uuid)
            && !instances.any(|one| slice.device(one.uuid).is_some())
    });
    if let Some(device) = divided {
        let sentence = format!(
            "slice {} limits GPU {}, which MIG divides, and none of its instances",
            case.slice.name(),
            device.index
        );
        found.push(Finding::new(Code::MigDivided, sentence));
        return;
    }
    let seen = Seen::with(value.as_deref(), &inventory);
    if !inventory.targets().any(|target| seen.contains(target.uuid)) {
        let sentence = match value {
            Some(_) => format!("{VARIABLE}={} names no GPU that {who} could see", set()),
            None => format!("the driver shows no GPU to {who}"),
        };
        found.push(Finding::new(Code::NoVisibleGpu, sentence));
    } else if let Err(unseen) = seen.check(slice, &inventory) {
        found.push(Finding::new(
            Code::GpuNotLimited,
            format!("of {who}: {unseen}"),
        ));
    } else if let Some(gap) = seen.gap(slice) {
        found.push(Finding::warning(
            Code::GpuNotLimited,
            format!("of {who}: {gap}"),
        ));
    }
}
