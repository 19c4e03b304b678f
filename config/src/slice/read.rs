//! Reads a slice file.
//! Touches: its arguments.
//! Law: a key that is not understood is an error, never skipped: `memroy` must not mean "no limit".

use thiserror::Error;

use super::{
    DriverLimit, ListedDevice, MAX_FILE, Managed, ModelFiles, PageCache, PresentAs, Pressure,
    Slice, Total, VERSION,
};
use crate::words::device::DeviceUuid;
use crate::words::json::{JsonError, Reader};
use crate::words::text::Text;
use crate::words::units::Bytes;

/// An error in a slice file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {fault}")]
pub struct SliceError {
    /// The line, from 1.
    pub line: u32,
    /// The error.
    pub fault: SliceFault,
}

/// The kinds of errors in a slice file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SliceFault {
    /// The file is not JSON.
    #[error("not a slice file: {0}")]
    Json(#[from] JsonError),
    /// The file exceeds the maximum size.
    #[error("larger than a slice file can be (64 KiB)")]
    TooLarge,
    /// The file has no version.
    #[error("no \"version\" (this gpuslice writes version 1)")]
    NoVersion,
    /// A newer gpuslice wrote the file.
    #[error("version {0} is newer than this gpuslice reads (1): update gpuslice here")]
    NewerVersion(u64),
    /// The version never existed.
    #[error("there is no version {0} of slice files (this gpuslice writes version 1)")]
    NoSuchVersion(u64),
    /// The key is unknown.
    #[error("unknown key \"{0}\"")]
    UnknownKey(Text<32>),
    /// A key occurs twice.
    #[error("key \"{0}\" occurs twice")]
    Twice(Text<32>),
    /// The value is not one of those that the key accepts.
    #[error("\"{0}\" is not one of {1}")]
    NotOneOf(Text<32>, &'static str),
    /// A device without a uuid.
    #[error("a device has no \"uuid\"")]
    NoUuid,
    /// The text is not a UUID.
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
    /// A budget of zero.
    #[error("\"{0}\" is zero")]
    Zero(Text<32>),
    /// A percentage over a hundred.
    #[error("\"{0}\" is not a percentage (0 to 100)")]
    Percent(Text<32>),
    /// A relative path, which would mean another file in every working directory.
    #[error("\"{0}\" is not an absolute path")]
    Relative(Text<32>),
    /// The text is not a hexadecimal number.
    #[error("\"{0}\" is not a number of up to 16 hexadecimal digits")]
    Hexadecimal(Text<32>),
    /// The headroom leaves no memory.
    #[error("\"headroom\" is not less than \"memory\"")]
    Headroom,
    /// The limit exceeds the largest one.
    #[error("\"maximum\" is less than \"memory\"")]
    Maximum,
    /// A text that is too long.
    #[error("\"{0}\" is too long")]
    TooLong(Text<32>),
    /// The text is not a file name's suffix.
    #[error("\"{0}\" is not a suffix (they are written without the leading dot, like gguf)")]
    Suffix(Text<32>),
    /// More suffixes than a slice can list.
    #[error("more than 16 suffixes")]
    TooManySuffixes,
    /// More devices than a slice can list.
    #[error("more than 64 devices")]
    TooManyDevices,
}

/// Parses the slice file `text`.
///
/// # Errors
/// [`SliceError`] names the line and the error.
pub fn parse(text: &[u8]) -> Result<Slice, SliceError> {
    let mut slice = Slice::default();
    parse_into(text, &mut slice).map(|()| slice)
}

/// Parses the slice file `text` into an empty slice. A slice has 6 KiB, which may be too much for
/// the stack of the calling thread.
///
/// # Errors
/// As [`parse`]; the slice must then not be used.
pub fn parse_into(text: &[u8], slice: &mut Slice) -> Result<(), SliceError> {
    let mut reader = Reader::new(text);
    let read = match text.len() > MAX_FILE {
        true => Err(SliceFault::TooLarge),
        false => read_slice(&mut reader, slice),
    };
    read.map_err(|fault| SliceError {
        line: reader.line(),
        fault,
    })
}

/// The keys that an object has had, by their number.
struct Seen(u32);

impl Seen {
    fn once(&mut self, number: Option<u32>, key: &str) -> Result<(), SliceFault> {
        let bit = number
            .and_then(|number| 1u32.checked_shl(number))
            .ok_or(SliceFault::UnknownKey(Text::new(key)))?;
        if self.0 & bit != 0 {
            return Err(SliceFault::Twice(Text::new(key)));
        }
        self.0 |= bit;
        Ok(())
    }
}

/// Defines the numbers of an object's keys, and the list of the keys as [`super::TERMS`] has them:
/// one a line. The numbers are no list of texts, which the loader would have to relocate in every
/// process that starts.
macro_rules! keys {
    ($(#[$text:meta])+ $function:ident, $list:ident in $object:literal: $($key:literal => $number:literal,)+) => {
        pub(super) const $list: &str = concat!($($object, $key, "\n",)+);

        $(#[$text])+
        fn $function(key: &str) -> Option<u32> {
            Some(match key {
                $($key => $number,)+
                _ => return None,
            })
        }
    };
}

keys! {
    /// The number of a slice's key. `devices` has none: it is read on its own.
    slice_key, SLICE_KEYS in "":
    "version" => 0,
    "name" => 1,
    "total" => 2,
    "present_as" => 3,
    "enforce" => 4,
    "reserve" => 5,
    "meminfo" => 6,
    "ledger" => 7,
    "ledger_descriptor" => 8,
    "page_cache" => 9,
    "page_cache_share" => 10,
    "model_files" => 11,
    "promises" => 12,
    "promise" => 13,
    "cgroup" => 14,
    "host_allowance" => 15,
    "pressure" => 16,
    "pressure_file" => 17,
    "pressure_full" => 18,
    "pressure_available" => 19,
    "pressure_request" => 20,
    "pressure_used" => 21,
    "pressure_freed" => 22,
    "memory" => 23,
    "headroom" => 24,
    "managed" => 25,
    "ledger_id" => 26,
    "driver_cgroup" => 27,
    "maximum" => 28,
}

keys! {
    /// The number of a key of a listed device.
    device_key, DEVICE_KEYS in "devices.":
    "uuid" => 0,
    "memory" => 1,
    "headroom" => 2,
    "integrated" => 3,
    "driver_limit" => 4,
    "driver_backstop" => 5,
}

keys! {
    /// The number of a key of `model_files`.
    model_files_key, MODEL_FILES_KEYS in "model_files.":
    "suffixes" => 0,
    "smallest" => 1,
}

fn read_slice(reader: &mut Reader<'_>, slice: &mut Slice) -> Result<(), SliceFault> {
    let mut version = None;
    let (mut seen, mut devices_seen, mut first) = (Seen(0), false, true);
    reader.object()?;
    while let Some(key) = reader.key(&mut first)? {
        if key == "devices" {
            if core::mem::replace(&mut devices_seen, true) {
                return Err(SliceFault::Twice(Text::new(key)));
            }
            read_devices(reader, slice)?;
            continue;
        }
        seen.once(slice_key(key), key)?;
        match key {
            "version" => {
                let number = reader.number()?;
                // The version is written first. A newer file may have keys that this code does not
                // know, and the advice to update is then the better message.
                if number > VERSION {
                    return Err(SliceFault::NewerVersion(number));
                }
                if number != VERSION {
                    return Err(SliceFault::NoSuchVersion(number));
                }
                version = Some(number);
            }
            "name" => slice.name = short(key, reader.string()?)?,
            "total" => {
                slice.total = one_of(reader.string()?, "slice, device", Total::from_word)?;
            }
            "present_as" => {
                slice.present_as = one_of(reader.string()?, "uma, discrete", PresentAs::from_word)?;
            }
            "enforce" => slice.enforce = reader.boolean()?,
            "reserve" => slice.reserve = Some(Bytes::new(reader.number()?)),
            "meminfo" => slice.meminfo = Some(path(key, reader.string()?)?),
            "ledger" => slice.ledger = Some(path(key, reader.string()?)?),
            "ledger_id" => slice.ledger_id = Some(hexadecimal(key, reader.string()?)?),
            "ledger_descriptor" => slice.ledger_descriptor = Some(path(key, reader.string()?)?),
            "page_cache" => {
                slice.page_cache = one_of(
                    reader.string()?,
                    "keep, drop, drop-behind",
                    PageCache::from_word,
                )?;
            }
            "page_cache_share" => slice.page_cache_share = reader.boolean()?,
            "model_files" => slice.model_files = read_model_files(reader)?,
            "promises" => slice.promises = Some(path(key, reader.string()?)?),
            "promise" => slice.promise = Some(path(key, reader.string()?)?),
            "cgroup" => slice.cgroup = Some(path(key, reader.string()?)?),
            "driver_cgroup" => slice.driver_cgroup = Some(path(key, reader.string()?)?),
            "host_allowance" => slice.host_allowance = Some(Bytes::new(reader.number()?)),
            "managed" => {
                slice.managed = one_of(reader.string()?, "count, allow", Managed::from_word)?;
            }
            "pressure" => {
                slice.pressure = one_of(reader.string()?, "refuse, release", Pressure::from_word)?;
            }
            "pressure_file" => slice.thresholds.file = Some(path(key, reader.string()?)?),
            "pressure_full" => slice.thresholds.full = Some(percent(key, reader)?),
            "pressure_available" => slice.thresholds.available = Some(number(reader)?),
            "pressure_request" => slice.thresholds.request = Some(number(reader)?),
            "pressure_used" => slice.thresholds.used = Some(percent(key, reader)?),
            "pressure_freed" => slice.thresholds.freed = Some(number(reader)?),
            "memory" => slice.memory = Some(budget(key, reader)?),
            "headroom" => slice.headroom = Bytes::new(reader.number()?),
            "maximum" => slice.maximum = Some(budget(key, reader)?),
            _ => return Err(SliceFault::UnknownKey(Text::new(key))),
        }
    }
    reader.end()?;
    version.ok_or(SliceFault::NoVersion)?;
    slice.check()
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
    let (mut driver_limit, mut driver_backstop, mut seen, mut first) = (None, false, Seen(0), true);
    reader.object()?;
    while let Some(key) = reader.key(&mut first)? {
        seen.once(device_key(key), key)?;
        match key {
            "uuid" => {
                let text = reader.string()?;
                let read = text.parse::<DeviceUuid>();
                uuid = Some(read.map_err(|_| SliceFault::Uuid(Text::new(text)))?);
            }
            "memory" => memory = Some(budget(key, reader)?),
            "headroom" => headroom = Some(Bytes::new(reader.number()?)),
            "integrated" => integrated = Some(reader.boolean()?),
            "driver_limit" => {
                let word = reader.string()?;
                driver_limit = Some(one_of(word, "dmem, misc", DriverLimit::from_word)?);
            }
            "driver_backstop" => driver_backstop = reader.boolean()?,
            _ => return Err(SliceFault::UnknownKey(Text::new(key))),
        }
    }
    Ok(ListedDevice {
        uuid: uuid.ok_or(SliceFault::NoUuid)?,
        memory,
        headroom,
        integrated,
        driver_limit,
        driver_backstop,
    })
}

fn read_model_files(reader: &mut Reader<'_>) -> Result<ModelFiles, SliceFault> {
    let mut files = ModelFiles::usual();
    let (mut seen, mut first) = (Seen(0), true);
    reader.object()?;
    while let Some(key) = reader.key(&mut first)? {
        seen.once(model_files_key(key), key)?;
        match key {
            "suffixes" => {
                let mut listed = ModelFiles::none(files.smallest);
                let mut first = true;
                reader.array()?;
                while reader.element(&mut first)? {
                    listed.add(reader.string()?)?;
                }
                files = listed;
            }
            "smallest" => files.smallest = budget(key, reader)?,
            _ => return Err(SliceFault::UnknownKey(Text::new(key))),
        }
    }
    Ok(files)
}

fn budget(key: &str, reader: &mut Reader<'_>) -> Result<Bytes, SliceFault> {
    match reader.number()? {
        0 => Err(SliceFault::Zero(Text::new(key))),
        bytes => Ok(Bytes::new(bytes)),
    }
}

fn number(reader: &mut Reader<'_>) -> Result<Bytes, SliceFault> {
    Ok(Bytes::new(reader.number()?))
}

fn percent(key: &str, reader: &mut Reader<'_>) -> Result<u8, SliceFault> {
    match u8::try_from(reader.number()?) {
        Ok(percent @ 0..=100) => Ok(percent),
        _ => Err(SliceFault::Percent(Text::new(key))),
    }
}

fn short<const N: usize>(key: &str, text: &str) -> Result<Text<N>, SliceFault> {
    match text.len() <= N {
        true => Ok(Text::new(text)),
        false => Err(SliceFault::TooLong(Text::new(key))),
    }
}

/// A path must leave room for C's final NUL.
fn path<const N: usize>(key: &str, text: &str) -> Result<Text<N>, SliceFault> {
    if !text.starts_with('/') {
        return Err(SliceFault::Relative(Text::new(key)));
    }
    match text.len() < N {
        true => Ok(Text::new(text)),
        false => Err(SliceFault::TooLong(Text::new(key))),
    }
}

fn hexadecimal(key: &str, text: &str) -> Result<u64, SliceFault> {
    let is_digits = text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = u64::from_str_radix(text, 16).ok().filter(|_| is_digits);
    number.ok_or(SliceFault::Hexadecimal(Text::new(key)))
}

fn one_of<T>(
    text: &str,
    names: &'static str,
    choice: impl FnOnce(&str) -> Option<T>,
) -> Result<T, SliceFault> {
    choice(text).ok_or(SliceFault::NotOneOf(Text::new(text), names))
}
