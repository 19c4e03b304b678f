//! Messages to a run's watcher, which the caller sends before it executes the command: files to keep
//! open or to lock, and the run's link and cgroup. The run's folder names these two as well, but the
//! command may remove the folder before the watcher has read it.
//! Touches: the pipes to and from the watcher, which are the watcher's standard input and output;
//! the files that the messages name.

use super::pipe;
use gpuslice_host::slices::record_lock;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::dup2_stdin;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The first byte of a message, before a path and a zero byte: keep the file open.
pub(super) const KEEP: u8 = b'k';
/// Hold a write lock on the file.
pub(super) const HOLD: u8 = b'h';
/// The path is that of the run's link in the registry.
pub(super) const ENTRY: u8 = b'e';
/// The path is that of the run's cgroup.
pub(super) const CGROUP: u8 = b'c';
/// The path is empty. The watcher answers when it has processed all earlier messages.
pub(super) const ANSWER: u8 = b'a';

/// The watcher's answer.
const DONE: &[u8] = b"\n";

/// The time that the watcher gets to answer. It needs much less than a millisecond of a processor.
const PATIENCE: Duration = Duration::from_secs(10);

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

/// Waits for the watcher's answer. If there is none for 10 seconds, the watcher will process the
/// messages later: programs reach the ledger by its path until then.
///
/// # Errors
/// When the watcher has ended.
pub(super) fn wait_for_answer(pipe: &mut BufReader<impl Read + AsFd>) -> io::Result<()> {
    let start = Instant::now();
    loop {
        let left = PATIENCE.saturating_sub(start.elapsed());
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        match poll(
            &mut [PollFd::new(pipe.get_ref().as_fd(), PollFlags::POLLIN)],
            left,
        ) {
            Ok(0) => return Ok(()),
            Ok(_) => break,
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    pipe.read_exact(&mut [0; DONE.len()])
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
                let locked = file.and_then(|file| record_lock::lock(&file).map(|()| file));
                told.held.extend(locked);
                told.records.push(path.to_owned());
            }
            ENTRY => told.entry = Some(path.to_owned()),
            CGROUP => told.cgroup = Some(path.to_owned()),
            // If this fails, the caller has ended, and so do the messages.
            ANSWER => {
                let _ = write_out(DONE);
            }
            _ => {}
        }
    }
    told
}

/// Writes to the caller of the watcher.
pub(super) fn write_out(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(bytes)?;
    out.flush()
}

/// Keeps a file open as standard input, in place of the previous one.
fn keep(path: &Path) {
    if let Ok(file) = File::options().read(true).write(true).open(path) {
        let _ = dup2_stdin(file);
    }
}
