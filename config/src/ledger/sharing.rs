//! Memory that one process of a slice has exported and others have imported: who pays for it.
//! Touches: the rows of the ledger's sharers, one for each process and device that exports or
//! imports; nobody but that process writes to its row, and who wipes its slot when it is dead.
//! Law: the exporter pays while it holds what it has exported; afterwards whoever has imported it,
//! once for each object. A charge is summed from the rows, never stored.
//!
//! An object is known by a key of which a driver gives no more than it likes: the 64 bytes of an IPC
//! handle, or the device and inode of a descriptor, which may be the same for all objects. Keys fall
//! into [`CLASSES`]. Of each class the charge is the most that one process has imported, less all
//! that is still held by those who have exported it: so many who import the same pay once, and
//! several objects of one class are never charged twice.
//!
//! An exporter takes its row's bytes away before it releases what the ledger has of them, and rows
//! are read after what is used: in between the bytes count twice, never not at all.

use super::layout::{Device, Head, Table};
use super::step::STEP;
use super::sync::{AtomicU32, AtomicU64};
use crate::units::Bytes;
use core::mem::offset_of;
use core::sync::atomic::Ordering::SeqCst;

/// How many kinds of objects are told apart.
pub const CLASSES: usize = 128;
/// How many processes and devices can have a row.
pub(super) const SHARERS: usize = 64;

/// One row. All zeros: nobody's.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Sharer {
    /// One more than the slot of the process and device that it is for.
    owner: AtomicU32,
    spare: [AtomicU32; 15],
    /// What it has exported and still holds: steps, and above them how many objects.
    exported: [AtomicU64; CLASSES],
    /// What it has imported, in steps.
    imported: [AtomicU32; CLASSES],
}

/// The length of all rows.
pub(super) const SIZE: usize = SHARERS * size_of::<Sharer>();

const _: () = assert!(SIZE.is_multiple_of(4096));

/// What kind of object something is, as far as it can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class(u8);

impl Class {
    /// The class of an object with this key.
    #[must_use]
    pub const fn of(key: u64) -> Class {
        let [folded, ..] = (key ^ key >> 32).to_le_bytes();
        Class::numbered(folded)
    }

    /// The class with a number that [`Class::number`] gave.
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

/// The key of an object that is known by these bytes.
#[must_use]
pub fn key_of(bytes: &[u8]) -> u64 {
    // FNV-1a, and what splitmix64 ends with: every bit of the key depends on every byte.
    let mixed = bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ mixed >> 31
}

const STEPS: u64 = u32::MAX as u64;
const OBJECT: u64 = STEPS + 1;

fn steps(bytes: Bytes) -> u32 {
    u32::try_from(bytes.get().div_ceil(STEP)).unwrap_or(u32::MAX)
}

fn bytes(steps: u64) -> u64 {
    steps.saturating_mul(STEP)
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
pub(super) fn row<'a>(table: Table<'a>, slot: usize) -> Option<&'a Sharer> {
    let owner = u32::try_from(slot.checked_add(1)?).ok()?;
    rows(table)
        .iter()
        .find(|row| row.owner.load(SeqCst) == owner)
}

/// The same, which a slot of this process gets if it has none. None: all are taken.
pub(super) fn row_for<'a>(table: Table<'a>, slot: usize) -> Option<&'a Sharer> {
    if let Some(row) = row(table, slot) {
        return Some(row);
    }
    let owner = u32::try_from(slot.checked_add(1)?).ok()?;
    let free = |row: &&Sharer| {
        let taken = row.owner.compare_exchange(0, owner, SeqCst, SeqCst);
        taken.map_or_else(|found| found == owner, |_| true)
    };
    let place = table.sharing.iter().position(|row| free(&row))?;
    // Nobody has the slice for itself any more, as far as claims are concerned: they sum.
    table.extent.fetch_max(2, SeqCst);
    let end = u32::try_from(place.saturating_add(1)).ok()?;
    table.sharers.fetch_max(end, SeqCst);
    table.sharing.get(place)
}

/// Takes away what a dead owner of a slot has left in its row. Needs the slot's seat; before
/// anything else of the slot is wiped.
pub(super) fn wipe(table: Table<'_>, slot: usize) {
    if let Some(row) = row(table, slot) {
        row.exported.iter().for_each(|word| word.store(0, SeqCst));
        row.imported.iter().for_each(|word| word.store(0, SeqCst));
        row.owner.store(0, SeqCst);
    }
}

