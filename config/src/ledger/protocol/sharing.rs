//! Decides which process pays for memory that one process of a slice has exported and others have
//! imported.
//! Touches: the rows of the ledger's sharers, one for each process and device that exports or
//! imports. Only that process writes to its row, or the process that wipes its slot when it is
//! dead.
//! Law: the exporter pays while it holds the exported memory. Afterwards its importers pay, once
//! for each object. A charge is summed from the rows, never stored.
//!
//! An object is identified by a key, and the driver decides how distinct keys are: the 64 bytes of
//! an IPC handle, or the device and inode of a descriptor, which may be equal for all objects. Keys
//! fall into [`CLASSES`]. The charge of a class is the most that one process has imported, minus
//! all that its exporters still hold. So several importers of one object pay once, and several
//! objects of one class are never charged twice.
//!
//! An exporter subtracts from its row before it releases the bytes in the ledger, and rows are read
//! after the used bytes. In between the bytes count twice, but are never missed.

use super::layout::{Device, Head, Table};
use super::sync::{AtomicU32, AtomicU64};
use crate::words::units::Bytes;
use core::mem::offset_of;
use core::sync::atomic::Ordering::SeqCst;

/// The number of classes of objects.
pub const CLASSES: usize = 128;
/// The number of rows, one for each process and device.
pub(crate) const SHARERS: usize = 64;

/// One row. All zeros: free.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Sharer {
    /// The slot of the row's process and device, plus one.
    owner: AtomicU32,
    spare: [AtomicU32; 15],
    /// The exported memory that it still holds: pages, and above them the number of objects.
    exported: [AtomicU64; CLASSES],
    /// The imported memory, in pages.
    imported: [AtomicU32; CLASSES],
}

/// The length of a row.
pub(crate) const ROW: usize = size_of::<Sharer>();
/// The length of all rows.
pub(crate) const SIZE: usize = SHARERS * ROW;

const _: () = assert!(SIZE.is_multiple_of(4096));

/// The class of an object; different objects may share a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class(u8);

impl Class {
    /// The class of an object with this key.
    #[must_use]
    pub const fn of(key: u64) -> Class {
        let [folded, ..] = (key ^ key >> 32).to_le_bytes();
        Class::numbered(folded)
    }

    /// The class for a number from [`Class::number`].
    #[must_use]
    pub const fn numbered(number: u8) -> Class {
        Class(number & 127)
    }

    /// Its number, below [`CLASSES`].
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// The key of an object that these bytes identify.
#[must_use]
pub fn key_of(bytes: &[u8]) -> u64 {
    // FNV-1a, then the final mixing of splitmix64: every bit of the key depends on every byte.
    let mixed = bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ mixed >> 31
}

/// The unit of a row's words: the smallest size in which Vulkan and OpenCL are charged. A word counts
/// up to 16 TiB.
const PAGE: u64 = 4 << 10;
const PAGES: u64 = u32::MAX as u64;
const OBJECT: u64 = PAGES + 1;

fn pages(bytes: Bytes) -> u32 {
    u32::try_from(bytes.get().div_ceil(PAGE)).unwrap_or(u32::MAX)
}

fn bytes(pages: u64) -> u64 {
    pages.saturating_mul(PAGE)
}

/// The rows that were ever used.
fn rows<'a>(table: Table<'a>) -> &'a [Sharer] {
    if table.sharing.is_empty() {
        return &[];
    }
    let extent = usize::try_from(table.sharers.load(SeqCst)).unwrap_or(SHARERS);
    table.sharing.get(..extent).unwrap_or(table.sharing)
}

/// The row of a slot.
pub(crate) fn row<'a>(table: Table<'a>, slot: usize) -> Option<&'a Sharer> {
    let owner = u32::try_from(slot.checked_add(1)?).ok()?;
    rows(table)
        .iter()
        .find(|row| row.owner.load(SeqCst) == owner)
}

/// The row of a slot of this process; a free row is taken if it has none. `None` if all are taken.
pub(crate) fn row_for<'a>(table: Table<'a>, slot: usize) -> Option<&'a Sharer> {
    if let Some(row) = row(table, slot) {
        return Some(row);
    }
    let owner = u32::try_from(slot.checked_add(1)?).ok()?;
    let free = |row: &&Sharer| {
        let taken = row.owner.compare_exchange(0, owner, SeqCst, SeqCst);
        taken.map_or_else(|found| found == owner, |_| true)
    };
    let place = table.sharing.iter().position(|row| free(&row))?;
    // This disables the fast path for a process alone in its slice: claims sum from now on.
    table.extent.fetch_max(2, SeqCst);
    let end = u32::try_from(place.saturating_add(1)).ok()?;
    table.sharers.fetch_max(end, SeqCst);
    table.sharing.get(place)
}

