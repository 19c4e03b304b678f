//! The first page of a ledger file: its header and its devices.
//! Touches: its arguments.
//! Law: as of `layout`; a word of the header is written once, by whoever comes first.

use super::layout::{DAMAGED, DEVICES, Device, MAGIC, Node, PAGE, VERSION, slots_for};
use super::sync::{AtomicU32, AtomicU64};
use crate::device::{DeviceKind, DeviceUuid};
use core::mem::offset_of;
use core::sync::atomic::Ordering;

/// The first page.
#[repr(C, align(4096))]
#[derive(Debug)]
pub(super) struct Header {
    magic: AtomicU64,
    /// The version, and above it the number of slots.
    numbers: AtomicU64,
    pub(super) extent: AtomicU32,
    /// 1: the locks are on a file beside the ledger.
    locks: AtomicU32,
    /// Claims that found no slot, for people.
    pub(super) uncounted: AtomicU64,
    devices: [Listed; DEVICES],
    noted: [Noted; DEVICES],
    /// Who has the turn on a device, as `notes` writes it.
    turns: [AtomicU64; DEVICES],
    /// One more than the highest sharer that was ever used: see `sharing`.
    pub(super) sharers: AtomicU32,
    /// Which ledger this is; 0: none was said.
    id: AtomicU64,
}

/// What is remembered of a device besides who holds what.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Noted {
    /// How often an allocation was refused.
    pub(super) refusals: AtomicU64,
    /// The most that a refused request was short by, in bytes.
    pub(super) regret: AtomicU64,
    /// What a context holds, in bytes; 0 until one was measured.
    pub(super) context: AtomicU64,
}

/// A device: the words of its uuid, 0 where nothing is written yet.
#[repr(C)]
#[derive(Debug)]
struct Listed {
    uuid: [AtomicU64; 2],
    kind: AtomicU64,
}

impl Listed {
    /// Whether its words were written one after the other, the kind last.
    fn is_sound(&self) -> bool {
        // Last first: who writes at this moment is seen to have written less.
        let kind = self.kind.load(Ordering::SeqCst);
        let [first, second] = &self.uuid;
        let (second, first) = (second.load(Ordering::SeqCst), first.load(Ordering::SeqCst));
        (kind == 0 || uuid_of([first, second], kind).is_some()) && (second == 0 || first != 0)
    }
}

const _: () = assert!(size_of::<Header>() == PAGE);
const _: () = assert!(core::mem::offset_of!(Node, next) == 32);
const _: () = assert!(size_of::<Node>() == 40);

/// What a file is that is not a ledger of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Foreign {
    Magic,
    Damaged,
    Version(u32),
}

