//! Two logical connections on one socket: the multiplexer of NRI.
//! Touches: its arguments.
//!
//! A frame is the number of a connection and a length, 4 bytes each, big-endian, and so many bytes
//! (pkg/net/multiplex/mux.go of containerd/nri). Frames need not end where messages end.

use std::io::{self, Read, Write};

/// The connection on which the engine calls the plugin.
pub const PLUGIN: u32 = 1;

/// The connection on which the plugin calls the engine.
pub const RUNTIME: u32 = 2;

/// The largest frame: the largest message of ttrpc with its header.
pub const LONGEST: usize = (4 << 20) + 10;

/// The largest frame that is written. The engine's reader has a buffer of this size, and ends the
/// connection when a frame is larger than the rest of what it is about to read.
const WRITTEN: usize = 4096;

/// A frame: the connection, and its bytes.
pub type Frame = (u32, Vec<u8>);

/// Reads a frame; `None` at the end of the stream.
///
/// # Errors
/// When the stream ends in a frame, or the frame is too large.
pub fn read(from: &mut impl Read) -> io::Result<Option<Frame>> {
    let mut header = [0_u8; 8];
    let mut filled = 0_usize;
    while filled < header.len() {
        let rest = header.get_mut(filled..).unwrap_or_default();
        match from.read(rest) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled = filled.saturating_add(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let [a, b, c, d, e, f, g, h] = header;
    let length = u32::from_be_bytes([e, f, g, h]);
    if usize::try_from(length).map_or(true, |length| length > LONGEST) {
        return Err(io::Error::other(format!(
            "a frame of {length} bytes is too large"
        )));
    }
    // Memory grows with what arrives, not with what is announced.
    let mut bytes = Vec::new();
    let count = from.by_ref().take(length.into()).read_to_end(&mut bytes)?;
    match u32::try_from(count) == Ok(length) {
        true => Ok(Some((u32::from_be_bytes([a, b, c, d]), bytes))),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Writes bytes to a connection, as one or more frames.
///
/// # Errors
/// When the stream cannot be written to.
pub fn write(to: &mut impl Write, connection: u32, bytes: &[u8]) -> io::Result<()> {
    for part in bytes.chunks(WRITTEN) {
        let length = u32::try_from(part.len()).map_err(io::Error::other)?;
        let header = [connection.to_be_bytes(), length.to_be_bytes()].concat();
        // One write, so that a reader never sees a header without its bytes for long.
        to.write_all(&[header.as_slice(), part].concat())?;
    }
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_from_its_connection() {
        let mut wire = Vec::new();
        let long = vec![7_u8; 10_000];
        write(&mut wire, PLUGIN, b"one").unwrap();
        write(&mut wire, RUNTIME, &long).unwrap();
        let mut from = wire.as_slice();
        assert_eq!(read(&mut from).unwrap(), Some((PLUGIN, b"one".to_vec())));
        let mut whole = Vec::new();
        while let Some((connection, part)) = read(&mut from).unwrap() {
            assert_eq!(connection, RUNTIME);
            assert!(part.len() <= WRITTEN);
            whole.extend(part);
        }
        assert_eq!(whole, long);
    }

    #[test]
    fn a_frame_that_is_cut_or_too_large_is_an_error() {
        let kind = |wire: &[u8]| read(&mut &*wire).unwrap_err().kind();
        assert_eq!(kind(&[0, 0, 0]), io::ErrorKind::UnexpectedEof);
        assert_eq!(
            kind(&[0, 0, 0, 1, 0, 0, 0, 4, 1, 2]),
            io::ErrorKind::UnexpectedEof
        );
        assert_eq!(
            kind(&[0, 0, 0, 1, 255, 255, 255, 255]),
            io::ErrorKind::Other
        );
        assert!(read(&mut [].as_slice()).unwrap().is_none());
    }
}
