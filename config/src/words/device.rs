//! Identifies devices: the UUID is the identity; a CUDA ordinal and an NVML index are only
//! positions.
//! Touches: its arguments.

use core::fmt;
use core::str::FromStr;

/// The kind of device that a UUID names: a whole GPU, or a MIG instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceKind {
    /// A GPU, written `GPU-…`.
    Gpu,
    /// A MIG instance, written `MIG-…`.
    Mig,
}

/// The identity of a device: the same in CUDA and NVML, under any order of enumeration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceUuid {
    /// A GPU or a MIG instance.
    pub kind: DeviceKind,
    /// The sixteen bytes of `CUuuid`, in the order in which they are written.
    pub bytes: [u8; 16],
}

/// A position in CUDA's enumeration, which `CUDA_VISIBLE_DEVICES` changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CudaOrdinal(pub u32);

/// A position in NVML's enumeration, in order of PCI address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NvmlIndex(pub u32);

/// Whether only devices that share the host's memory have this compute capability: Xavier, Orin,
/// Thor, and GB10 with N1X. For callers that cannot query the integrated attribute.
#[must_use]
pub const fn is_unified_capability(major: i32, minor: i32) -> bool {
    matches!((major, minor), (7, 2) | (8, 7) | (11, 0) | (12, 1))
}

/// A text is not the uuid of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a device uuid (they look like GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4)")]
pub struct ParseUuidError;

/// The positions of the hyphens of the 8-4-4-4-12 form.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

impl FromStr for DeviceUuid {
    type Err = ParseUuidError;

    fn from_str(text: &str) -> Result<DeviceUuid, ParseUuidError> {
        let (kind, hex) = if let Some(hex) = text.strip_prefix("GPU-") {
            (DeviceKind::Gpu, hex)
        } else if let Some(hex) = text.strip_prefix("MIG-") {
            (DeviceKind::Mig, hex)
        } else {
            return Err(ParseUuidError);
        };
        if hex.len() != 36 {
            return Err(ParseUuidError);
        }
        let mut bytes = [0u8; 16];
        let mut nibbles = 0usize;
        for (position, letter) in hex.bytes().enumerate() {
            if HYPHENS.contains(&position) {
                if letter != b'-' {
                    return Err(ParseUuidError);
                }
                continue;
            }
            let digit = char::from(letter).to_digit(16).ok_or(ParseUuidError)?;
            let digit = u8::try_from(digit).map_err(|_| ParseUuidError)?;
            let byte = bytes.get_mut(nibbles >> 1).ok_or(ParseUuidError)?;
            *byte = (*byte << 4) | digit;
            nibbles = nibbles.saturating_add(1);
        }
        if nibbles != 32 {
            return Err(ParseUuidError);
        }
        Ok(DeviceUuid { kind, bytes })
    }
}

impl DeviceUuid {
    /// Passes the text on character by character, without the formatting machinery (which can
    /// panic).
    pub fn write_ascii(&self, push: &mut impl FnMut(u8)) {
        let prefix: &[u8; 4] = match self.kind {
            DeviceKind::Gpu => b"GPU-",
            DeviceKind::Mig => b"MIG-",
        };
        prefix.iter().for_each(|letter| push(*letter));
        for (index, byte) in self.bytes.iter().enumerate() {
            if [4, 6, 8, 10].contains(&index) {
                push(b'-');
            }
            push(hex_digit(byte >> 4));
            push(hex_digit(byte & 15));
        }
    }
}

fn hex_digit(nibble: u8) -> u8 {
    match nibble {
        0..=9 => b'0'.saturating_add(nibble),
        _ => b'a'.saturating_add(nibble.saturating_sub(10)),
    }
}

impl fmt::Display for DeviceUuid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut written = Ok(());
        self.write_ascii(&mut |letter| {
            written = written.and_then(|()| fmt::Write::write_char(out, char::from(letter)));
        });
        written
    }
}

/// A GPU, as a user names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selector {
    /// By its index in nvidia-smi.
    Index(u32),
    /// By its UUID.
    Uuid(DeviceUuid),
}

impl fmt::Display for Selector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Selector::Index(index) => write!(out, "{index}"),
            Selector::Uuid(uuid) => write!(out, "{uuid}"),
        }
    }
}

/// A text is neither the index nor the UUID of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("neither the index nor the uuid of a GPU")]
pub struct ParseSelectorError;

impl FromStr for Selector {
    type Err = ParseSelectorError;

    fn from_str(text: &str) -> Result<Selector, ParseSelectorError> {
        match text.parse() {
            Ok(uuid) => Ok(Selector::Uuid(uuid)),
            // `00` is not accepted as another spelling of GPU 0.
            Err(_) if text.starts_with('0') && text != "0" => Err(ParseSelectorError),
            Err(_) if text.bytes().all(|letter| letter.is_ascii_digit()) => {
                let index = text.parse().map_err(|_| ParseSelectorError)?;
                Ok(Selector::Index(index))
            }
            Err(_) => Err(ParseSelectorError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    const TEXT: &str = "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";

    #[test]
    fn a_uuid_is_read_and_written_as_the_vendor_writes_it() {
        let uuid: DeviceUuid = TEXT.parse().unwrap();
        assert_eq!(uuid.kind, DeviceKind::Gpu);
        assert_eq!(uuid.bytes[..5], [0x1b, 0x7d, 0x7c, 0x5e, 0x6b]);
        assert_eq!(uuid.to_string(), TEXT);
        let mig = TEXT.replace("GPU", "MIG");
        assert_eq!(mig.parse::<DeviceUuid>().unwrap().to_string(), mig);
    }

    #[test]
    fn what_is_not_a_uuid_is_refused() {
        for text in [
            "",
            "0",
            "GPU-",
            "1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4",
            "GPU-1b7d7c5e6b0b4c599b625cd0c0a1a3c4",
            "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3cg",
            "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4 ",
            "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3ü",
            "MIG-GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4/1/0",
        ] {
            assert_eq!(text.parse::<DeviceUuid>(), Err(ParseUuidError), "{text}");
        }
    }

    #[test]
    fn a_gpu_is_named_by_its_index_or_its_uuid() {
        let uuid = Selector::Uuid(TEXT.parse().unwrap());
        for (text, selector) in [
            ("0", Selector::Index(0)),
            ("7", Selector::Index(7)),
            ("10", Selector::Index(10)),
            ("4294967295", Selector::Index(u32::MAX)),
            (TEXT, uuid),
        ] {
            assert_eq!(text.parse(), Ok(selector));
            assert_eq!(selector.to_string(), text);
        }
        for text in [
            "",
            "00",
            "01",
            "+1",
            "-1",
            "1 ",
            "0x1",
            "4294967296",
            "GPU-1",
            "all",
        ] {
            assert_eq!(text.parse::<Selector>(), Err(ParseSelectorError), "{text}");
        }
    }

    #[test]
    fn boards_that_share_memory_are_known_by_their_capability() {
        for (major, minor) in [(7, 2), (8, 7), (11, 0), (12, 1)] {
            assert!(is_unified_capability(major, minor));
        }
        for (major, minor) in [(7, 5), (8, 6), (9, 0), (10, 0), (12, 0)] {
            assert!(!is_unified_capability(major, minor));
        }
    }
}
