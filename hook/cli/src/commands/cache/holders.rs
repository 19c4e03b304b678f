//! Finds the processes that have mapped a file: its pages stay as long as they are mapped.
//! Touches: /proc.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// A file, as a process's mappings identify it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    /// Its device.
    pub(super) device: u64,
    /// Its inode.
    pub(super) inode: u64,
    /// The file name: the mappings of overlay and btrfs files show another device than stat does.
    pub(super) name: OsString,
}

/// A process that has mapped a file.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) struct Holder {
    /// Its process id.
    pub(super) pid: u32,
    /// Its name.
    pub(super) name: String,
}

/// Returns the processes that have mapped each of the files, in their order, and the processes that
/// could not be read.
pub(super) fn holders(files: &[Identity]) -> (Vec<Vec<Holder>>, Vec<Holder>) {
    let mut by_inode: HashMap<u64, Vec<usize>> = HashMap::new();
    for (place, file) in files.iter().enumerate() {
        by_inode.entry(file.inode).or_default().push(place);
    }
    let mut held = vec![BTreeMap::new(); files.len()];
    let mut unseen = Vec::new();
    for pid in processes() {
        let maps = match fs::read(format!("/proc/{pid}/maps")) {
            Ok(maps) => maps,
            Err(error) => {
                // A process that has ended holds no pages.
                if error.kind() == std::io::ErrorKind::PermissionDenied {
                    let name = name(pid);
                    unseen.push(Holder { pid, name });
                }
                continue;
            }
        };
        for mapping in maps.split(|byte| *byte == b'\n').filter_map(Mapping::read) {
            for place in by_inode.get(&mapping.inode).into_iter().flatten() {
                let (Some(file), Some(held)) = (files.get(*place), held.get_mut(*place)) else {
                    continue;
                };
                if mapping.is_of(file) {
                    held.entry(pid).or_insert_with(|| name(pid));
                }
            }
        }
    }
    let shown = held.into_iter().map(|held| {
        let holders = held.into_iter().map(|(pid, name)| Holder { pid, name });
        holders.collect()
    });
    (shown.collect(), unseen)
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns the name of a process.
pub(super) fn name(pid: u32) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

/// A line of /proc/PID/maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    /// The start address.
    pub(super) start: usize,
    /// The end address.
    pub(super) end: usize,
    /// The offset in the file.
    pub(super) offset: u64,
    /// The file's device.
    pub(super) device: u64,
    /// The file's inode.
    pub(super) inode: u64,
    /// The file's path, as that process sees it.
    pub(super) path: OsString,
}

impl Mapping {
    /// Parses a line; None if it maps no file.
    pub(super) fn read(line: &[u8]) -> Option<Mapping> {
        let mut rest = line;
        let mut word = || {
            let start = rest.iter().position(|byte| *byte != b' ')?;
            let text = rest.get(start..)?;
            let end = text
                .iter()
                .position(|byte| *byte == b' ')
                .unwrap_or(text.len());
            let (word, after) = text.split_at_checked(end)?;
            rest = after;
            std::str::from_utf8(word).ok()
        };
        let (start, end) = word()?.split_once('-')?;
        let (_permissions, offset) = (word()?, word()?);
        let (major, minor) = word()?.split_once(':')?;
        let inode = word()?.parse().ok()?;
        let path = rest.trim_ascii_start();
        let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let address = |text| usize::from_str_radix(text, 16).ok();
        (inode != 0).then_some(Mapping {
            start: address(start)?,
            end: address(end)?,
            offset: hex(offset)?,
            device: nix::sys::stat::makedev(hex(major)?, hex(minor)?),
            inode,
            path: OsString::from_vec(path.to_vec()),
        })
    }

    /// Checks whether it maps that file.
    pub(super) fn is_of(&self, file: &Identity) -> bool {
        let named = || Path::new(&self.path).file_name() == Some(&file.name);
        self.inode == file.inode && (self.device == file.device || named())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_line_of_maps_is_read_with_blanks_in_its_path() {
        let line = b"7f00000-7f01000 r--p 00002000 fe:00 131 /models/a b.gguf (deleted)";
        let mapping = Mapping::read(line).unwrap();
        assert_eq!(mapping.path.as_bytes(), b"/models/a b.gguf");
        assert_eq!((mapping.start, mapping.end), (0x7f0_0000, 0x7f0_1000));
        assert_eq!(mapping.offset, 0x2000);
        assert_eq!(mapping.device, nix::sys::stat::makedev(0xfe, 0));
        assert_eq!(mapping.inode, 131);
    }

    #[test]
    fn a_line_that_maps_no_file_is_none() {
        for line in [
            &b"7ffd0-7ffd1 rw-p 00000000 00:00 0 [stack]"[..],
            b"",
            b"cut",
            b"1-2 r",
        ] {
            assert_eq!(Mapping::read(line), None);
        }
    }
}
