//! The bytes of a ledger file, 64 KiB, the same on every machine that we run on.
//! Touches: its arguments.
//! Law: every pattern of bits is a valid file; what it says may be wrong, reading it never is.

use super::sync::{AtomicU32, AtomicU64};
use core::sync::atomic::Ordering::SeqCst;

/// How many (process, device) pairs hold memory in a slice at one time.
pub const SLOTS: usize = 512;
/// How many devices a slice has memory on.
pub const DEVICES: usize = 64;
/// The length of a ledger file.
pub const SIZE: usize = 64 << 10;

/// `gpuslice` and the byte order, so that a file of another machine is not mistaken for ours.
pub(super) const MAGIC: u64 = u64::from_ne_bytes(*b"GPUSLICE");
/// The version of the layout: another one is refused, never guessed at.
pub(super) const VERSION: u32 = 1;

/// What is held, for people: only the sum decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `cuMemAlloc`, `cuMemAllocPitch`.
    Linear,
    /// `cuMemAllocManaged`.
    Managed,
    /// Arrays and mipmapped arrays.
    Array,
    /// What memory pools reserve.
    Pool,
    /// `cuMemCreate`.
    Vmm,
    /// Pinned host memory, where the device shares the host's.
    Pinned,
    /// Contexts.
    Context,
    /// Modules, libraries.
    Code,
}

impl Kind {
    /// Every kind, in the order of the file.
    pub const ALL: [Kind; KINDS] = [
        Kind::Linear,
        Kind::Managed,
        Kind::Array,
        Kind::Pool,
        Kind::Vmm,
        Kind::Pinned,
        Kind::Context,
        Kind::Code,
    ];

    /// Whether a slot has a word for it. The most common kind has none: it is what is left of the
    /// sum, which saves two locked instructions for each allocation.
    pub(super) const fn written(self) -> bool {
        !matches!(self, Kind::Linear)
    }

    /// What a slot holds by kind, from its sum and its words.
    pub(super) fn by_kind(used: u64, mut word: impl FnMut(usize) -> u64) -> [(Kind, u64); KINDS] {
        let mut rest = used;
        let mut by_kind = Kind::ALL.map(|kind| (kind, 0));
        for (index, (kind, held)) in by_kind.iter_mut().enumerate() {
            if kind.written() {
                *held = word(index);
                rest = rest.saturating_sub(*held);
            }
        }
        if let Some((_, linear)) = by_kind.iter_mut().find(|(kind, _)| !kind.written()) {
            *linear = rest;
        }
        by_kind
    }

    /// What people call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Linear => "linear",
            Kind::Managed => "managed",
            Kind::Array => "array",
            Kind::Pool => "pool",
            Kind::Vmm => "vmm",
            Kind::Pinned => "pinned",
            Kind::Context => "context",
            Kind::Code => "code",
        }
    }
}

/// How many kinds there are.
pub(super) const KINDS: usize = 8;

/// A position in the file's table of devices: what a uuid is for a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device(pub(super) u8);

impl Device {
    /// The position, below [`DEVICES`].
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The device at a position that [`Device::number`] gave.
    #[must_use]
    pub const fn numbered(number: u8) -> Device {
        Device(number & 63)
    }
}

/// The first 8 bytes of a slot, which one look takes in: the hint (the low half, which is the
/// word that the kernel writes to), then a byte that says that the slot is taken and for which
/// device, then how often it was taken.
///
/// The device needs no check: six bits cannot name one that is not in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head(pub(super) u64);

impl Head {
    const TAKEN: u64 = 1 << 39;
    const DEVICE: u64 = 63;
    const DEVICE_SHIFT: u32 = 32;
    const TIMES_SHIFT: u32 = 40;
    const WORD: u64 = u32::MAX as u64;

    pub(super) const fn taken(self) -> bool {
        self.0 & Self::TAKEN != 0
    }

    pub(super) const fn device(self) -> Device {
        Device(((self.0 >> Self::DEVICE_SHIFT) & Self::DEVICE) as u8)
    }

    /// Whether the slot is taken for the device.
    pub(super) const fn is(self, device: Device) -> bool {
        (self.0 ^ Self::of(device)) << 24 >> 24 >> Self::DEVICE_SHIFT == 0
    }

    /// Whether the slot is taken for the device and its hint is trusted, at once.
    pub(super) const fn is_alive(self, device: Device, trust: Trust) -> bool {
        // The hint, if the byte above it is the device's; less than nothing or a large number
        // otherwise. A hint of zero is less than nothing too.
        let hint = (self.0 << 24 >> 24).wrapping_sub(Self::of(device));
        hint.wrapping_sub(1) < trust.0
    }

    const fn of(device: Device) -> u64 {
        Self::TAKEN | ((device.0 as u64) << Self::DEVICE_SHIFT)
    }

