//! Writes the list of GPUs for the OCI hook, which gives containers slices of them. The hook is
//! static and cannot query the driver itself.
//! Touches: its arguments, and the file passed to `write`.

use crate::base::atomic_write::{self, ReplaceError};
use crate::base::destination;
use crate::base::streams::tell;
use crate::driver::inventory::{Device, Inventory};
use crate::driver::sim;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::machine::devices::{self, Devices};
use gpuslice_host::slices::tenants;
use std::path::{Path, PathBuf};

/// The path from which the hook reads the list.
pub(crate) const DEVICES: &str = "/run/gpuslice/devices.json";

/// The mode of the hook's folder: any user may pass through it, and only root may list it.
const FOLDER_MODE: u32 = 0o711;

/// Formats the list of these GPUs.
///
/// # Errors
/// Never in practice: names and numbers are always valid JSON.
pub(crate) fn text(inventory: &Inventory) -> serde_json::Result<String> {
    let devices = inventory.devices.iter().map(listed).collect();
    let mut listed = Devices::new(devices);
    listed.driver_limit = inventory.backend;
    devices::text(&listed)
}

fn listed(device: &Device) -> devices::Device {
    let instance = |instance: &crate::driver::inventory::MigInstance| devices::Instance {
        uuid: instance.uuid,
        memory: instance.total,
    };
    devices::Device {
        uuid: device.uuid,
        index: device.index,
        name: device.name.clone(),
        memory: device.total,
        integrated: device.integrated,
        minor: device.minor,
        driver_limits: Some(device.driver_limits),
        mig: device.mig.iter().map(instance).collect(),
    }
}

/// The folders that this host's container engines and the hook read.
const HOST: [&str; 5] = [
    "/etc/cdi",
    "/run/cdi",
    "/var/run/cdi",
    "/etc/gpuslice",
    "/run/gpuslice",
];

/// The error when the list of a simulated machine would be written to a file of this host.
#[derive(Debug, thiserror::Error)]
#[error(
    "{path} is for the GPUs of this host, and {machine} is a simulated machine: name a file in another \
     folder"
)]
pub(crate) struct Simulated {
    /// The file.
    pub path: PathBuf,
    /// The simulated machine.
    pub machine: String,
}

/// Refuses to write the GPUs of a simulated machine to a file that this host reads. `sim` is the
/// machine that the option names. Without the option, a program of `gpuslice run --sim` finds its
/// machine in its environment.
///
/// # Errors
/// When the file is in one of the folders that this host reads.
pub(crate) fn refuse_simulated(sim: Option<&str>, path: &Path) -> Result<(), Simulated> {
    let Some(machine) = sim.map(str::to_owned).or_else(sim::of_environment) else {
        return Ok(());
    };
    let path = destination::resolved(path);
    let is_below = |folder: &&str| {
        path.starts_with(folder) || path.starts_with(destination::resolved(Path::new(folder)))
    };
    match HOST.iter().any(is_below) {
        true => Err(Simulated { path, machine }),
        false => Ok(()),
    }
}

/// Writes the file.
///
/// # Errors
/// When the file or its folder cannot be created.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), ReplaceError> {
    let made = atomic_write::make_folder_of(path, FOLDER_MODE)?;
    if let Some(folder) = made.filter(|_| path != Path::new(DEVICES)) {
        tell(&format!("made the folder {}", folder.display()));
    }
    if path == Path::new(DEVICES) {
        // At boot, this creates the folder in which the runs of all users see each other's slices.
        let _ = tenants::make(&HostPaths::default());
    }
    atomic_write::replace(path, text.as_bytes())
}
