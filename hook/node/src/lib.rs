//! Puts gpuslice on a node of a Kubernetes cluster, from a pod, and removes it again.
//!
//! 1. `install` copies the command, the hook and the library from the image to a folder of the node.
//! 2. `on-host` starts a program of that folder in the node's mount namespace, where the driver is.
//! 3. `uninstall` waits until no slice runs and no engine names the hook, and removes the folder.
//!
//! The image has no shell and no libc, so this program is static and does all three by itself.

mod arguments;
mod host;
mod install;
mod removal;

use arguments::Command;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

/// The command has done its work.
pub const SUCCESS: u8 = 0;
/// The command has failed.
pub const FAILURE: u8 = 1;
/// The command line is wrong.
pub const USAGE: u8 = 2;

/// The time between two looks at the slices of the node.
const INTERVAL: Duration = Duration::from_secs(5);

fn tell(line: &str) {
    // An error means that the pod's log is closed. It is ignored.
    let _ = io::stderr().write_all(format!("gpuslice: {line}\n").as_bytes());
}

/// Runs one command, and returns its exit status.
pub fn main(given: impl IntoIterator<Item = OsString>) -> u8 {
    let command = match arguments::parse(given) {
        Ok(command) => command,
        Err(fault) => {
            tell(&fault);
            return USAGE;
        }
    };
    match run(&command) {
        Ok(status) => status,
        Err(error) => {
            tell(&format!("{error:#}"));
            FAILURE
        }
    }
}

fn run(command: &Command) -> anyhow::Result<u8> {
    match command {
        Command::Print(text) => io::stdout().write_all(text.as_bytes())?,
        Command::Install { folder, settings } => {
            let changed = install::install(Path::new("/"), folder, settings.as_deref())?;
            match changed.is_empty() {
                true => tell(&format!("{} is up to date", folder.display())),
                false => tell(&format!("{}: {}", folder.display(), changed.join(", "))),
            }
        }
        Command::OnHost {
            program,
            arguments,
            stays: false,
        } => return Err(host::start(program, arguments)),
        Command::OnHost {
            program, arguments, ..
        } => {
            host::run(program, arguments)?;
            host::drop_rights()?;
            stay()
        }
        Command::IsRemoved(folder) => {
            host::enter()?;
            return Ok(if folder.exists() { FAILURE } else { SUCCESS });
        }
        Command::Uninstall(folder) => {
            host::enter()?;
            remove_once_unused(folder)?;
        }
        Command::Stay => stay(),
    }
    Ok(SUCCESS)
}

/// Removes the folder as soon as no slice and no engine needs it. Then stays, because Kubernetes would
/// start a container that has ended again.
fn remove_once_unused(folder: &Path) -> anyhow::Result<()> {
    let mut reported = Vec::new();
    loop {
        removal::collect_garbage(folder);
        let users = removal::users(Path::new("/"), folder)?;
        if users.is_empty() {
            break;
        }
        if users != reported {
            tell(&format!("waiting for {}", users.join(", ")));
            reported = users;
        }
        thread::sleep(INTERVAL);
    }
    removal::remove(folder)?;
    tell(&format!("{} is removed", folder.display()));
    stay()
}

/// Stays until the pod is deleted.
fn stay() -> ! {
    loop {
        thread::park();
    }
}
