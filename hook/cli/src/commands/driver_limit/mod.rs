//! `gpuslice driver-limit`: sets the driver's own memory limit of a cgroup, if the driver supports
//! it.
//! Touches: the driver (in a child), standard output.

pub(crate) mod probe;

use crate::base::exit::{self, Status};
use crate::base::streams;
use crate::commands::devices;
use crate::driver::ask::{self, AskError};
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use probe::{Answer, LimitError};
use std::ffi::OsStr;
use std::path::PathBuf;

/// `gpuslice driver-limit`.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub struct Args {
    /// Absolute path of the cgroup's folder; it must be the leaf in which the processes run
    #[arg(long, value_name = "PATH")]
    pub cgroup: PathBuf,

    /// Uuid of the GPU; the driver cannot limit MIG instances
    #[arg(long, value_name = "UUID")]
    pub device: DeviceUuid,

    /// Hard limit: device memory that the cgroup's processes may hold together
    #[arg(long, value_name = "SIZE")]
    pub memory: Bytes,

    /// Soft limit: device memory that the driver guarantees to the cgroup (see below)
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = crate::slice::options::amount)]
    pub guarantee: Bytes,

    /// Replace a hard limit of this size, which was set before; any other lower limit stays
    #[arg(long, value_name = "SIZE")]
    pub replace: Option<Bytes>,

    /// Use the GPU of a simulated machine, as in `gpuslice run`
    #[arg(long, value_name = "MACHINE")]
    pub sim: Option<String>,
}

const NOTES: &str = "\
The OCI hook calls this command for each container. It requires root, cgroup v2, and a driver with
nvmlDeviceSetMemoryLimits_v1 (R615, CUDA 13.4 or later). The driver has no limits for MIG instances,
nor for GPUs that share the host's memory (GB10, Thor).

A lower limit that is already set stays, unless --replace names it. Without --guarantee the soft limit is 0. A guarantee is
added to dmem.min of every ancestor where the kernel has the dmem controller (6.14 or later), and
the driver does not take it back when the cgroup is removed: set it to 0 before.";

/// Sets the limit.
///
/// # Errors
/// When the driver does not support limits ([`exit::NO_DRIVER_LIMIT`]), when there is no driver
/// ([`exit::NO_DRIVER`]), or when the driver refuses.
pub(crate) fn main(args: &Args) -> anyhow::Result<u8> {
    let machine = args
        .sim
        .as_deref()
        .map(crate::launch::prepare::simulated)
        .transpose()?;
    let vars = devices::variables(machine.as_ref());
    if args.guarantee > args.memory {
        anyhow::bail!(
            "--guarantee {} is more than --memory {}",
            args.guarantee,
            args.memory
        );
    }
    let (uuid, memory) = (args.device.to_string(), args.memory.get().to_string());
    let guarantee = args.guarantee.get().to_string();
    let replaced = args.replace.map_or(u64::MAX, Bytes::get).to_string();
    let arguments = [
        OsStr::new("driver-limit-probe"),
        args.cgroup.as_os_str(),
        uuid.as_ref(),
        memory.as_ref(),
        guarantee.as_ref(),
        replaced.as_ref(),
    ];
    let answer = ask::child::<Answer>(&arguments, &vars, "setting the limit of a cgroup");
    let (answer, _) = answer.map_err(|error| match error {
        AskError::Start(_) => error.into(),
        _ => ended(exit::NO_DRIVER, error.to_string()),
    })?;
    let held = answer.map_err(|error| {
        let message = error.to_string();
        match error {
            LimitError::NoLibrary(_) => ended(exit::NO_DRIVER, message),
            LimitError::NotThere(_) => ended(exit::NO_DRIVER_LIMIT, message),
            LimitError::Refused { .. } => error.into(),
        }
    })?;
    let said = format!(
        "the driver holds {} to {} of {uuid}\n",
        args.cgroup.display(),
        Bytes::new(held)
    );
    streams::print(said.as_bytes())?;
    Ok(exit::SUCCESS)
}

fn ended(status: u8, message: String) -> anyhow::Error {
    Status { status, message }.into()
}
