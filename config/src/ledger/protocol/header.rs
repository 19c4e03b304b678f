//! The first page of a ledger file: its header and its devices.
//! Touches: its arguments.
//! Law: as in `layout`; the words that identify the ledger and its devices are written once, by the
//! first process to reach them. Notes, turns and limits change; none of them is a sum.

use super::layout::{DAMAGED, DEVICES, Device, MAGIC, Node, PAGE, VERSION, slots_for};
use super::sync::{AtomicU32, AtomicU64};
use crate::words::device::{DeviceKind, DeviceUuid};
use core::mem::offset_of;
use core::sync::atomic::Ordering;

/// The first page.
#[repr(C, align(4096))]
#[derive(Debug)]
pub(crate) struct Header {
    magic: AtomicU64,
    /// The version, and above it the number of slots.
    numbers: AtomicU64,
    pub(crate) extent: AtomicU32,
    /// 1: the locks are on a file beside the ledger.
    locks: AtomicU32,
    /// The number of claims that found no slot, for display only.
    pub(crate) uncounted: AtomicU64,
    devices: [Listed; DEVICES],
    noted: [Noted; DEVICES],
    /// The holder of the turn on each device, as `notes` writes it.
    turns: [AtomicU64; DEVICES],
    /// One more than the highest sharer that was ever used: see `sharing`.
    pub(crate) sharers: AtomicU32,
    /// The ledger's id; 0: none was set.
    id: AtomicU64,
    /// The limit of each device that was set since the start of the slice, as `limits` writes it; 0:
    /// none was set.
    limits: [AtomicU32; DEVICES],
}

/// The facts about a device besides the memory that processes hold.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Noted {
    /// The number of refused allocations.
    pub(crate) refusals: AtomicU64,
    /// The largest shortfall of a refused request, in bytes.
    pub(crate) regret: AtomicU64,
    /// The memory of one context, in bytes; 0 until it is measured.
    pub(crate) context: AtomicU64,
}

/// A device: the words of its UUID, 0 where nothing is written yet.
#[repr(C)]
#[derive(Debug)]
struct Listed {
    uuid: [AtomicU64; 2],
    kind: AtomicU64,
}

impl Listed {
    /// Whether its words were written in order, the kind last.
    fn is_sound(&self) -> bool {
        // Read the last word first, so that a concurrent writer seems to have written less, not
        // more.
        let kind = self.kind.load(Ordering::SeqCst);
        let [first, second] = &self.uuid;
        let (second, first) = (second.load(Ordering::SeqCst), first.load(Ordering::SeqCst));
        (kind == 0 || uuid_of([first, second], kind).is_some()) && (second == 0 || first != 0)
    }
}

const _: () = assert!(size_of::<Header>() == PAGE);
const _: () = assert!(core::mem::offset_of!(Node, next) == 32);
const _: () = assert!(size_of::<Node>() == 40);

/// Why a file is not a ledger of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Foreign {
    Magic,
    Damaged,
    Version(u32),
}

impl Header {
    /// A header of zeros.
    pub(crate) const fn empty() -> Header {
        Header {
            magic: AtomicU64::new(0),
            numbers: AtomicU64::new(0),
            extent: AtomicU32::new(0),
            locks: AtomicU32::new(0),
            uncounted: AtomicU64::new(0),
            devices: [const {
                Listed {
                    uuid: [const { AtomicU64::new(0) }; 2],
                    kind: AtomicU64::new(0),
                }
            }; DEVICES],
            noted: [const {
                Noted {
                    refusals: AtomicU64::new(0),
                    regret: AtomicU64::new(0),
                    context: AtomicU64::new(0),
                }
            }; DEVICES],
            turns: [const { AtomicU64::new(0) }; DEVICES],
            sharers: AtomicU32::new(0),
            id: AtomicU64::new(0),
            limits: [const { AtomicU32::new(0) }; DEVICES],
        }
    }

    /// Writes the first words of a new ledger; a file of zeros is an empty ledger. Every process
    /// writes the same words, so concurrent and repeated calls are harmless. The magic is written
    /// first, and only where both words are zero, so a foreign file is never changed.
    pub(crate) fn begin(&self, slots: usize) {
        if self.begins() == Beginning::NONE {
            let _ = fill(&self.magic, MAGIC);
        }
        if self.magic.load(Ordering::SeqCst) == MAGIC {
            let _ = fill(&self.numbers, Beginning::of(slots).numbers);
        }
    }

