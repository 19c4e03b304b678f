//! Copies a ledger as it was at one moment, for observers outside the slice: the host's status, a
//! collector.
//! Touches: the file, by reading it. Never: a mapping, so a truncated file harms no observer.
//!
//! Only the header and the slots that were ever taken are read, which is a small part of most
//! files. They are read until two consecutive readings are equal: then that was their content at
//! the moment between them. If a slice never rests for that long, its last reading is used. Each
//! process is then off by at most the amount that it was just claiming or releasing.

use super::error::refuse;
use super::kernel::lock_file::{LOCKS, Path};
use super::protocol::header::{
    DEVICES_AT, EXTENT_AT, ID_AT, LIMITS_AT, LOCKS_AT, NOTED_AT, Noted, SHARERS_AT, UNCOUNTED_AT,
    uuid_of,
};
use super::protocol::layout::{
    DEVICES, Device, Head, KINDS, Kind, Node, PAGE, columns_at, sharing_at, slots_of,
};
use super::protocol::sharing::{ROW, SHARERS, payers};
use super::{LedgerError, Record, Refusals, SetLimit};
use crate::sys::{Access, Fd};
use crate::words::units::Bytes;
use core::ffi::CStr;
use core::mem::offset_of;
use core::ops::Range;

/// The maximum number of further readings.
const READINGS: usize = 16;

/// The parts of a ledger that are in use. The others were never written to: they are zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    /// The number of slots, up to the last one that was ever taken.
    slots: usize,
    /// The number of rows of sharers, up to the last one that was ever used.
    rows: usize,
}

impl Extent {
    /// The extent that the header says, in a ledger of so many slots.
    fn of(header: &[u8], slots: usize) -> Extent {
        let number = |at: usize, most: usize| {
            let word = header.get(at..).and_then(<[u8]>::first_chunk);
            let word = word.map_or(u32::MAX, |word| u32::from_ne_bytes(*word));
            usize::try_from(word).map_or(most, |number| number.min(most))
        };
        Extent {
            slots: number(EXTENT_AT, slots),
            rows: number(SHARERS_AT, SHARERS),
        }
    }

    /// The places of these parts in a file of so many slots, besides the header. Of the nodes, it
    /// has one more: see [`hides_one`].
    fn parts(self, slots: usize) -> [Range<usize>; 4] {
        let [used, _, nodes, kinds] = columns_at(slots);
        let part = |at: usize, count: usize, size: usize| {
            at..at.saturating_add(count.saturating_mul(size))
        };
        let nodes_seen = self.slots.saturating_add(1).min(slots);
        [
            part(used, self.slots, 8),
            part(nodes, nodes_seen, size_of::<Node>()),
            part(kinds, self.slots, KINDS.saturating_mul(8)),
            part(sharing_at(slots), self.rows, ROW),
        ]
    }
}

/// Whether the slot after the extent was ever taken: the extent was overwritten, and says nothing.
fn hides_one(bytes: &[u8], extent: Extent, slots: usize) -> bool {
    let [_, _, nodes, _] = columns_at(slots);
    let node = nodes.saturating_add(extent.slots.saturating_mul(size_of::<Node>()));
    let head = bytes.get(node..).and_then(<[u8]>::first_chunk);
    extent.slots < slots && head.is_some_and(|head| *head != [0; 8])
}

/// Reads a part of the file again and copies the differences. Returns whether there were none.
fn is_unchanged(fd: &Fd, bytes: &mut [u8], part: Range<usize>) -> Result<bool, LedgerError> {
    let (mut again, mut from, mut unchanged) = ([0; PAGE], part.start, true);
    let wrong = |at: usize| LedgerError::Length(at as u64);
    let known = bytes.get_mut(part).ok_or(wrong(from))?;
    for known in known.chunks_mut(again.len()) {
        let again = again.get_mut(..known.len()).unwrap_or_default();
        let length = fd.read(again, from).map_err(LedgerError::Open)?;
        from = from.saturating_add(length);
        if length != known.len() {
            return Err(wrong(from));
        }
        if *known != *again {
            known.copy_from_slice(again);
            unchanged = false;
        }
    }
    Ok(unchanged)
}

/// Reads the parts that are in use, until two consecutive readings are equal.
fn copy(fd: &Fd, bytes: &mut [u8], slots: usize) -> Result<Extent, LedgerError> {
    let mut before = None;
    for _ in 0..=READINGS {
        let mut unchanged = is_unchanged(fd, bytes, 0..PAGE)?;
        let mut extent = Extent::of(bytes, slots);
        for part in extent.parts(slots) {
            unchanged &= is_unchanged(fd, bytes, part)?;
        }
        if hides_one(bytes, extent, slots) {
            extent.slots = slots;
            for part in extent.parts(slots) {
                unchanged &= is_unchanged(fd, bytes, part)?;
            }
        }
        // The bytes that the first reading found in `bytes` are those of another moment.
        let is_second = before.replace(extent) == Some(extent);
        if unchanged && is_second {
            break;
        }
    }
    Ok(before.unwrap_or(Extent { slots: 0, rows: 0 }))
}