    /// 0: there is no hint, ask the kernel. A thread id: alive. [`OWNER_DIED`]: that thread is
    /// gone, ask the kernel whether its process is.
    pub(super) const fn word(self) -> u32 {
        (self.0 & Self::WORD) as u32
    }

    /// Whether the word says that its thread is alive.
    pub(super) const fn hinted_alive(self) -> bool {
        (self.word() as u64).wrapping_sub(1) < Trust::HINTS.0
    }

    const fn with_word(self, word: u32) -> Head {
        Head((self.0 & !Self::WORD) | word as u64)
    }

    /// Free, and without a hint.
    pub(super) const fn freed(self) -> Head {
        Head(self.0 >> Self::TIMES_SHIFT << Self::TIMES_SHIFT)
    }

    /// Taken for a device, and without a hint.
    pub(super) const fn take(self, device: Device) -> Head {
        let times = (self.0 >> Self::TIMES_SHIFT).wrapping_add(1) << Self::TIMES_SHIFT;
        Head(times | Self::of(device))
    }
}

/// The hints that are enough for now: none, when every owner is to be verified.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trust(u64);

impl Trust {
    const HINTS: Trust = Trust(OWNER_DIED as u64 - 1);

    pub(super) const fn unless(verify: bool) -> Trust {
        if verify { Trust(0) } else { Trust::HINTS }
    }
}

const _: () = assert!(DEVICES == 64);
const _: () = assert!(
    cfg!(target_endian = "little"),
    "the word is the low half of the head"
);

/// What a slot says besides its amounts; it has the shape of a node of glibc's robust list.
///
/// `get_robust_list(2)` gives one distance from a node's `next` to its word for a whole thread.
/// glibc's is 32 bytes on 64-bit machines, so that is where they stand. Nobody ever follows
/// `prev` or `next`: they are for the kernel and for glibc's own writes.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Node {
    /// A [`Head`].
    pub(super) head: AtomicU64,
    /// For people; in the process's own pid namespace.
    pub(super) pid: AtomicU32,
    pub(super) spare: [AtomicU32; 3],
    pub(super) prev: AtomicU64,
    pub(super) next: AtomicU64,
}

impl Node {
    pub(super) fn head(&self) -> Head {
        Head(self.head.load(SeqCst))
    }

    pub(super) fn set_head(&self, head: Head) {
        self.head.store(head.0, SeqCst);
    }

    /// Gives the slot a hint, whatever happens to the rest of its head.
    pub(super) fn set_word(&self, word: u32) {
        let mut found = self.head();
        while let Err(changed) =
            self.head
                .compare_exchange(found.0, found.with_word(word).0, SeqCst, SeqCst)
        {
            found = Head(changed);
        }
    }
}

/// The bit that the kernel sets in the word of a thread that is gone.
pub(super) const OWNER_DIED: u32 = 0x4000_0000;

/// The columns of the slots, wherever they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table<'a> {
    /// One more than the highest slot that was ever taken: where reading may stop.
    pub(super) extent: &'a AtomicU32,
    /// What was granted, in bytes.
    pub(super) used: &'a [AtomicU64],
    /// What is being asked for at this moment, in bytes.
    pub(super) pending: &'a [AtomicU64],
    pub(super) nodes: &'a [Node],
    /// What was granted, by kind.
    pub(super) kinds: &'a [[AtomicU64; KINDS]],
}

impl<'a> Table<'a> {
    /// The slots that were ever taken. Slices of one length: the loops over them have no checks
    /// left in them.
    pub(super) fn reach(self) -> Table<'a> {
        let extent = usize::try_from(self.extent.load(SeqCst)).unwrap_or(SLOTS);
        let extent = extent.min(self.nodes.len());
        Table {
            used: self.used.get(..extent).unwrap_or_default(),
            pending: self.pending.get(..extent).unwrap_or_default(),
            nodes: self.nodes.get(..extent).unwrap_or_default(),
            kinds: self.kinds.get(..extent).unwrap_or_default(),
            ..self
        }
    }
}

#[cfg(not(all(test, loom)))]
pub(super) use file::{DEVICES_AT, File, Foreign, NOTED_AT, Noted, UNCOUNTED_AT, check, uuid_of};

#[cfg(not(all(test, loom)))]
mod file {
    use super::{AtomicU32, AtomicU64, DEVICES, Device, KINDS, MAGIC, Node, SIZE, SLOTS};
    use super::{Table, VERSION};
    use crate::device::{DeviceKind, DeviceUuid};
    use core::mem::offset_of;
    use core::sync::atomic::Ordering;