    /// Checks that this is a usable ledger, in a file of `slots` slots.
    pub(crate) fn check(&self, slots: usize) -> Result<Beginning, Foreign> {
        let found = self.begins();
        let room = u32::try_from(slots).unwrap_or(0);
        let [v0, v1, v2, v3, s0, s1, s2, s3] = found.numbers.to_le_bytes();
        let [version, slots] = [[v0, v1, v2, v3], [s0, s1, s2, s3]].map(u32::from_le_bytes);
        check(found.magic, version, slots, room).map(|()| found)
    }

    /// Its first words.
    #[inline(always)]
    pub(crate) fn begins(&self) -> Beginning {
        Beginning {
            magic: self.magic.load(Ordering::SeqCst),
            numbers: self.numbers.load(Ordering::SeqCst),
        }
    }

    /// Sets the ledger's id if none is set. Returns whether the ledger has this id.
    pub(crate) fn identify(&self, id: u64) -> bool {
        fill(&self.id, id)
    }

    /// Whether the ledger has this id.
    pub(crate) fn is(&self, id: u64) -> bool {
        self.id.load(Ordering::SeqCst) == id
    }

    /// Marks the ledger as overwritten, for all present and future processes of the slice.
    pub(crate) fn spoil(&self) {
        self.magic.store(DAMAGED, Ordering::SeqCst);
        // This disables the fast path of a process that is alone in its slice.
        self.extent.store(u32::MAX, Ordering::SeqCst);
    }

    /// Whether the locks are on a file beside the ledger.
    pub(crate) fn locks_are_beside(&self) -> bool {
        self.locks.load(Ordering::SeqCst) == 1
    }

    /// The device's position in the table, which is assigned if it has none. Returns `None` if the
    /// table is full.
    ///
    /// Each word is written once, by the first process to reach it. A process that is killed
    /// between two words leaves an incomplete entry, which only the same UUID can complete, and
    /// will. An entry that no process can have left is not skipped, because it may have been this
    /// device's.
    pub(crate) fn device(&self, uuid: &DeviceUuid) -> Option<Device> {
        let words = uuid_words(uuid);
        let kind = kind_word(uuid.kind, words);
        for (position, listed) in (0u8..).zip(&self.devices) {
            if !listed.is_sound() {
                return None;
            }
            let pairs = listed.uuid.iter().zip(words);
            let mut pairs = pairs.chain([(&listed.kind, kind)]);
            if pairs.all(|(word, wanted)| fill(word, wanted)) {
                return Some(Device(position));
            }
        }
        None
    }

    /// The facts about a device.
    pub(crate) fn noted(&self, device: Device) -> Option<&Noted> {
        self.noted.get(usize::from(device.0))
    }

    /// The holder of the turn on a device.
    pub(crate) fn turn(&self, device: Device) -> Option<&AtomicU64> {
        self.turns.get(usize::from(device.0))
    }

    /// The limit that was set for a device.
    #[inline(always)]
    pub(crate) fn limit(&self, device: Device) -> Option<&AtomicU32> {
        self.limits.get(usize::from(device.0))
    }

    /// The UUID of a device in the table; `None` where the entry is not sound.
    pub(crate) fn uuid(&self, device: Device) -> Option<DeviceUuid> {
        let listed = self.devices.get(usize::from(device.0))?;
        let [first, second] = &listed.uuid;
        let words = [first, second].map(|word| word.load(Ordering::SeqCst));
        uuid_of(words, listed.kind.load(Ordering::SeqCst))
    }
}

/// The first words of a header, which never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Beginning {
    magic: u64,
    numbers: u64,
}

impl Beginning {
    /// The first words of a file of zeros.
    pub(crate) const NONE: Beginning = Beginning {
        magic: 0,
        numbers: 0,
    };

    fn of(slots: usize) -> Beginning {
        let slots = u32::try_from(slots).unwrap_or(0);
        Beginning {
            magic: MAGIC,
            numbers: u64::from(VERSION) | u64::from(slots) << 32,
        }
    }
}

/// The file that carries a ledger's locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locks {
    /// The ledger itself.
    Ledger,
    /// A file called `locks` beside it.
    Beside,
}

