//! A slice: how much memory of which GPU a container may use, and how it is shown.
//! Touches: its arguments; the caller has read the file.
//! Law: a key that is not understood is an error, never skipped: `memroy` must not mean "no limit".

use thiserror::Error;

use crate::device::DeviceUuid;
use crate::json::{JsonError, Reader};
use crate::units::Bytes;

/// The version of the slice file that this code writes, and the newest that it reads.
pub const VERSION: u64 = 1;

/// The largest slice file that is read. A real one is under 8 KiB.
pub const MAX_FILE: usize = 64 << 10;

/// The most devices that one slice lists (8 GPUs of 7 MIG instances are 56).
pub const MAX_DEVICES: usize = 64;

/// What TOTAL says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Total {
    /// The slice's budget: the container believes in a small card.
    #[default]
    Slice,
    /// The device's own, for flags that are percentages of the whole machine. What the others
    /// hold or may hold then reads as used.
    Device,
}

/// How a slice of unified memory looks to programs that also read `/proc/meminfo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PresentAs {
    /// An integrated device; `/proc/meminfo` shows the slice.
    #[default]
    Uma,
    /// A discrete device; `/proc/meminfo` is left alone.
    Discrete,
}

/// A short text that needs no allocation. Longer ones are cut at a character.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    /// No text.
    pub const EMPTY: Text<N> = Text {
        bytes: [0; N],
        len: 0,
    };

    /// Keeps the first N bytes, whole characters only.
    #[must_use]
    pub fn new(text: &str) -> Text<N> {
        let mut kept = Text::EMPTY;
        for letter in text.chars() {
            let mut utf8 = [0u8; 4];
            for byte in letter.encode_utf8(&mut utf8).bytes() {
                let Some(slot) = kept.bytes.get_mut(kept.len) else {
                    // The character does not fit whole: drop what was copied of it.
                    while core::str::from_utf8(kept.bytes.get(..kept.len).unwrap_or_default())
                        .is_err()
                    {
                        kept.len = kept.len.saturating_sub(1);
                    }
                    return kept;
                };
                *slot = byte;
                kept.len = kept.len.saturating_add(1);
            }
        }
        kept
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(self.bytes.get(..self.len).unwrap_or_default()).unwrap_or_default()
    }
}

impl<const N: usize> core::fmt::Debug for Text<N> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Debug::fmt(self.as_str(), out)
    }
}

impl<const N: usize> core::fmt::Display for Text<N> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self.as_str(), out)
    }
}

/// The budget of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSlice {
    /// The enforced limit B.
    pub memory: Bytes,
    /// Kept back from TOTAL so that a program that fills what it sees still fits under B.
    pub headroom: Bytes,
    /// What TOTAL says.
    pub total: Total,
    /// Whether the device shares the host's memory, where the writer of the slice has asked the
    /// driver. NVML alone cannot tell.
    pub integrated: Option<bool>,
}

/// A device that the slice names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedDevice {
    /// Which device.
    pub uuid: DeviceUuid,
    /// Its budget; None takes the slice's own `memory`.
    pub memory: Option<Bytes>,
    /// Its headroom; None takes the slice's.
    pub headroom: Option<Bytes>,
    /// Whether it shares the host's memory, where that is known.
    pub integrated: Option<bool>,
}

/// A slice file, read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slice {
    /// What people call it; in logs and in `gpuslice status`.
    pub name: Text<128>,
    /// What TOTAL says.
    pub total: Total,
    /// How a slice of unified memory looks.
    pub present_as: PresentAs,
    /// Whether an allocation over the limit is refused, or only counted.
    pub enforce: bool,
    /// The host reserve R on unified memory; None takes the default for the machine.
    pub reserve: Option<Bytes>,
    /// Where the host's live meminfo is; None means `/.gpuslice/meminfo`, then `/proc/meminfo`.
    pub meminfo: Option<Text<256>>,
    /// Where the slice's ledger is; None means `/.gpuslice/ledger/ledger` for a mounted slice, and
    /// no ledger for any other.
    pub ledger: Option<Text<256>>,
    /// The budget of every device that is not listed; None leaves those alone.
    pub memory: Option<Bytes>,
    /// The headroom of every device that does not say its own.
    pub headroom: Bytes,
    devices: [Option<ListedDevice>; MAX_DEVICES],
}