/// A number that changes with the amounts and the refusals of a ledger, for an observer that looks
/// again and again: reading it costs two short reads where nothing has changed. `link` leads to the
/// ledger as in [`Snapshot::read_link`]. A process that dies changes no word of the ledger.
///
/// # Errors
/// When the file cannot be opened, or has no ledger's length.
pub fn fingerprint(link: &CStr) -> Result<u64, LedgerError> {
    let fd = Fd::open_link(link).map_err(LedgerError::Open)?;
    let stat = fd.stat().map_err(LedgerError::Open)?;
    let wrong = LedgerError::Length(stat.length);
    let slots = slots_of(stat.length)
        .filter(|_| stat.regular)
        .ok_or(wrong)?;
    let mut page = [0; PAGE];
    if fd.read(&mut page, 0).map_err(LedgerError::Open)? != PAGE {
        return Err(wrong);
    }
    let extent = Extent::of(&page, slots).slots;
    let mut sum = mixed(0, &page);
    let (mut from, [used, ..]) = (0usize, columns_at(slots));
    let length = extent.saturating_mul(8);
    while from < length {
        let room = length.saturating_sub(from).min(PAGE);
        let part = page.get_mut(..room).ok_or(wrong)?;
        if fd
            .read(part, used.saturating_add(from))
            .map_err(LedgerError::Open)?
            != room
        {
            return Err(wrong);
        }
        sum = mixed(sum, part);
        from = from.saturating_add(room);
    }
    Ok(sum)
}

/// Mixes words into a number, as FNV does with bytes.
pub(super) fn mixed(sum: u64, bytes: &[u8]) -> u64 {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().fold(sum, |sum, word| {
        (sum ^ u64::from_ne_bytes(*word))
            .wrapping_mul(0x0000_0100_0000_01B3)
            .rotate_left(23)
    })
}

/// A copy of a ledger file, with the file open to query which owners are alive.
pub struct Snapshot<'a> {
    /// Only the parts in use were read. The others may be of another ledger.
    bytes: &'a [u8],
    slots: usize,
    extent: Extent,
    /// The file that carries the locks.
    locks: Fd,
}

impl<'a> Snapshot<'a> {
    /// Copies the ledger at `path` into `place`. That must have [`MAX_SIZE`] bytes, or the ledger's
    /// length where it is known.
    ///
    /// [`MAX_SIZE`]: super::MAX_SIZE
    ///
    /// # Errors
    /// When the file cannot be opened, or is not a ledger of this version.
    pub fn read(path: &CStr, place: &'a mut [u8]) -> Result<Snapshot<'a>, LedgerError> {
        let fd = Fd::open(path, Access::Read).map_err(LedgerError::Open)?;
        Snapshot::of(fd, path, place)
    }

    /// Like [`Snapshot::read`], for the ledger that a descriptor of this process leads to:
    /// `/proc/self/fd/N`. It stays readable after its path was removed.
    ///
    /// # Errors
    /// As [`Snapshot::read`]; a sealed ledger has its locks at a path.
    pub fn read_link(link: &CStr, place: &'a mut [u8]) -> Result<Snapshot<'a>, LedgerError> {
        let fd = Fd::open_link(link).map_err(LedgerError::Open)?;
        Snapshot::of(fd, c"", place)
    }

    fn of(fd: Fd, path: &CStr, place: &'a mut [u8]) -> Result<Snapshot<'a>, LedgerError> {
        let stat = fd.stat().map_err(LedgerError::Open)?;
        if !stat.regular {
            return Err(LedgerError::NotAFile);
        }
        let wrong = LedgerError::Length(stat.length);
        let slots = slots_of(stat.length).ok_or(wrong)?;
        let length = usize::try_from(stat.length).map_err(|_| wrong)?;
        let bytes = place.get_mut(..length).ok_or(wrong)?;
        let extent = copy(&fd, bytes, slots)?;
        let mut snapshot = Snapshot {
            bytes,
            slots,
            extent,
            locks: fd,
        };
        refuse(
            snapshot.u64(0),
            snapshot.u32(8),
            snapshot.u32(12),
            snapshot.slots,
        )?;
        if snapshot.u32(LOCKS_AT) == 1 {
            let beside = Path::<256>::beside(path, LOCKS).ok_or(LedgerError::Path)?;
            let locks = Fd::open(beside.as_c_str(), Access::Read);
            snapshot.locks = locks.map_err(LedgerError::Open)?;
        }
        Ok(snapshot)
    }

    /// Whether the ledger's locks are on a file beside it: it is sealed.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.u32(LOCKS_AT) == 1
    }

    /// The ledger's id; 0 if none was set.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.u64(ID_AT)
    }

    /// The slots that are taken. A process may be charged for imported memory that no exporter
    /// holds any more; its bytes include that.
    pub fn slots(&self) -> impl Iterator<Item = Record> + '_ {
        let charges = self.imports();
        (0..self.extent.slots).filter_map(move |slot| {
            let mut record = self.record(slot)?;
            let its = charges.iter().flatten().find(|(payer, _)| *payer == slot);
            let charged = its.map_or(0, |(_, bytes)| *bytes);
            record.used = record.used.saturating_add(charged);
            let mut kinds = record.by_kind.iter_mut();
            if let Some((_, held)) = kinds.find(|(kind, _)| *kind == Kind::Vmm) {
                *held = held.saturating_add(charged);
            }
            Some(record)
        })
    }