/// The first bytes of an empty ledger for so many devices; the rest is zeros. For a process that
/// makes the file and does not use it itself.
#[must_use]
pub fn beginning(devices: usize, locks: Locks) -> [u8; 24] {
    let Beginning { magic, numbers } = Beginning::of(slots_for(devices));
    // This word follows the extent, which is 0.
    let locks = u64::from(locks == Locks::Beside) << 32;
    let mut bytes = [0; 24];
    let (words, _) = bytes.as_chunks_mut::<8>();
    for (word, value) in words.iter_mut().zip([magic, numbers, locks]) {
        *word = value.to_le_bytes();
    }
    bytes
}
const _: () = assert!(LOCKS_AT == 20);

/// Checks that these first words are those of a usable ledger, in a file with room for `room`
/// slots.
pub(crate) fn check(magic: u64, version: u32, slots: u32, room: u32) -> Result<(), Foreign> {
    match magic {
        MAGIC => {}
        DAMAGED => return Err(Foreign::Damaged),
        _ => return Err(Foreign::Magic),
    }
    match version == VERSION && slots == room {
        true => Ok(()),
        false => Err(Foreign::Version(version)),
    }
}

/// The offset of the lock word, for readers without a mapping.
pub(crate) const LOCKS_AT: usize = offset_of!(Header, locks);
pub(crate) const UNCOUNTED_AT: usize = offset_of!(Header, uncounted);
pub(crate) const DEVICES_AT: usize = offset_of!(Header, devices);
pub(crate) const EXTENT_AT: usize = offset_of!(Header, extent);
pub(crate) const SHARERS_AT: usize = offset_of!(Header, sharers);
pub(crate) const NOTED_AT: usize = offset_of!(Header, noted);
pub(crate) const ID_AT: usize = offset_of!(Header, id);
pub(crate) const LIMITS_AT: usize = offset_of!(Header, limits);

/// The UUID that three words of the table encode.
pub(crate) fn uuid_of(words: [u64; 2], kind: u64) -> Option<DeviceUuid> {
    let kind = match kind {
        word if word == kind_word(DeviceKind::Gpu, words) => DeviceKind::Gpu,
        word if word == kind_word(DeviceKind::Mig, words) => DeviceKind::Mig,
        _ => return None,
    };
    let mut bytes = [0u8; 16];
    let (halves, _) = bytes.as_chunks_mut::<8>();
    for (half, word) in halves.iter_mut().zip(words) {
        *half = if word == ZERO { 0 } else { word }.to_ne_bytes();
    }
    Some(DeviceUuid { kind, bytes })
}

/// The encoding of a word of zeros, because a zero means that nothing is written yet.
const ZERO: u64 = 0x9b1d_5c3e_0f27_a846;

fn uuid_words(uuid: &DeviceUuid) -> [u64; 2] {
    let mut words = [0u64; 2];
    let (halves, _) = uuid.bytes.as_chunks::<8>();
    for (word, half) in words.iter_mut().zip(halves) {
        let read = u64::from_ne_bytes(*half);
        *word = if read == 0 { ZERO } else { read };
    }
    words
}

/// The kind, and above it a check value of the UUID's words.
fn kind_word(kind: DeviceKind, [first, second]: [u64; 2]) -> u64 {
    let kind = match kind {
        DeviceKind::Gpu => 1,
        DeviceKind::Mig => 2,
    };
    let mixed = first.rotate_left(23) ^ second.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9) << 8 | kind
}

/// Writes a word that is still zero. Returns whether it now has the wanted value.
///
/// Reads first: a first read of a page maps the pages around it as well; a first write maps that
/// page alone.
fn fill(word: &AtomicU64, wanted: u64) -> bool {
    if word.load(Ordering::SeqCst) == wanted {
        return true;
    }
    let write = word.compare_exchange(0, wanted, Ordering::SeqCst, Ordering::SeqCst);
    write.map_or_else(|found| found == wanted, |_| true)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_flipped_bit_of_a_device_changes_its_check_value(
            words in any::<[u64; 2]>(),
            word in 0usize..2,
            bit in 0u32..64,
        ) {
            let mut flipped = words;
            flipped[word] ^= 1 << bit;
            let value = |words| kind_word(DeviceKind::Gpu, words);
            prop_assert_ne!(value(words), value(flipped));
            prop_assert_ne!(value(words), kind_word(DeviceKind::Mig, words));
        }
    }
}
