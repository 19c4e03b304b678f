//! `gpuslice driver-limit`: the driver's own limit for a container's cgroup, where it has any.
//! Touches: the driver (in a child), standard output.

pub mod probe;

use crate::devices;
use crate::exit::{self, Status};
use crate::inventory::ask::{self, AskError};
use crate::standard_streams;
use gpuslice_config::device::DeviceUuid;
use gpuslice_config::units::Bytes;
use probe::{Answer, LimitError};
use std::ffi::OsStr;
use std::path::PathBuf;

/// `gpuslice driver-limit`.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub struct Args {
    /// The cgroup, by its folder
    #[arg(long, value_name = "PATH")]
    pub cgroup: PathBuf,

    /// The GPU; its instances cannot be limited so
    #[arg(long, value_name = "UUID")]
    pub device: DeviceUuid,

    /// What the cgroup's processes may hold of it together
    #[arg(long, value_name = "SIZE")]
    pub memory: Bytes,

    /// The GPU is a simulated machine's, as in `gpuslice run`
    #[arg(long, value_name = "MACHINE")]
    pub sim: Option<String>,
}

const NOTES: &str = "\
The OCI hook calls it for each container. It needs root, a driver that has
nvmlDeviceSetMemoryLimits_v1 (13.5), and goes with the cgroup.";

/// Sets it.
///
/// # Errors
/// When the driver has no such limits ([`exit::NO_DRIVER_LIMIT`]), there is no driver
/// ([`exit::NO_DRIVER`]), or it refuses.
pub fn main(args: &Args) -> anyhow::Result<u8> {
    let machine = args.sim.as_deref().map(devices::simulated).transpose()?;
    let vars = devices::variables(machine.as_ref());
    let (uuid, memory) = (args.device.to_string(), args.memory.get().to_string());
    let arguments = [
        OsStr::new("driver-limit-probe"),
        args.cgroup.as_os_str(),
        uuid.as_ref(),
        memory.as_ref(),
    ];
    let answer = ask::child::<Answer>(&arguments, &vars, "it is asked to limit a cgroup");
    let (answer, _) = answer.map_err(|error| match error {
        AskError::Start(_) => error.into(),
        _ => ended(exit::NO_DRIVER, error.to_string()),
    })?;
    answer.map_err(|error| {
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
        args.memory
    );
    standard_streams::print(said.as_bytes())?;
    Ok(exit::SUCCESS)
}

fn ended(status: u8, message: String) -> anyhow::Error {
    Status { status, message }.into()
}
