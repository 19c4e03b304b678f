//! Parses a mount table, as /proc/PID/mountinfo shows it.
//! Touches: its arguments.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The bytes that are read of a mount table.
pub(super) const CAP: usize = 4 << 20;

/// Whether the mount of an open file is in a peer group, by the table and by the descriptor's
/// /proc/PID/fdinfo. Returns `None` if the table does not have the mount.
pub(super) fn is_shared(table: &[u8], descriptor: &[u8]) -> Option<bool> {
    let mut facts = descriptor.split(|byte| *byte == b'\n');
    let id = facts.find_map(|line| line.strip_prefix(b"mnt_id:"))?;
    let id = id.trim_ascii();
    let mut mounts = table.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut words = line.split(|byte| *byte == b' ');
        (words.next()? == id).then_some(words)
    });
    // Options of the mount come first, and the propagation ends with a dash.
    let mut propagation = mounts.next()?.skip(5).take_while(|word| *word != b"-");
    Some(propagation.any(|word| word.starts_with(b"shared:")))
}

/// The topmost mount points below a place, relative to it.
pub(super) fn topmost(table: &[u8], place: &Path) -> Vec<PathBuf> {
    let points = table.split(|byte| *byte == b'\n').filter_map(|line| {
        let point = line.split(|byte| *byte == b' ').nth(4)?;
        let point = PathBuf::from(OsStr::from_bytes(&unescaped(point)));
        Some(point.strip_prefix(place).ok()?.to_owned())
    });
    let mut points: Vec<PathBuf> = points
        .filter(|point| !point.as_os_str().is_empty())
        .collect();
    // The sorted list has each path directly before the paths below it.
    points.sort();
    let mut topmost: Vec<PathBuf> = Vec::new();
    for point in points {
        let is_below = |above: &PathBuf| point.starts_with(above);
        if !topmost.last().is_some_and(is_below) {
            topmost.push(point);
        }
    }
    topmost
}

/// Decodes a path of a mount table, in which the kernel writes blanks and backslashes as three
/// octal digits.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let octal = |digits: &[u8; 3]| {
            let value = |sum: u32, digit: &u8| {
                let digit = char::from(*digit).to_digit(8)?;
                sum.checked_mul(8)?.checked_add(digit)
            };
            let sum = digits.iter().try_fold(0, value)?;
            u8::try_from(sum).ok()
        };
        let escaped = (*first == b'\\')
            .then(|| after.split_first_chunk::<3>())
            .flatten()
            .and_then(|(digits, after)| Some((octal(digits)?, after)));
        let (byte, next) = escaped.unwrap_or((*first, after));
        plain.push(byte);
        rest = next;
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_topmost_mounts_below_a_place_are_carried_over() {
        let table = b"21 1 8:1 / / rw - ext4 /dev/sda rw\n\
            22 21 0:5 / /c/etc rw - tmpfs t rw\n\
            23 22 0:6 / /c/etc/hosts rw - tmpfs t rw\n\
            24 22 0:7 / /c/etc/with\\040blank rw - tmpfs t rw\n\
            25 24 0:8 / /c/etc/with\\040blank/deeper rw - tmpfs t rw\n\
            26 21 0:9 / /c/etcetera rw - tmpfs t rw\n";
        let found = topmost(table, Path::new("/c/etc"));
        assert_eq!(found, [Path::new("hosts"), Path::new("with blank")]);
        assert_eq!(
            topmost(b"garbage\n\n", Path::new("/")),
            Vec::<PathBuf>::new()
        );
    }

    #[test]
    fn a_mount_is_shared_if_its_optional_fields_have_a_peer_group() {
        let table = b"21 1 8:1 / / rw shared:1 - ext4 /dev/sda rw\n\
            22 21 0:5 / /etc rw,relatime shared:2 master:1 - tmpfs t rw\n\
            221 21 0:6 / /shared:3 rw master:1 - tmpfs t rw\n\
            23 21 0:7 / /run rw - tmpfs shared:4 rw\n";
        let shared = |id: &str| {
            let facts = format!("pos:\t0\nflags:\t012000000\nmnt_id:\t{id}\nino:\t21\n");
            is_shared(table, facts.as_bytes())
        };
        assert_eq!(shared("21"), Some(true));
        assert_eq!(shared("22"), Some(true));
        assert_eq!(shared("221"), Some(false));
        assert_eq!(shared("23"), Some(false));
        assert_eq!(shared("2"), None);
        assert_eq!(is_shared(table, b""), None);
    }

    #[test]
    fn escapes_are_read_as_the_kernel_writes_them() {
        assert_eq!(unescaped(b"a\\040b\\134c"), b"a b\\c");
        assert_eq!(unescaped(b"a\\04"), b"a\\04");
        assert_eq!(unescaped(b"\\999\\777"), b"\\999\\777");
    }
}