/// Clears the row of a slot's dead owner. Requires the slot's lock; call before the rest of the
/// slot is wiped.
pub(crate) fn wipe(table: Table<'_>, slot: usize) {
    if let Some(row) = row(table, slot) {
        row.exported.iter().for_each(|word| word.store(0, SeqCst));
        row.imported.iter().for_each(|word| word.store(0, SeqCst));
        row.owner.store(0, SeqCst);
    }
}

/// The charge for imports on a device. `lives`: whether the owner of a slot with this head counts.
/// Call after the used bytes were read.
#[inline]
pub(crate) fn imported(
    table: Table<'_>,
    device: Device,
    lives: impl FnMut(usize, Head) -> bool,
) -> u64 {
    match rows(table) {
        [] => 0,
        rows => charge(table, rows, device, lives),
    }
}

#[cold]
fn charge(
    table: Table<'_>,
    rows: &[Sharer],
    device: Device,
    mut lives: impl FnMut(usize, Head) -> bool,
) -> u64 {
    let (mut most, mut held) = ([0u64; CLASSES], [0u64; CLASSES]);
    for row in rows {
        if !is_on(table, row, device, &mut lives) {
            continue;
        }
        for (most, imported) in most.iter_mut().zip(&row.imported) {
            *most = (*most).max(u64::from(imported.load(SeqCst)));
        }
        for (held, exported) in held.iter_mut().zip(&row.exported) {
            *held = held.saturating_add(exported.load(SeqCst) & PAGES);
        }
    }
    let charged = most.iter().zip(held);
    let pages = charged.map(|(most, held)| most.saturating_sub(held));
    bytes(pages.fold(0, u64::saturating_add))
}

fn is_on(
    table: Table<'_>,
    row: &Sharer,
    device: Device,
    lives: &mut impl FnMut(usize, Head) -> bool,
) -> bool {
    let owner = usize::try_from(row.owner.load(SeqCst)).ok();
    let Some(slot) = owner.and_then(|owner| owner.checked_sub(1)) else {
        return false;
    };
    let Some(node) = table.nodes.get(slot) else {
        return false;
    };
    let head = node.head();
    head.is(device) && lives(slot, head)
}

/// The charge for a class on a device, now, and if the owner of this slot imported so many more
/// pages.
fn charge_with(
    table: Table<'_>,
    device: Device,
    class: Class,
    slot: usize,
    more: u32,
    mut lives: impl FnMut(usize, Head) -> bool,
) -> (u64, u64) {
    let place = usize::from(class.number());
    let own = row(table, slot).and_then(|row| row.imported.get(place));
    let own = own.map_or(0, |own| u64::from(own.load(SeqCst)));
    let (mut most, mut held) = (own, 0u64);
    for row in rows(table) {
        if let (Some(imported), Some(exported)) = (row.imported.get(place), row.exported.get(place))
            && is_on(table, row, device, &mut lives)
        {
            most = most.max(u64::from(imported.load(SeqCst)));
            held = held.saturating_add(exported.load(SeqCst) & PAGES);
        }
    }
    let after = most.max(own.saturating_add(u64::from(more)));
    (most.saturating_sub(held), after.saturating_sub(held))
}

/// The growth of the slice's charge if the owner of this slot imported this much.
pub(crate) fn growth(
    table: Table<'_>,
    device: Device,
    class: Class,
    slot: usize,
    more: Bytes,
    lives: impl FnMut(usize, Head) -> bool,
) -> Bytes {
    let (now, after) = charge_with(table, device, class, slot, pages(more), lives);
    Bytes::new(bytes(after.saturating_sub(now)))
}

/// The size of an exported object, as far as its class reveals it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectSize {
    /// The size; the average if the class has several objects.
    pub bytes: Bytes,
    /// Whether the class has several objects.
    pub is_average: bool,
}

/// The size of one exported object of a class.
pub(crate) fn object(
    table: Table<'_>,
    device: Device,
    class: Class,
    mut lives: impl FnMut(usize, Head) -> bool,
) -> Option<ObjectSize> {
    let place = usize::from(class.number());
    let (mut objects, mut pages) = (0u64, 0u64);
    for row in rows(table) {
        if let Some(exported) = row.exported.get(place)
            && is_on(table, row, device, &mut lives)
        {
            let word = exported.load(SeqCst);
            objects = objects.saturating_add(word / OBJECT);
            pages = pages.saturating_add(word & PAGES);
        }
    }
    let size = ObjectSize {
        bytes: Bytes::new(bytes(pages.div_ceil(objects.max(1)))),
        is_average: objects > 1,
    };
    (objects != 0).then_some(size)
}