impl Header {
    /// A header of zeros.
    pub(super) const fn empty() -> Header {
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
        }
    }

    /// A file of zeros is an empty ledger to who makes one, who writes its first words: they are the
    /// same whoever does and however often. The magic is written first, and only where both are
    /// zero: a file that is something else is never changed.
    pub(super) fn begin(&self, slots: usize) {
        if self.begins() == Beginning::NONE {
            let _ = fill(&self.magic, MAGIC);
        }
        if self.magic.load(Ordering::SeqCst) == MAGIC {
            let _ = fill(&self.numbers, Beginning::of(slots).numbers);
        }
    }

    /// Whether this is a ledger that this code can work with, in a file of so many slots.
    pub(super) fn check(&self, slots: usize) -> Result<Beginning, Foreign> {
        let found = self.begins();
        let room = u32::try_from(slots).unwrap_or(0);
        let [v0, v1, v2, v3, s0, s1, s2, s3] = found.numbers.to_le_bytes();
        let [version, slots] = [[v0, v1, v2, v3], [s0, s1, s2, s3]].map(u32::from_le_bytes);
        check(found.magic, version, slots, room).map(|()| found)
    }

    /// Its first words.
    #[inline(always)]
    pub(super) fn begins(&self) -> Beginning {
        Beginning {
            magic: self.magic.load(Ordering::SeqCst),
            numbers: self.numbers.load(Ordering::SeqCst),
        }
    }

    /// Says which ledger this is, if nobody has. Whether it is that one.
    pub(super) fn identify(&self, id: u64) -> bool {
        fill(&self.id, id)
    }

    /// Whether it is the ledger of this number.
    pub(super) fn is(&self, id: u64) -> bool {
        self.id.load(Ordering::SeqCst) == id
    }

    /// Has every process of the slice know that the ledger was overwritten, and those that come.
    pub(super) fn spoil(&self) {
        self.magic.store(DAMAGED, Ordering::SeqCst);
        // Nobody takes the short way of a process that is alone.
        self.extent.store(u32::MAX, Ordering::SeqCst);
    }

    /// Whether the locks are on a file beside the ledger.
    pub(super) fn locks_are_beside(&self) -> bool {
        self.locks.load(Ordering::SeqCst) == 1
    }

    /// The device's place in the table; it gets one if it has none. None: the table is full.
    ///
    /// Each word is written once, and by whoever comes first. A process that is killed
    /// between two of them leaves a line that only the same uuid can complete, and will. A line that
    /// no process can have left is not passed by: it may have been this device's.
    pub(super) fn device(&self, uuid: &DeviceUuid) -> Option<Device> {
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

    /// What is remembered of a device.
    pub(super) fn noted(&self, device: Device) -> Option<&Noted> {
        self.noted.get(usize::from(device.0))
    }

    /// Who has the turn on a device.
    pub(super) fn turn(&self, device: Device) -> Option<&AtomicU64> {
        self.turns.get(usize::from(device.0))
    }

    /// The uuid of a device of the table; None where nothing sound is written.
    pub(super) fn uuid(&self, device: Device) -> Option<DeviceUuid> {
        let listed = self.devices.get(usize::from(device.0))?;
        let [first, second] = &listed.uuid;
        let words = [first, second].map(|word| word.load(Ordering::SeqCst));
        uuid_of(words, listed.kind.load(Ordering::SeqCst))
    }
}

/// The first words of a header, which never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Beginning {
    magic: u64,
    numbers: u64,
}

impl Beginning {
    /// Of a file of zeros.
    pub(super) const NONE: Beginning = Beginning {
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

/// The first bytes of an empty ledger for so many devices, for who makes the file and does not use it
/// itself: all others are zeros.
#[must_use]
pub fn beginning(devices: usize, locks: Locks) -> [u8; 24] {
    let Beginning { magic, numbers } = Beginning::of(slots_for(devices));
    // After the extent, which is 0.
    let locks = u64::from(locks == Locks::Beside) << 32;
    let mut bytes = [0; 24];
    let (words, _) = bytes.as_chunks_mut::<8>();
    for (word, value) in words.iter_mut().zip([magic, numbers, locks]) {
        *word = value.to_le_bytes();
    }
    bytes
}
const _: () = assert!(LOCKS_AT == 20);

/// Whether these first words are those of a ledger that this code can work with, in a file that has
/// room for so many slots.
pub(super) fn check(magic: u64, version: u32, slots: u32, room: u32) -> Result<(), Foreign> {
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

/// Where readers without a mapping find these.
pub(super) const LOCKS_AT: usize = offset_of!(Header, locks);
pub(super) const UNCOUNTED_AT: usize = offset_of!(Header, uncounted);
pub(super) const DEVICES_AT: usize = offset_of!(Header, devices);
pub(super) const NOTED_AT: usize = offset_of!(Header, noted);

/// The uuid that three words of the table stand for.
pub(super) fn uuid_of(words: [u64; 2], kind: u64) -> Option<DeviceUuid> {
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

/// How a word of zeros is written: a zero means that nobody has written yet.
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

/// The kind, and above it what tells that the uuid is the one that was written.
fn kind_word(kind: DeviceKind, [first, second]: [u64; 2]) -> u64 {
    let kind = match kind {
        DeviceKind::Gpu => 1,
        DeviceKind::Mig => 2,
    };
    let mixed = first.rotate_left(23) ^ second.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9) << 8 | kind
}

/// Writes a word that nobody has written; whether it is now what was wanted.
///
/// Looks first: a page of the file that a process first reads comes with those around it,
/// one that it first writes comes alone.
fn fill(word: &AtomicU64, wanted: u64) -> bool {
    if word.load(Ordering::SeqCst) == wanted {
        return true;
    }
    let write = word.compare_exchange(0, wanted, Ordering::SeqCst, Ordering::SeqCst);
    write.map_or_else(|found| found == wanted, |_| true)
}