impl Default for Slice {
    fn default() -> Slice {
        Slice {
            name: Text::EMPTY,
            total: Total::Slice,
            present_as: PresentAs::Uma,
            enforce: true,
            reserve: None,
            meminfo: None,
            ledger: None,
            memory: None,
            headroom: Bytes::ZERO,
            devices: [None; MAX_DEVICES],
        }
    }
}

/// What is wrong with a slice file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {fault}")]
pub struct SliceError {
    /// The line, from 1.
    pub line: u32,
    /// What is wrong there.
    pub fault: SliceFault,
}

/// What can be wrong in a slice file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SliceFault {
    /// The file is not JSON.
    #[error("not a slice file: {0}")]
    Json(#[from] JsonError),
    /// The file is larger than any slice.
    #[error("larger than a slice file can be (64 KiB)")]
    TooLarge,
    /// The file does not say its version.
    #[error("no \"version\" (this gpuslice writes version 1)")]
    NoVersion,
    /// A newer gpuslice wrote the file.
    #[error("version {0} is newer than this gpuslice reads (1): update gpuslice here")]
    NewerVersion(u64),
    /// A key that no slice has.
    #[error("unknown key \"{0}\"")]
    UnknownKey(Text<32>),
    /// A key stands twice.
    #[error("key \"{0}\" stands twice")]
    Twice(Text<32>),
    /// A value that is not one of those that the key takes.
    #[error("\"{0}\" is not one of {1}")]
    NotOneOf(Text<32>, &'static str),
    /// A device without a uuid.
    #[error("a device has no \"uuid\"")]
    NoUuid,
    /// A uuid that is none.
    #[error(
        "\"{0}\" is not a device uuid (they look like GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4)"
    )]
    Uuid(Text<64>),
    /// A device is listed twice.
    #[error("device {0} is listed twice")]
    TwiceListed(Text<64>),
    /// A listed device has no budget.
    #[error("device {0} has no \"memory\", and the slice has none for all devices")]
    NoMemory(Text<64>),
    /// A budget of nothing.
    #[error("\"{0}\" is zero")]
    Zero(Text<32>),
    /// Headroom that leaves nothing.
    #[error("\"headroom\" is not less than \"memory\"")]
    Headroom,
    /// A text that is too long.
    #[error("\"{0}\" is too long")]
    TooLong(Text<32>),
    /// More devices than a slice lists.
    #[error("more than 64 devices")]
    TooManyDevices,
}

/// Reads the slice file `text`.
///
/// # Errors
/// [`SliceError`] names the line and what is wrong with it.
pub fn parse(text: &[u8]) -> Result<Slice, SliceError> {
    let mut reader = Reader::new(text);
    let read = match text.len() > MAX_FILE {
        true => Err(SliceFault::TooLarge),
        false => read_slice(&mut reader),
    };
    read.map_err(|fault| SliceError {
        line: reader.line(),
        fault,
    })
}

/// Remembers which keys an object has had, by their place in a list.
struct Seen(u32);

impl Seen {
    fn once(&mut self, keys: &[&str], key: &str) -> Result<(), SliceFault> {
        let place = keys.iter().position(|known| *known == key);
        let place = place.and_then(|place| u32::try_from(place).ok());
        let bit = place
            .and_then(|place| 1u32.checked_shl(place))
            .ok_or(SliceFault::UnknownKey(Text::new(key)))?;
        if self.0 & bit != 0 {
            return Err(SliceFault::Twice(Text::new(key)));
        }
        self.0 |= bit;
        Ok(())
    }
}

/// Every key of a slice, in the order in which they are written.
pub const SLICE_KEYS: [&str; 10] = [
    "version",
    "name",
    "total",
    "present_as",
    "enforce",
    "reserve",
    "meminfo",
    "ledger",
    "memory",
    "headroom",
];

/// Every key of a listed device.
pub const DEVICE_KEYS: [&str; 4] = ["uuid", "memory", "headroom", "integrated"];

