//! `gpuslice driver-limit`: sets the driver's own memory limit of a cgroup, if the driver supports
//! it.
//! Touches: the driver (in a child), standard output.

use crate::base::exit::{self, Status};
use crate::base::streams;
use crate::commands::devices;
use crate::driver::ask::AskError;
use crate::driver::limit_probe::{self, Beside, Limit, LimitError};
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
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

    /// Use the GPU of a simulated machine, as in `gpuslice run`
    #[arg(long, value_name = "MACHINE")]
    pub sim: Option<String>,
}

const NOTES: &str = "\
The OCI hook calls this command for each GPU of a container that the driver may limit. It requires root, cgroup v2, and a driver with
nvmlDeviceSetMemoryLimits_v1 (R615, CUDA 13.4 or later). The driver has no limits for MIG instances,
nor for GPUs that share the host's memory (GB10, Thor).

A lower limit and a higher guarantee that are already set stay. Without --guarantee, a new soft
limit is 0. A guarantee is added to dmem.min of every ancestor where the kernel has the dmem
controller (6.14 or later), and the driver does not take it back when the cgroup is removed: set it
to 0 by NVML before.";

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
    let uuid = args.device;
    let limit = Limit {
        uuid,
        hard: args.memory,
        soft: args.guarantee,
    };
    let answer = limit_probe::ask(&args.cgroup, &[limit], Beside::KeepLower, &vars);
    let answer = answer.map_err(|error| match error {
        AskError::Start(_) => error.into(),
        _ => ended(exit::NO_DRIVER, error.to_string()),
    })?;
    let held = answer.map_err(|error| {
        let message = error.to_string();
        match error {
            LimitError::NoLibrary(_) => ended(exit::NO_DRIVER, message),
            LimitError::NotThere(_) => ended(exit::NO_DRIVER_LIMIT, message),
            LimitError::Refused { .. } | LimitError::NotInForce(_) | LimitError::Above(_) => {
                error.into()
            }
        }
    })?;
    let said = format!(
        "the driver holds {} to {} of {uuid}\n",
        args.cgroup.display(),
        held.hard.first().copied().map_or(args.memory, Bytes::new)
    );
    streams::print(said.as_bytes())?;
    Ok(exit::SUCCESS)
}

fn ended(status: u8, message: String) -> anyhow::Error {
    Status { status, message }.into()
}
