//! Finds out from the mount table whether another filesystem may be at a path.
//! Touches: /proc/self/mountinfo. Never a mounted filesystem, because one may hang.

use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const TABLE: &str = "/proc/self/mountinfo";

/// Reports changes of the mount table. Without /proc, there are no reports.
pub(super) struct Changes {
    table: Option<File>,
}

impl Changes {
    pub(super) fn new() -> Changes {
        Changes {
            table: File::open(TABLE).ok(),
        }
    }

    /// Returns the descriptor that has priority data (POLLPRI) once after each change.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.table.as_ref().map(AsFd::as_fd)
    }
}

/// Returns the mount table.
pub(super) fn table() -> Vec<u8> {
    fs::read(TABLE).unwrap_or_default()
}

/// Returns the mounts at a path and above it. Those above may hide those below, so only a comparison
/// with an earlier answer has a meaning.
pub(super) fn above(table: &[u8], path: &Path) -> Vec<Vec<u8>> {
    let path = escaped(path);
    let lines = table.split(|byte| *byte == b'\n').filter_map(|line| {
        // The id, the parent's id, the device, the root and the mount point. Options may change.
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').take(5).collect();
        let point = words.get(4)?.strip_suffix(b"/").unwrap_or(words.get(4)?);
        let below = path.strip_prefix(point)?;
        (below.is_empty() || below.starts_with(b"/")).then(|| words.join(&b' '))
    });
    lines.collect()
}

/// Writes a path as mount tables do: these bytes as three octal digits.
fn escaped(path: &Path) -> Vec<u8> {
    let mut text = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' | b'#' => {
                text.extend(format!("\\{byte:03o}").into_bytes());
            }
            byte => text.push(*byte),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_beside_a_path_or_below_it_is_not_above_it() {
        let table = b"21 1 8:1 / / rw - ext4 /dev/sda rw\n\
            22 21 0:5 / /srv rw shared:1 - tmpfs t rw\n\
            23 22 8:2 /a /srv/big\\040models ro - xfs /dev/sdb ro\n\
            24 23 8:3 / /srv/big\\040models/below rw - xfs /dev/sdc rw\n\
            25 22 8:4 / /srv/big rw - xfs /dev/sdd rw\n";
        let found = |path: &str| {
            let lines = above(table, Path::new(path)).into_iter();
            let lines = lines.map(|line| String::from_utf8(line).unwrap());
            lines.collect::<Vec<_>>()
        };
        let (root, srv) = ("21 1 8:1 / /", "22 21 0:5 / /srv");
        let models = "23 22 8:2 /a /srv/big\\040models";
        assert_eq!(found("/srv/big models"), [root, srv, models]);
        assert_eq!(found("/srv/big models/one"), [root, srv, models]);
        assert_eq!(found("/srv/other"), [root, srv]);
        assert_eq!(found("/home"), [root]);
    }
}