fn read_slice(reader: &mut Reader<'_>) -> Result<Slice, SliceFault> {
    let mut slice = Slice::default();
    let mut version = None;
    let (mut seen, mut devices_seen, mut first) = (Seen(0), false, true);
    reader.object()?;
    while let Some(key) = reader.key(&mut first)? {
        if key == "devices" {
            if core::mem::replace(&mut devices_seen, true) {
                return Err(SliceFault::Twice(Text::new(key)));
            }
            read_devices(reader, &mut slice)?;
            continue;
        }
        seen.once(&SLICE_KEYS, key)?;
        match key {
            "version" => {
                let number = reader.number()?;
                // Said before anything else is complained of: a newer file may well have keys
                // that this code does not know.
                if number != VERSION {
                    return Err(SliceFault::NewerVersion(number));
                }
                version = Some(number);
            }
            "name" => slice.name = short(key, reader.string()?)?,
            "total" => {
                slice.total = one_of(
                    reader.string()?,
                    "slice, device",
                    &[("slice", Total::Slice), ("device", Total::Device)],
                )?;
            }
            "present_as" => {
                slice.present_as = one_of(
                    reader.string()?,
                    "uma, discrete",
                    &[("uma", PresentAs::Uma), ("discrete", PresentAs::Discrete)],
                )?;
            }
            "enforce" => slice.enforce = reader.boolean()?,
            "reserve" => slice.reserve = Some(Bytes::new(reader.number()?)),
            "meminfo" => slice.meminfo = Some(short(key, reader.string()?)?),
            "ledger" => slice.ledger = Some(short(key, reader.string()?)?),
            "memory" => slice.memory = Some(budget(key, reader)?),
            "headroom" => slice.headroom = Bytes::new(reader.number()?),
            _ => return Err(SliceFault::UnknownKey(Text::new(key))),
        }
    }
    reader.end()?;
    version.ok_or(SliceFault::NoVersion)?;
    slice.check()?;
    Ok(slice)
}

fn read_devices(reader: &mut Reader<'_>, slice: &mut Slice) -> Result<(), SliceFault> {
    let mut first = true;
    reader.array()?;
    while reader.element(&mut first)? {
        let device = read_device(reader)?;
        slice.list(device)?;
    }
    Ok(())
}

fn read_device(reader: &mut Reader<'_>) -> Result<ListedDevice, SliceFault> {
    let (mut uuid, mut memory, mut headroom, mut integrated) = (None, None, None, None);
    let (mut seen, mut first) = (Seen(0), true);
    reader.object()?;
    while let Some(key) = reader.key(&mut first)? {
        seen.once(&DEVICE_KEYS, key)?;
        match key {
            "uuid" => {
                let text = reader.string()?;
                let read = text.parse::<DeviceUuid>();
                uuid = Some(read.map_err(|_| SliceFault::Uuid(Text::new(text)))?);
            }
            "memory" => memory = Some(budget(key, reader)?),
            "headroom" => headroom = Some(Bytes::new(reader.number()?)),
            "integrated" => integrated = Some(reader.boolean()?),
            _ => return Err(SliceFault::UnknownKey(Text::new(key))),
        }
    }
    Ok(ListedDevice {
        uuid: uuid.ok_or(SliceFault::NoUuid)?,
        memory,
        headroom,
        integrated,
    })
}

fn budget(key: &str, reader: &mut Reader<'_>) -> Result<Bytes, SliceFault> {
    match reader.number()? {
        0 => Err(SliceFault::Zero(Text::new(key))),
        bytes => Ok(Bytes::new(bytes)),
    }
}

fn short<const N: usize>(key: &str, text: &str) -> Result<Text<N>, SliceFault> {
    match text.len() <= N {
        true => Ok(Text::new(text)),
        false => Err(SliceFault::TooLong(Text::new(key))),
    }
}

fn one_of<T: Copy>(
    text: &str,
    names: &'static str,
    choices: &[(&str, T)],
) -> Result<T, SliceFault> {
    choices
        .iter()
        .find(|(name, _)| *name == text)
        .map(|(_, value)| *value)
        .ok_or(SliceFault::NotOneOf(Text::new(text), names))
}

impl Slice {
    /// Adds a device.
    ///
    /// # Errors
    /// When it is listed already, or the list is full.
    pub fn list(&mut self, device: ListedDevice) -> Result<(), SliceFault> {
        for slot in &mut self.devices {
            match slot {
                Some(listed) if listed.uuid == device.uuid => {
                    return Err(SliceFault::TwiceListed(uuid_text(device.uuid)));
                }
                Some(_) => {}
                None => {
                    *slot = Some(device);
                    return Ok(());
                }
            }
        }
        Err(SliceFault::TooManyDevices)
    }

