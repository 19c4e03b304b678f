//! The first page of a ledger file: its header and its devices.
//! Touches: its arguments.
//! Law: as of `layout`; a word of the header is written once, by whoever comes first.

use super::layout::{DEVICES, Device, MAGIC, Node, PAGE, VERSION, slots_for};
use super::sync::{AtomicU32, AtomicU64};
use crate::device::{DeviceKind, DeviceUuid};
use core::mem::offset_of;
use core::sync::atomic::Ordering;

/// The first page.
#[repr(C, align(4096))]
#[derive(Debug)]
pub(super) struct Header {
    magic: AtomicU64,
    version: AtomicU32,
    slots: AtomicU32,
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

const _: () = assert!(size_of::<Header>() == PAGE);
const _: () = assert!(core::mem::offset_of!(Node, next) == 32);
const _: () = assert!(size_of::<Node>() == 40);

/// What a file is that is not a ledger of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Foreign {
    Magic,
    Version(u32),
}

impl Header {
    /// A header of zeros.
    pub(super) const fn empty() -> Header {
        Header {
            magic: AtomicU64::new(0),
            version: AtomicU32::new(0),
            slots: AtomicU32::new(0),
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
        }
    }

    /// A file of zeros is an empty ledger: whoever opens it writes its first words, and they
    /// are the same whoever does and however often. The magic is written first, and only where all
    /// three are zero: a file that is something else is never changed.
    pub(super) fn begin(&self, slots: usize) -> Result<(), Foreign> {
        let slots = u32::try_from(slots).unwrap_or(0);
        let found = || {
            (
                self.magic.load(Ordering::SeqCst),
                self.version.load(Ordering::SeqCst),
                self.slots.load(Ordering::SeqCst),
            )
        };
        if found() == (0, 0, 0) {
            let _ = fill(&self.magic, MAGIC);
        }
        if self.magic.load(Ordering::SeqCst) == MAGIC {
            let _ = fill32(&self.version, VERSION);
            let _ = fill32(&self.slots, slots);
        }
        let (magic, version, found) = found();
        check(magic, version, found, slots)
    }

    /// Whether the locks are on a file beside the ledger.
    pub(super) fn locks_are_beside(&self) -> bool {
        self.locks.load(Ordering::SeqCst) == 1
    }

    /// The device's place in the table; it gets one if it has none. None: the table is full.
    ///
    /// Each word is written once, and by whoever comes first. A process that is killed
    /// between two of them leaves a line that only the same uuid can complete, and will.
    pub(super) fn device(&self, uuid: &DeviceUuid) -> Option<Device> {
        let (words, kind) = (uuid_words(uuid), kind_word(uuid.kind));
        let position = self.devices.iter().position(|listed| {
            let pairs = listed.uuid.iter().zip(words);
            let mut pairs = pairs.chain([(&listed.kind, kind)]);
            pairs.all(|(word, wanted)| fill(word, wanted))
        })?;
        u8::try_from(position).ok().map(Device)
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
    let slots = u32::try_from(slots_for(devices)).unwrap_or(0);
    let numbers = u64::from(VERSION) | u64::from(slots) << 32;
    // After the extent, which is 0.
    let locks = u64::from(locks == Locks::Beside) << 32;
    let mut bytes = [0; 24];
    let (words, _) = bytes.as_chunks_mut::<8>();
    for (word, value) in words.iter_mut().zip([MAGIC, numbers, locks]) {
        *word = value.to_le_bytes();
    }
    bytes
}
const _: () = assert!(LOCKS_AT == 20);

/// Whether these first words are those of a ledger that this code can work with, in a file that has
/// room for so many slots.
pub(super) fn check(magic: u64, version: u32, slots: u32, room: u32) -> Result<(), Foreign> {
    if magic != MAGIC {
        return Err(Foreign::Magic);
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
        word if word == kind_word(DeviceKind::Gpu) => DeviceKind::Gpu,
        word if word == kind_word(DeviceKind::Mig) => DeviceKind::Mig,
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

const fn kind_word(kind: DeviceKind) -> u64 {
    match kind {
        DeviceKind::Gpu => 1,
        DeviceKind::Mig => 2,
    }
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

fn fill32(word: &AtomicU32, wanted: u32) -> bool {
    if word.load(Ordering::SeqCst) == wanted {
        return true;
    }
    let write = word.compare_exchange(0, wanted, Ordering::SeqCst, Ordering::SeqCst);
    write.map_or_else(|found| found == wanted, |_| true)
}
