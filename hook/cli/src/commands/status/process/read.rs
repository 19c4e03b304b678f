//! Reads what /proc says of one process: its environment, command line, name and start.
//! Touches: /proc.

use gpuslice_host::base::clock::rfc3339;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The start of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::commands::status) struct Start {
    /// The moment, as RFC 3339 in UTC.
    pub(in crate::commands::status) moment: String,
    /// The seconds since then.
    pub(in crate::commands::status) age: u64,
}

impl Start {
    /// Returns the start at a moment in seconds since 1970.
    pub(in crate::commands::status) fn at(moment: u64) -> Start {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |since| since.as_secs());
        Start {
            moment: rfc3339(moment),
            age: now.saturating_sub(moment),
        }
    }
}

/// The environment with which a process was started.
#[derive(Debug, Default)]
pub(in crate::commands::status) struct Environment(pub(super) Vec<u8>);

impl Environment {
    /// Reads variables from a file in the format of /proc/PID/environ.
    pub(in crate::commands::status) fn read(file: &Path) -> Option<Environment> {
        fs::read(file).ok().map(Environment)
    }

    /// Returns the value of a variable.
    pub(in crate::commands::status) fn get(&self, name: &str) -> Option<&[u8]> {
        let mut variables = self.0.split(|byte| *byte == 0);
        variables.find_map(|variable| {
            let value = variable.strip_prefix(name.as_bytes())?;
            value.strip_prefix(b"=")
        })
    }
}

/// Returns the moment of the machine's start, in seconds since 1970.
pub(super) fn boot_time() -> Option<u64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("btime "))?;
    line.trim().parse().ok()
}

/// Returns the command line of a process, word by word; None if it is not visible or empty.
pub(in crate::commands::status) fn command_line(pid: u32) -> Option<Vec<String>> {
    let line = read_all(&format!("/proc/{pid}/cmdline"))?;
    let line = line.strip_suffix(&[0]).unwrap_or(&line);
    let words = line.split(|byte| *byte == 0);
    let words = words.map(|word| String::from_utf8_lossy(word).into_owned());
    (!line.is_empty()).then(|| words.collect())
}

/// Returns the value of an environment variable of a process.
pub(crate) fn variable(pid: u32, name_and_equals: &[u8]) -> Option<Vec<u8>> {
    let environment = read_all(&format!("/proc/{pid}/environ"))?;
    let mut variables = environment.split(|byte| *byte == 0);
    variables.find_map(|variable| variable.strip_prefix(name_and_equals).map(<[u8]>::to_vec))
}

/// Reads a file of /proc with as few system calls as possible: they have no length, for which
/// `fs::read` asks with small reads.
pub(super) fn read_all(path: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(LIKELY);
    let file = File::open(path).ok()?;
    file.take(u64::MAX).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The length of most files in /proc, or more.
const LIKELY: usize = 8 << 10;

/// Returns the name of a process. The kernel cuts it after 15 bytes, even inside a character.
pub(crate) fn name(pid: u32) -> Option<String> {
    let name = read_all(&format!("/proc/{pid}/comm"))?;
    let name = String::from_utf8_lossy(&name);
    Some(name.trim_end_matches('\n').to_owned())
}

/// The length of the first reading. The kernel writes no more lines than that takes, and most of
/// what is looked for is in the first ones.
const FIRST: usize = 2 << 10;

/// Takes the lines of a file, until `take` breaks. Returns None if the file cannot be read.
pub(super) fn each_line(path: &str, mut take: impl FnMut(&[u8]) -> ControlFlow<()>) -> Option<()> {
    let mut file = File::open(path).ok()?;
    let (mut bytes, mut length) = (vec![0; FIRST], 0usize);
    loop {
        let more = match file.read(bytes.get_mut(length..)?) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            more => more.ok()?,
        };
        length = length.saturating_add(more);
        let mut rest = bytes.get(..length)?;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = rest.split_at_checked(end)?;
            if take(line).is_break() {
                return Some(());
            }
            rest = after.get(1..)?;
        }
        if more == 0 {
            return Some(());
        }
        let kept = rest.len();
        bytes.copy_within(length.saturating_sub(kept)..length, 0);
        length = kept;
        if bytes.len() < LIKELY || kept == bytes.len() {
            bytes.resize(bytes.len().saturating_mul(2), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_any_length_are_read_whole() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let lines =
            [0, 1, FIRST - 1, FIRST, FIRST + 1, 3 * LIKELY, 7].map(|length| vec![b'x'; length]);
        fs::write(
            file.path(),
            [lines.join(&b'\n'), b"\nunfinished".to_vec()].concat(),
        )
        .unwrap();
        let mut read = Vec::new();
        let path = file.path().to_str().unwrap();
        each_line(path, |line| {
            read.push(line.to_vec());
            ControlFlow::Continue(())
        });
        assert!(read == lines);
    }
}