    /// The devices that the slice names.
    pub fn devices(&self) -> impl Iterator<Item = &ListedDevice> {
        self.devices.iter().flatten()
    }

    /// The budget of a device; None when the slice says nothing of it.
    #[must_use]
    pub fn device(&self, uuid: DeviceUuid) -> Option<DeviceSlice> {
        let listed = self.devices().find(|listed| listed.uuid == uuid);
        let memory = listed.and_then(|listed| listed.memory).or(self.memory)?;
        Some(DeviceSlice {
            memory,
            headroom: listed
                .and_then(|listed| listed.headroom)
                .unwrap_or(self.headroom),
            total: self.total,
            integrated: listed.and_then(|listed| listed.integrated),
        })
    }

    /// Whether the slice limits any device at all.
    #[must_use]
    pub fn limits_something(&self) -> bool {
        self.memory.is_some() || self.devices().next().is_some()
    }

    fn check(&self) -> Result<(), SliceFault> {
        for listed in self.devices() {
            let memory = listed
                .memory
                .or(self.memory)
                .ok_or(SliceFault::NoMemory(uuid_text(listed.uuid)))?;
            if listed.headroom.unwrap_or(self.headroom) >= memory {
                return Err(SliceFault::Headroom);
            }
        }
        match self.memory {
            Some(memory) if self.headroom >= memory => Err(SliceFault::Headroom),
            _ => Ok(()),
        }
    }
}

/// A uuid as a short text, written without the formatting machinery (which can panic).
fn uuid_text(uuid: DeviceUuid) -> Text<64> {
    let mut text = Text::EMPTY;
    let mut push = |byte: u8| {
        if let Some(slot) = text.bytes.get_mut(text.len) {
            *slot = byte;
            text.len = text.len.saturating_add(1);
        }
    };
    uuid.write_ascii(&mut push);
    text
}

#[cfg(feature = "std")]
mod write {
    use super::{PresentAs, Slice, Total, VERSION, uuid_text};
    use crate::units::Bytes;
    use serde_json::{Map, Value, json};
    use std::string::String;
    use std::vec::Vec;

    impl Slice {
        /// The slice file, as [`super::parse`] reads it back.
        #[must_use]
        pub fn to_json(&self) -> String {
            let mut file = Map::new();
            let mut put = |key: &str, value: Value| {
                file.insert(key.into(), value);
            };
            let bytes = |amount: Bytes| Value::from(amount.get());
            put("version", VERSION.into());
            put("name", self.name.as_str().into());
            put(
                "total",
                match self.total {
                    Total::Slice => "slice",
                    Total::Device => "device",
                }
                .into(),
            );
            put(
                "present_as",
                match self.present_as {
                    PresentAs::Uma => "uma",
                    PresentAs::Discrete => "discrete",
                }
                .into(),
            );
            put("enforce", self.enforce.into());
            if let Some(reserve) = self.reserve {
                put("reserve", bytes(reserve));
            }
            if let Some(meminfo) = self.meminfo {
                put("meminfo", meminfo.as_str().into());
            }
            if let Some(ledger) = self.ledger {
                put("ledger", ledger.as_str().into());
            }
            if let Some(memory) = self.memory {
                put("memory", bytes(memory));
            }
            put("headroom", bytes(self.headroom));
            let devices: Vec<Value> = self
                .devices()
                .map(|listed| {
                    let mut device = Map::new();
                    device.insert("uuid".into(), json!(uuid_text(listed.uuid).as_str()));
                    if let Some(memory) = listed.memory {
                        device.insert("memory".into(), bytes(memory));
                    }
                    if let Some(headroom) = listed.headroom {
                        device.insert("headroom".into(), bytes(headroom));
                    }
                    if let Some(integrated) = listed.integrated {
                        device.insert("integrated".into(), integrated.into());
                    }
                    Value::Object(device)
                })
                .collect();
            put("devices", devices.into());
            let mut text = serde_json::to_string_pretty(&Value::Object(file)).unwrap_or_default();
            text.push('\n');
            text
        }
    }
}

#[cfg(test)]
#[path = "slice_tests.rs"]
mod tests;