/// What is charged for imports on a device. `lives`: whether the owner of a slot with this head is
/// to be counted. To be asked after what is used was read.
#[inline]
pub(super) fn imported(
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
            *held = held.saturating_add(exported.load(SeqCst) & STEPS);
        }
    }
    let charged = most.iter().zip(held);
    let steps = charged.map(|(most, held)| most.saturating_sub(held));
    bytes(steps.fold(0, u64::saturating_add))
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

/// What is charged for a class on a device, and what it would be if the owner of this slot had
/// imported so many steps more.
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
            held = held.saturating_add(exported.load(SeqCst) & STEPS);
        }
    }
    let after = most.max(own.saturating_add(u64::from(more)));
    (most.saturating_sub(held), after.saturating_sub(held))
}

/// By how many bytes the slice's charge would grow if the owner of this slot imported so much.
pub(super) fn growth(
    table: Table<'_>,
    device: Device,
    class: Class,
    slot: usize,
    more: Bytes,
    lives: impl FnMut(usize, Head) -> bool,
) -> Bytes {
    let (now, after) = charge_with(table, device, class, slot, steps(more), lives);
    Bytes::new(bytes(after.saturating_sub(now)))
}

/// The size of one object of a class, where somebody has exported it: of several the average.
pub(super) fn object(
    table: Table<'_>,
    device: Device,
    class: Class,
    mut lives: impl FnMut(usize, Head) -> bool,
) -> Option<Bytes> {
    let place = usize::from(class.number());
    let (mut objects, mut steps) = (0u64, 0u64);
    for row in rows(table) {
        if let Some(exported) = row.exported.get(place)
            && is_on(table, row, device, &mut lives)
        {
            let word = exported.load(SeqCst);
            objects = objects.saturating_add(word / OBJECT);
            steps = steps.saturating_add(word & STEPS);
        }
    }
    Some(Bytes::new(bytes(steps.div_ceil(objects.max(1))))).filter(|_| objects != 0)
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
    /// Nobody's.
    #[cfg(test)]
    pub(super) fn empty() -> Sharer {
        Sharer {
            owner: AtomicU32::new(0),
            spare: [(); 15].map(|()| AtomicU32::new(0)),
            exported: [(); CLASSES].map(|()| AtomicU64::new(0)),
            imported: [(); CLASSES].map(|()| AtomicU32::new(0)),
        }
    }

    /// One more object was exported.
    pub(super) fn export(&self, class: Class, size: Bytes) {
        if let Some(word) = self.exported.get(usize::from(class.number())) {
            let size = u64::from(steps(size));
            change(word, |seen| {
                let all = (seen & STEPS).saturating_add(size).min(STEPS);
                (seen & !STEPS).saturating_add(OBJECT) | all
            });
        }
    }

    /// One that was exported is not held any more.
    pub(super) fn unexport(&self, class: Class, size: Bytes) {
        if let Some(word) = self.exported.get(usize::from(class.number())) {
            let size = u64::from(steps(size));
            change(word, |seen| {
                let objects = (seen & !STEPS).saturating_sub(OBJECT);
                objects | (seen & STEPS).saturating_sub(size)
            });
        }
    }

    /// So much was imported.
    pub(super) fn import(&self, class: Class, size: Bytes) {
        if let Some(word) = self.imported.get(usize::from(class.number())) {
            change32(word, |seen| seen.saturating_add(steps(size)));
        }
    }

    /// So much of what was imported is not held any more.
    pub(super) fn unimport(&self, class: Class, size: Bytes) {
        if let Some(word) = self.imported.get(usize::from(class.number())) {
            change32(word, |seen| seen.saturating_sub(steps(size)));
        }
    }
}

/// What is charged for imports in a copy of all rows, and to the slot of whom: of each class to the
/// process that has imported the most of it. `device`: which device a slot is counted on.
pub(super) fn payers(
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
            let (mut most, mut held) = (None, 0u32);
            for (owner, row) in owners.iter().zip(rows()) {
                let Some((slot, _)) = owner.filter(|owner| is_its(&Some(*owner))) else {
                    continue;
                };
                let imported = word(row, place(offset_of!(Sharer, imported), class, 4));
                if imported > most.map_or(0, |(_, most)| most) {
                    most = Some((slot, imported));
                }
                let exported = word(row, place(offset_of!(Sharer, exported), class, 8));
                held = held.saturating_add(exported);
            }
            if let Some((slot, most)) = most
                && most > held
            {
                pays(slot, bytes(u64::from(most.saturating_sub(held))));
            }
        }
    }
}
