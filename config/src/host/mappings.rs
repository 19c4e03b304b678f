//! Parses a process's list of mappings, `/proc/PID/maps`.
//! Touches: its arguments; the caller reads the file.

use core::ops::Range;

/// Finds the private anonymous mappings of a process in a range of addresses. The text of its
/// mappings comes piece by piece.
#[derive(Debug)]
pub struct Anonymous {
    range: Range<u64>,
    field: Field,
    start: u64,
    end: u64,
    inode: u64,
    is_private: bool,
}

/// The field of a line that is being read.
#[derive(Debug, Clone, Copy)]
enum Field {
    Start,
    End,
    Access,
    Offset,
    Device,
    Inode,
    Name,
}

impl Anonymous {
    /// Starts to look in this range of addresses.
    #[must_use]
    pub fn of(range: Range<u64>) -> Anonymous {
        Anonymous {
            range,
            field: Field::Start,
            start: 0,
            end: 0,
            inode: 0,
            is_private: false,
        }
    }

    /// Reads the next piece of the text, and calls `found` for the part of each such mapping that
    /// lies in the range. True: the mappings that follow lie behind the range.
    pub fn read(&mut self, text: &[u8], found: &mut impl FnMut(Range<u64>)) -> bool {
        for byte in text {
            if *byte == b'\n' {
                self.end_line(found);
            } else {
                self.next(*byte);
            }
            if self.start >= self.range.end && !matches!(self.field, Field::Start) {
                return true;
            }
        }
        false
    }

    fn next(&mut self, byte: u8) {
        let value = match self.field {
            Field::Start => &mut self.start,
            Field::End => &mut self.end,
            Field::Inode => &mut self.inode,
            Field::Access => {
                self.is_private |= byte == b'p';
                return self.skip(byte);
            }
            Field::Offset | Field::Device | Field::Name => return self.skip(byte),
        };
        match byte {
            b'-' | b' ' => self.skip(b' '),
            // Only whether the inode is 0 matters: its decimal digits are read as hexadecimal ones.
            _ => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                *value = value.wrapping_shl(4) | u64::from(digit);
            }
        }
    }

    /// Goes to the next field at a space.
    fn skip(&mut self, byte: u8) {
        if byte == b' ' {
            self.field = match self.field {
                Field::Start => Field::End,
                Field::End => Field::Access,
                Field::Access => Field::Offset,
                Field::Offset => Field::Device,
                Field::Device => Field::Inode,
                Field::Inode | Field::Name => Field::Name,
            };
        }
    }

    fn end_line(&mut self, found: &mut impl FnMut(Range<u64>)) {
        let start = self.start.max(self.range.start);
        let end = self.end.min(self.range.end);
        if self.inode == 0 && self.is_private && start < end {
            found(start..end);
        }
        *self = Anonymous::of(self.range.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const MAPS: &[u8] = b"\
55d0c0000000-55d0c0021000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000100000 rw-p 00000000 00:00 0 \n\
7f0000100000-7f0000300000 rw-s 00000000 00:01 1040 /dev/zero (deleted)
7f0000300000-7f0000400000 r--p 00100000 08:01 131 /models/a p 0 b.safetensors
7f0000400000-7f0000500000 rw-p 00000000 00:00 0
7f0000600000-7f0000700000 rw-p 00000000 00:0f 99 /anon_hugepage (deleted)
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
";

    fn of(range: Range<u64>, pieces: usize) -> Vec<Range<u64>> {
        let mut all = Vec::new();
        let mut mappings = Anonymous::of(range);
        let _ = (MAPS.chunks(pieces)).any(|piece| mappings.read(piece, &mut |part| all.push(part)));
        all
    }

    #[test]
    fn only_private_memory_without_a_file_is_found() {
        for pieces in [1, 7, 64, MAPS.len()] {
            let all = of(0x7f00_0000_0000..0x7f00_0080_0000, pieces);
            let expected = [
                0x7f00_0000_0000..0x7f00_0010_0000,
                0x7f00_0040_0000..0x7f00_0050_0000,
            ];
            assert_eq!(all, expected, "in pieces of {pieces}");
            let parts = of(0x7f00_0008_0000..0x7f00_0048_0000, pieces);
            let expected = [
                0x7f00_0008_0000..0x7f00_0010_0000,
                0x7f00_0040_0000..0x7f00_0048_0000,
            ];
            assert_eq!(parts, expected);
            assert_eq!(of(0x7f00_0010_0000..0x7f00_0030_0000, pieces), []);
            assert_eq!(of(0x7f00_0060_0000..0x7f00_0070_0000, pieces), []);
            let heap = 0x55d0_c000_1000..0x55d0_c000_3000;
            assert_eq!(of(heap.clone(), pieces), [heap]);
        }
    }

    #[test]
    fn the_rest_is_not_read() {
        let mut mappings = Anonymous::of(0x55d0_c000_0000..0x55d0_c002_1000);
        let mut count = 0;
        assert!(mappings.read(MAPS, &mut |_| count += 1));
        assert_eq!(count, 1);
    }

    #[test]
    fn any_text_is_read() {
        for text in [
            &b""[..],
            b"\n\n\n",
            b"-----",
            b"zzz zz p zz 0 \n",
            &[0xff; 300],
        ] {
            Anonymous::of(0..u64::MAX).read(text, &mut |part| assert!(!part.is_empty()));
        }
    }
}