    /// The slots that are charged for imported memory, with the amounts.
    fn imports(&self) -> [Option<(usize, u64)>; SHARERS] {
        let mut charges = [None; SHARERS];
        let [.., rows] = self.extent.parts(self.slots);
        let copy = self.bytes.get(rows).unwrap_or_default();
        let device = |slot: usize| {
            let head = self.head(slot);
            let is_counted =
                slot < self.extent.slots && head.taken() && self.locks.locked(slot).unwrap_or(true);
            is_counted.then(|| head.device())
        };
        payers(copy, device, |slot, bytes| {
            let place = charges.iter_mut().find(|place| match place {
                None => true,
                Some((payer, _)) => *payer == slot,
            });
            if let Some(place) = place {
                let (_, charged) = place.get_or_insert((slot, 0u64));
                *charged = charged.saturating_add(bytes);
            }
        });
        charges
    }

    fn head(&self, slot: usize) -> Head {
        let [_, _, nodes, _] = columns_at(self.slots);
        let at = slot.saturating_mul(size_of::<Node>());
        Head(self.u64(nodes.saturating_add(at)))
    }

    /// The number of claims that found no slot.
    #[must_use]
    pub fn uncounted(&self) -> u64 {
        self.u64(UNCOUNTED_AT)
    }

    /// The refusals on each device of the ledger.
    pub fn refusals(
        &self,
    ) -> impl Iterator<Item = (crate::words::device::DeviceUuid, Refusals)> + '_ {
        (0..DEVICES).filter_map(|index| {
            let device = Device(u8::try_from(index).ok()?);
            let at = NOTED_AT.saturating_add(index.saturating_mul(size_of::<Noted>()));
            let word = |place: usize| self.u64(at.saturating_add(place));
            let refusals = Refusals {
                count: word(offset_of!(Noted, refusals)),
                regret: Bytes::new(word(offset_of!(Noted, regret))),
            };
            Some((self.uuid(device)?, refusals))
        })
    }

    /// The devices whose limit was set since the start of the slice, with that limit.
    pub fn limits(&self) -> impl Iterator<Item = (crate::words::device::DeviceUuid, Bytes)> + '_ {
        (0..DEVICES).filter_map(|index| {
            let device = Device(u8::try_from(index).ok()?);
            let word = self.u32(LIMITS_AT.saturating_add(index.saturating_mul(4)));
            Some((self.uuid(device)?, SetLimit::read(word).bytes()?))
        })
    }

    fn record(&self, slot: usize) -> Option<Record> {
        let at = |array: usize, stride: usize| array.saturating_add(slot.saturating_mul(stride));
        let [used, _, nodes, kinds] = columns_at(self.slots);
        let node = at(nodes, size_of::<Node>());
        let head = Head(self.u64(node));
        if !head.taken() {
            return None;
        }
        let kinds = at(kinds, KINDS.saturating_mul(8));
        let used = self.u64(at(used, 8));
        let word = |index: usize| self.u64(kinds.saturating_add(index.saturating_mul(8)));
        let (used, by_kind) = Kind::by_kind(used, word);
        Some(Record {
            slot,
            pid: self.u32(node.saturating_add(offset_of!(Node, pid))),
            device: self.uuid(head.device()),
            used,
            by_kind,
            alive: self.locks.locked(slot).unwrap_or(true),
        })
    }

    fn uuid(&self, device: Device) -> Option<crate::words::device::DeviceUuid> {
        let index = usize::from(device.0).min(DEVICES);
        let at = DEVICES_AT.saturating_add(index.saturating_mul(24));
        let word = |index: usize| self.u64(at.saturating_add(index));
        uuid_of([word(0), word(8)], word(16))
    }

    fn u64(&self, at: usize) -> u64 {
        let bytes = self.bytes.get(at..).and_then(|bytes| bytes.first_chunk());
        u64::from_ne_bytes(bytes.copied().unwrap_or_default())
    }

    fn u32(&self, at: usize) -> u32 {
        let bytes = self.bytes.get(at..).and_then(|bytes| bytes.first_chunk());
        u32::from_ne_bytes(bytes.copied().unwrap_or_default())
    }
}
