//! Parses a process's list of mappings, `/proc/PID/maps`.

use core::ops::Range;

use crate::words::units::Bytes;

/// Sums up the private memory without a file that a process has mapped in a range of addresses. The
/// text of its mappings comes piece by piece.
#[derive(Debug)]
pub struct Private {
    range: Range<u64>,
    bytes: u64,
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

impl Private {
    /// Of this range of addresses.
    #[must_use]
    pub fn of(range: Range<u64>) -> Private {
        Private {
            range,
            bytes: 0,
            field: Field::Start,
            start: 0,
            end: 0,
            inode: 0,
            is_private: false,
        }
    }

    /// Reads the next piece of the text. True: the mappings that follow lie behind the range.
    pub fn read(&mut self, text: &[u8]) -> bool {
        for byte in text {
            self.next(*byte);
            if self.start >= self.range.end && !matches!(self.field, Field::Start) {
                return true;
            }
        }
        false
    }

    /// The memory that was found so far.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes::new(self.bytes)
    }

    fn next(&mut self, byte: u8) {
        let (field, value) = match self.field {
            Field::Start => (Field::End, &mut self.start),
            Field::End => (Field::Access, &mut self.end),
            Field::Inode => (Field::Name, &mut self.inode),
            Field::Access => {
                self.is_private |= byte == b'p';
                return self.field = if byte == b' ' {
                    Field::Offset
                } else {
                    Field::Access
                };
            }
            Field::Offset if byte == b' ' => return self.field = Field::Device,
            Field::Device if byte == b' ' => return self.field = Field::Inode,
            Field::Offset | Field::Device => return,
            Field::Name => {
                if byte == b'\n' {
                    self.end_line();
                }
                return;
            }
        };
        match (self.field, byte) {
            (Field::Inode, b'\n') => self.end_line(),
            (_, b'-' | b' ') => self.field = field,
            // Only whether the inode is 0 matters: its decimal digits are read as hexadecimal ones.
            _ => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                *value = value.wrapping_shl(4) | u64::from(digit);
            }
        }
    }

    fn end_line(&mut self) {
        if self.inode == 0 && self.is_private {
            let end = self.end.min(self.range.end);
            let part = end.saturating_sub(self.start.max(self.range.start));
            self.bytes = self.bytes.saturating_add(part);
        }
        *self = Private {
            bytes: self.bytes,
            ..Private::of(self.range.clone())
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &[u8] = b"\
55d0c0000000-55d0c0021000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000100000 rw-p 00000000 00:00 0 \n\
7f0000100000-7f0000300000 rw-s 00000000 00:01 1040 /dev/zero (deleted)
7f0000300000-7f0000400000 r--p 00100000 08:01 131 /models/a p 0 b.safetensors
7f0000400000-7f0000500000 rw-p 00000000 00:00 0
7f0000600000-7f0000700000 rw-p 00000000 00:0f 99 /anon_hugepage (deleted)
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
";

    fn of(range: Range<u64>, pieces: usize) -> u64 {
        let mut private = Private::of(range);
        let _ = MAPS.chunks(pieces).any(|piece| private.read(piece));
        private.bytes().get()
    }

    #[test]
    fn only_private_memory_without_a_file_counts() {
        for pieces in [1, 7, 64, MAPS.len()] {
            let all = of(0x7f00_0000_0000..0x7f00_0080_0000, pieces);
            assert_eq!(all, 0x20_0000, "in pieces of {pieces}");
            let a_part = of(0x7f00_0008_0000..0x7f00_0048_0000, pieces);
            assert_eq!(a_part, 0x8_0000 + 0x8_0000);
            assert_eq!(of(0x7f00_0010_0000..0x7f00_0030_0000, pieces), 0);
            assert_eq!(of(0x7f00_0060_0000..0x7f00_0070_0000, pieces), 0);
            assert_eq!(of(0x55d0_c000_1000..0x55d0_c000_3000, pieces), 0x2000);
        }
    }

    #[test]
    fn the_rest_is_not_read() {
        let mut private = Private::of(0x55d0_c000_0000..0x55d0_c002_1000);
        assert!(private.read(MAPS));
        assert_eq!(private.bytes().get(), 0x2_1000);
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
            let mut private = Private::of(0..u64::MAX);
            private.read(text);
        }
    }
}
