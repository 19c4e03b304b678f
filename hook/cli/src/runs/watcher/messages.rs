//! Messages to a run's watcher, which the caller sends before it executes the command: files to keep
//! open or to lock, and the run's link and cgroup. The run's folder names these two as well, but the
//! command may remove the folder before the watcher has read it.
//! Touches: the pipe to the watcher, which is the watcher's standard input; the files that the
//! messages name.

use super::pipe;
use gpuslice_host::slices::tenants;
use nix::unistd::dup2_stdin;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The first byte of a message, before a path and a zero byte: keep the file open.
pub(super) const KEEP: u8 = b'k';
/// Hold a write lock on the file.
pub(super) const HOLD: u8 = b'h';
/// The path is that of the run's link in the registry.
pub(super) const ENTRY: u8 = b'e';
/// The path is that of the run's cgroup.
pub(super) const CGROUP: u8 = b'c';

/// Sends a message.
///
/// # Errors
/// When the watcher cannot be reached.
pub(super) fn send(pipe: &mut impl Write, about: u8, path: &Path) -> io::Result<()> {
    let mut message = vec![about];
    message.extend(path.as_os_str().as_bytes());
    message.push(0);
    pipe::write_all(pipe, &message)
}

/// The content of the messages.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// The records of the run: its promise, its place among the tenants.
    pub(super) records: Vec<PathBuf>,
    /// The records, with their write locks held.
    pub(super) held: Vec<File>,
    /// The run's link in the registry.
    pub(super) entry: Option<PathBuf>,
    /// The folder of the run's cgroup.
    pub(super) cgroup: Option<PathBuf>,
}

/// Processes the caller's messages until the caller executes the command or ends. A file that
/// cannot be kept open can be reached only while its path exists. A record whose file cannot be
/// locked counts only as long as the command's process lives.
pub(super) fn serve() -> Told {
    let mut told = Told::default();
    let Ok(pipe) = io::stdin().as_fd().try_clone_to_owned() else {
        return told;
    };
    // /dev/null replaces standard input, so that the watcher keeps no end of the pipe open.
    keep(Path::new("/dev/null"));
    for message in io::BufReader::new(File::from(pipe)).split(0) {
        let Ok(message) = message else { break };
        let Some((about, path)) = message.split_first() else {
            continue;
        };
        let path = Path::new(OsStr::from_bytes(path));
        match *about {
            KEEP => keep(path),
            HOLD => {
                let file = File::options().write(true).open(path);
                let locked = file.and_then(|file| tenants::lock(&file).map(|()| file));
                told.held.extend(locked);
                told.records.push(path.to_owned());
            }
            ENTRY => told.entry = Some(path.to_owned()),
            CGROUP => told.cgroup = Some(path.to_owned()),
            _ => {}
        }
    }
    told
}

/// Keeps a file open as standard input, in place of the previous one.
fn keep(path: &Path) {
    if let Ok(file) = File::options().read(true).write(true).open(path) {
        let _ = dup2_stdin(file);
    }
}
