//! Writes to the host's log. crun reports only a failing hook's exit status, and not its message.
//! Touches: the socket that journald or syslogd listens at.
//! Law: no error here affects a container, and nothing here blocks.
//! Never: at createContainer, where /dev is the container's.

use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// The facility `daemon` and the severity `err`.
const PRIORITY: u8 = 27;

/// The longest message: the limit of old syslogds.
const LONGEST: usize = 960;

/// The host's log, or none.
#[derive(Debug, Default)]
pub struct Log {
    socket: Option<UnixDatagram>,
    /// The name by which `journalctl -t` finds its messages.
    program: &'static str,
}

impl Log {
    /// Opens the host's log. This must happen before a container's mount namespace is entered,
    /// because /dev/log there is not the host's.
    #[must_use]
    pub fn open(log: &Path, program: &'static str) -> Log {
        let socket = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            socket.connect(log)?;
            Ok(socket)
        });
        // A host without a log can still run containers.
        Log {
            socket: socket.ok(),
            program,
        }
    }

    /// Logs a message.
    pub fn tell(&self, text: &str) {
        if let Some(socket) = &self.socket {
            // A full log loses the message.
            let record = record(self.program, std::process::id(), text);
            let _ = socket.send(record.as_bytes());
        }
    }
}

/// A message of one line, even if foreign text contains line breaks.
fn record(program: &str, process: u32, text: &str) -> String {
    let one_line = |letter: char| if letter.is_control() { ' ' } else { letter };
    let text: String = text.chars().map(one_line).collect();
    let text = text.get(..text.floor_char_boundary(LONGEST));
    let text = text.unwrap_or_default();
    format!("<{PRIORITY}>{program}[{process}]: {text}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::paths::HostPaths;
    use std::fs;

    #[test]
    fn a_line_reaches_who_listens_and_nobody_need() {
        let host = tempfile::tempdir().unwrap();
        let paths = HostPaths::below(host.path());
        Log::open(&paths.log(), "gpuslice-hook").tell("nobody listens");
        fs::create_dir(host.path().join("dev")).unwrap();
        let listener = UnixDatagram::bind(host.path().join("listener")).unwrap();
        listener.set_nonblocking(true).unwrap();
        // As systemd sets it up.
        std::os::unix::fs::symlink("../listener", paths.log()).unwrap();
        let log = Log::open(&paths.log(), "gpuslice-hook");
        log.tell("card 0 is full:\nx has 8 GiB");
        let mut bytes = [0; 2048];
        let length = listener.recv(&mut bytes).unwrap();
        let said = std::str::from_utf8(&bytes[..length]).unwrap();
        let own = std::process::id();
        assert_eq!(
            said,
            format!("<27>gpuslice-hook[{own}]: card 0 is full: x has 8 GiB")
        );
        // A listener that reads nothing does not block a container.
        for _ in 0..2_000 {
            log.tell("x");
        }
    }

    #[test]
    fn a_long_text_is_cut_between_letters() {
        let said = record("x", 1, &"€".repeat(1 << 16));
        assert!(said.len() <= 1024 && said.ends_with('€'), "{}", said.len());
    }
}
