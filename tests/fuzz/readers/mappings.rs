//! The reader of /proc/PID/maps that finds the users of a file.
//! Touches: its arguments.

use super::holders::Mapping;

/// Reads the addresses, the offset and the inode of a line.
pub fn read(line: &[u8]) -> Option<(usize, usize, u64, u64)> {
    let mapping = Mapping::read(line)?;
    Some((mapping.start, mapping.end, mapping.offset, mapping.inode))
}