    /// The first page.
    #[repr(C, align(4096))]
    #[derive(Debug)]
    pub(in super::super) struct Header {
        magic: AtomicU64,
        version: AtomicU32,
        slots: AtomicU32,
        extent: AtomicU32,
        spare: AtomicU32,
        /// Claims that were let through uncounted, because no slot was to be had.
        pub(in super::super) uncounted: AtomicU64,
        devices: [Listed; DEVICES],
        noted: [Noted; DEVICES],
    }

    /// What is remembered of a device besides who holds what.
    #[repr(C)]
    #[derive(Debug)]
    pub(in super::super) struct Noted {
        /// How often an allocation was refused.
        pub(in super::super) refusals: AtomicU64,
        /// The most that a refused request was short by, in bytes.
        pub(in super::super) regret: AtomicU64,
        /// What a context holds, in bytes; 0 until one was measured.
        pub(in super::super) context: AtomicU64,
    }

    /// A device: the words of its uuid, 0 where nothing is written yet.
    #[repr(C)]
    #[derive(Debug)]
    struct Listed {
        uuid: [AtomicU64; 2],
        kind: AtomicU64,
    }

    /// A ledger.
    #[repr(C)]
    #[derive(Debug)]
    pub(in super::super) struct File {
        pub(in super::super) header: Header,
        pub(in super::super) used: [AtomicU64; SLOTS],
        pub(in super::super) pending: [AtomicU64; SLOTS],
        pub(in super::super) nodes: [Node; SLOTS],
        pub(in super::super) kinds: [[AtomicU64; KINDS]; SLOTS],
    }

    const _: () = assert!(size_of::<File>() == SIZE);
    const _: () = assert!(core::mem::offset_of!(Node, next) == 32);
    const _: () = assert!(size_of::<Node>() == 40);

    impl File {
        pub(in super::super) fn table(&self) -> Table<'_> {
            Table {
                extent: &self.header.extent,
                used: &self.used,
                pending: &self.pending,
                nodes: &self.nodes,
                kinds: &self.kinds,
            }
        }
    }

    /// What a file is that is not a ledger of this version.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(in super::super) enum Foreign {
        Magic,
        Version(u32),
    }

    impl Header {
        /// A file of zeros is an empty ledger: whoever opens it writes its first words, and they
        /// are the same whoever does and however often.
        pub(in super::super) fn begin(&self) -> Result<(), Foreign> {
            let slots = u32::try_from(SLOTS).unwrap_or(0);
            let _ = fill32(&self.version, VERSION);
            let _ = fill32(&self.slots, slots);
            let _ = fill(&self.magic, MAGIC);
            check(
                self.magic.load(Ordering::SeqCst),
                self.version.load(Ordering::SeqCst),
                self.slots.load(Ordering::SeqCst),
            )
        }

        /// The device's place in the table; it gets one if it has none. None: the table is full.
        ///
        /// Each word is written once, and by whoever comes first. A process that is killed
        /// between two of them leaves a line that only the same uuid can complete, and will.
        pub(in super::super) fn device(&self, uuid: &DeviceUuid) -> Option<Device> {
            let (words, kind) = (uuid_words(uuid), kind_word(uuid.kind));
            let position = self.devices.iter().position(|listed| {
                let pairs = listed.uuid.iter().zip(words);
                let mut pairs = pairs.chain([(&listed.kind, kind)]);
                pairs.all(|(word, wanted)| fill(word, wanted))
            })?;
            u8::try_from(position).ok().map(Device)
        }

        /// What is remembered of a device.
        pub(in super::super) fn noted(&self, device: Device) -> Option<&Noted> {
            self.noted.get(usize::from(device.0))
        }

        /// The uuid of a device of the table; None where nothing sound is written.
        pub(in super::super) fn uuid(&self, device: Device) -> Option<DeviceUuid> {
            let listed = self.devices.get(usize::from(device.0))?;
            let [first, second] = &listed.uuid;
            let words = [first, second].map(|word| word.load(Ordering::SeqCst));
            uuid_of(words, listed.kind.load(Ordering::SeqCst))
        }
    }

    /// Whether these first words are those of a ledger that this code can work with.
    pub(in super::super) fn check(magic: u64, version: u32, slots: u32) -> Result<(), Foreign> {
        if magic != MAGIC {
            return Err(Foreign::Magic);
        }
        match version == VERSION && usize::try_from(slots) == Ok(SLOTS) {
            true => Ok(()),
            false => Err(Foreign::Version(version)),
        }
    }

    /// Where readers without a mapping find these.
    pub(in super::super) const UNCOUNTED_AT: usize = offset_of!(Header, uncounted);
    pub(in super::super) const DEVICES_AT: usize = offset_of!(Header, devices);
    pub(in super::super) const NOTED_AT: usize = offset_of!(Header, noted);

    /// The uuid that three words of the table stand for.
    pub(in super::super) fn uuid_of(words: [u64; 2], kind: u64) -> Option<DeviceUuid> {
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
}