fn change(word: &AtomicU64, by: impl Fn(u64) -> u64) {
    let mut seen = word.load(SeqCst);
    while let Err(now) = word.compare_exchange(seen, by(seen), SeqCst, SeqCst) {
        seen = now;
    }
}

fn change32(word: &AtomicU32, by: impl Fn(u32) -> u32) {
    let mut seen = word.load(SeqCst);
    while let Err(now) = word.compare_exchange(seen, by(seen), SeqCst, SeqCst) {
        seen = now;
    }
}

impl Sharer {
    /// A free row.
    #[cfg(test)]
    pub(crate) fn empty() -> Sharer {
        Sharer {
            owner: AtomicU32::new(0),
            spare: [(); 15].map(|()| AtomicU32::new(0)),
            exported: [(); CLASSES].map(|()| AtomicU64::new(0)),
            imported: [(); CLASSES].map(|()| AtomicU32::new(0)),
        }
    }

    /// Adds an exported object.
    pub(crate) fn export(&self, class: Class, size: Bytes) {
        if let Some(word) = self.exported.get(usize::from(class.number())) {
            let size = u64::from(pages(size));
            change(word, |seen| {
                let all = (seen & PAGES).saturating_add(size).min(PAGES);
                (seen & !PAGES).saturating_add(OBJECT) | all
            });
        }
    }

    /// Removes an exported object that is no longer held.
    pub(crate) fn unexport(&self, class: Class, size: Bytes) {
        if let Some(word) = self.exported.get(usize::from(class.number())) {
            let size = u64::from(pages(size));
            change(word, |seen| {
                let objects = (seen & !PAGES).saturating_sub(OBJECT);
                objects | (seen & PAGES).saturating_sub(size)
            });
        }
    }

    /// Adds imported memory.
    pub(crate) fn import(&self, class: Class, size: Bytes) {
        if let Some(word) = self.imported.get(usize::from(class.number())) {
            change32(word, |seen| seen.saturating_add(pages(size)));
        }
    }

    /// Removes imported memory that is no longer held.
    pub(crate) fn unimport(&self, class: Class, size: Bytes) {
        if let Some(word) = self.imported.get(usize::from(class.number())) {
            change32(word, |seen| seen.saturating_sub(pages(size)));
        }
    }
}

/// The charges for imports in a copy of all rows, with the slots that pay. For each class, the
/// process that has imported the most pays. `device`: the device that a slot counts on.
pub(crate) fn payers(
    copy: &[u8],
    device: impl Fn(usize) -> Option<Device>,
    mut pays: impl FnMut(usize, u64),
) {
    let word = |row: &[u8], at: usize| -> u32 {
        let bytes = row.get(at..).and_then(<[u8]>::first_chunk);
        u32::from_le_bytes(bytes.copied().unwrap_or_default())
    };
    let rows = || copy.chunks_exact(size_of::<Sharer>());
    let mut owners = [None; SHARERS];
    for (owner, row) in owners.iter_mut().zip(rows()) {
        let slot = usize::try_from(word(row, 0)).unwrap_or(0).checked_sub(1);
        *owner = slot.and_then(|slot| Some((slot, device(slot)?)));
    }
    let place =
        |at: usize, class: usize, size: usize| at.saturating_add(class.saturating_mul(size));
    for (first, one) in owners.iter().enumerate() {
        let Some((_, device)) = *one else {
            continue;
        };
        let is_its = |owner: &Option<(usize, Device)>| owner.is_some_and(|(_, its)| its == device);
        if owners.iter().position(is_its) != Some(first) {
            continue;
        }
        for class in 0..CLASSES {
            let (mut most, mut held) = (None, 0u64);
            for (owner, row) in owners.iter().zip(rows()) {
                let Some((slot, _)) = owner.filter(|owner| is_its(&Some(*owner))) else {
                    continue;
                };
                let imported = word(row, place(offset_of!(Sharer, imported), class, 4)).into();
                if imported > most.map_or(0, |(_, most)| most) {
                    most = Some((slot, imported));
                }
                let exported = word(row, place(offset_of!(Sharer, exported), class, 8));
                held = held.saturating_add(exported.into());
            }
            if let Some((slot, most)) = most
                && most > held
            {
                pays(slot, bytes(most.saturating_sub(held)));
            }
        }
    }
}
