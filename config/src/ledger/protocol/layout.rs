//! The layout of a ledger file: a page, 60 KiB for each device and 100 KiB of sharers. It is
//! identical on every supported machine.
//! Touches: its arguments.
//! Law: every pattern of bits is a valid file. Its values may be wrong, but reading it is always
//! safe.

use super::sharing::{self, Sharer};
use super::sync::{AtomicU32, AtomicU64};
use core::sync::atomic::Ordering::SeqCst;

/// The number of processes that can hold memory on one device of a slice at one time. A ledger has
/// this many slots for each device that it was made for; any process and device can use any of
/// them.
pub const SLOTS: usize = 512;
/// The number of devices on which a slice can have memory.
pub const DEVICES: usize = 64;
/// The length of a ledger file that was made for one device.
pub const SIZE: usize = size_for(1);
/// The length of the longest ledger file.
pub const MAX_SIZE: usize = size_for(DEVICES);

/// The length of a ledger file's header.
pub(crate) const PAGE: usize = 4096;
/// Bytes of one slot, in all columns together.
const SLOT_SIZE: usize = 2 * 8 + 40 + 8 * KINDS;
// Not under loom, whose atomics are larger than the machine's.
#[cfg(not(all(test, loom)))]
const _: () = assert!((SLOTS * SLOT_SIZE).is_multiple_of(PAGE) && SIZE == 164 << 10);

/// The length of a ledger file for so many devices.
#[must_use]
pub const fn size_for(devices: usize) -> usize {
    sharing_at(slots_for(devices)).saturating_add(sharing::SIZE)
}

/// The offset of the sharers in a file of so many slots: after the columns.
pub(crate) const fn sharing_at(slots: usize) -> usize {
    PAGE.saturating_add(slots.saturating_mul(SLOT_SIZE))
}

/// The number of slots in a ledger for so many devices.
pub(crate) const fn slots_for(devices: usize) -> usize {
    let devices = match devices {
        0 => 1,
        1..=DEVICES => devices,
        _ => DEVICES,
    };
    devices.saturating_mul(SLOTS)
}

/// The number of slots in a file of this length; `None` if no ledger has this length.
pub(crate) fn slots_of(length: u64) -> Option<usize> {
    let length = usize::try_from(length).ok()?;
    let slots = length.checked_sub(PAGE.saturating_add(sharing::SIZE))? / SLOT_SIZE;
    (size_for(slots / SLOTS) == length).then_some(slots)
}

/// The offsets of the columns in a file of so many slots: used, pending, nodes, kinds.
pub(crate) const fn columns_at(slots: usize) -> [usize; 4] {
    let words = slots.saturating_mul(8);
    let pending = PAGE.saturating_add(words);
    let nodes = pending.saturating_add(words);
    let kinds = nodes.saturating_add(slots.saturating_mul(40));
    [PAGE, pending, nodes, kinds]
}

/// `gpuslice` and the byte order, so that a file of another machine is not mistaken for ours.
pub(crate) const MAGIC: u64 = u64::from_ne_bytes(*b"GPUSLICE");
/// Replaces the magic once a process has found that the ledger was overwritten.
pub(crate) const DAMAGED: u64 = u64::from_ne_bytes(*b"DAMAGED!");
/// The version of the layout; any other version is refused.
pub const VERSION: u32 = 5;

/// The kind of held memory, for display: only the sum decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `cuMemAlloc`, `cuMemAllocPitch`.
    Linear,
    /// `cuMemAllocManaged`.
    Managed,
    /// Arrays and mipmapped arrays.
    Array,
    /// The reservations of memory pools.
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

    /// Whether a slot has a word for this kind. The most common kind has none: it is the rest of
    /// the sum. That saves two locked instructions for each allocation.
    pub(crate) const fn written(self) -> bool {
        !matches!(self, Kind::Linear)
    }

    /// A slot's bytes, in all and by kind, from its sum and its words. The words are written one
    /// after the other, so the total of the kinds counts as held even if the sum is smaller.
    pub(crate) fn by_kind(
        used: u64,
        mut word: impl FnMut(usize) -> u64,
    ) -> (u64, [(Kind, u64); KINDS]) {
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
        let parts = by_kind.iter().map(|(_, held)| *held);
        (parts.fold(0, u64::saturating_add), by_kind)
    }

    /// Its name in messages.
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

/// The number of kinds.
pub(crate) const KINDS: usize = 8;

/// A position in the file's table of devices; claims use it in place of a UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device(pub(crate) u8);

impl Device {
    /// The position, below [`DEVICES`].
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The device for a number from [`Device::number`].
    #[must_use]
    pub const fn numbered(number: u8) -> Device {
        if number < 64 {
            Device(number)
        } else {
            Device::UNLISTED
        }
    }

    /// A device for which the ledger has no room, or whose entry is garbled; its claims are
    /// refused.
    pub const UNLISTED: Device = Device(64);
}

/// The first 8 bytes of a slot, which one load reads: the hint (the low half, the word that the
/// kernel writes to), then a byte with the taken flag and the device, then the number of times that
/// it was taken.
///
/// The device needs no check: six bits cannot name a device outside the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head(pub(crate) u64);

impl Head {
    const TAKEN: u64 = 1 << 39;
    const DEVICE: u64 = 63;
    const DEVICE_SHIFT: u32 = 32;
    const TIMES_SHIFT: u32 = 40;
    const WORD: u64 = u32::MAX as u64;

    pub(crate) const fn taken(self) -> bool {
        self.0 & Self::TAKEN != 0
    }

    /// Whether the slot is taken, for any device.
    pub(crate) const fn may_be_another_devices(self) -> bool {
        // Six bits name the device; the bit between them and the taken bit is never set.
        self.0 & (Self::TAKEN | Self::TAKEN >> 1) == Self::TAKEN
    }

    pub(crate) const fn device(self) -> Device {
        Device(((self.0 >> Self::DEVICE_SHIFT) & Self::DEVICE) as u8)
    }

    /// Whether the slot is taken for the device.
    pub(crate) const fn is(self, device: Device) -> bool {
        (self.0 ^ Self::of(device)) << 24 >> 24 >> Self::DEVICE_SHIFT == 0
    }

    /// Whether the slot is taken for the device and its hint is trusted, in one comparison.
    pub(crate) const fn is_alive(self, device: Device, trust: Trust) -> bool {
        // The hint, if the byte above it is the device's; otherwise a negative or a large number. A
        // hint of zero is negative, too.
        let hint = (self.0 << 24 >> 24).wrapping_sub(Self::of(device));
        hint.wrapping_sub(1) < trust.0
    }

    const fn of(device: Device) -> u64 {
        Self::TAKEN | ((device.0 as u64) << Self::DEVICE_SHIFT)
    }

    /// 0: there is no hint, so query the kernel. A thread id: alive. [`OWNER_DIED`]: that thread is
    /// gone, so query the kernel whether its process is, too.
    pub(crate) const fn word(self) -> u32 {
        (self.0 & Self::WORD) as u32
    }

    /// Whether the hint says that the thread is alive.
    pub(crate) const fn hinted_alive(self) -> bool {
        (self.word() as u64).wrapping_sub(1) < Trust::HINTS.0
    }

    const fn with_word(self, word: u32) -> Head {
        Head((self.0 & !Self::WORD) | word as u64)
    }

    /// Free, and without a hint.
    pub(crate) const fn freed(self) -> Head {
        Head(self.0 >> Self::TIMES_SHIFT << Self::TIMES_SHIFT)
    }

    /// Taken for a device, and without a hint.
    pub(crate) const fn take(self, device: Device) -> Head {
        let times = (self.0 >> Self::TIMES_SHIFT).wrapping_add(1) << Self::TIMES_SHIFT;
        Head(times | Self::of(device))
    }
}

/// The hints that are trusted for now; none when every owner is to be verified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trust(u64);

impl Trust {
    const HINTS: Trust = Trust(OWNER_DIED as u64 - 1);

    pub(crate) const fn unless(verify: bool) -> Trust {
        if verify { Trust(0) } else { Trust::HINTS }
    }
}

const _: () = assert!(DEVICES == 64);
const _: () = assert!(
    cfg!(target_endian = "little"),
    "the word is the low half of the head"
);

/// The words of a slot besides its amounts, laid out as a node of glibc's robust list.
///
/// `get_robust_list(2)` gives one distance from a node's `next` to its word for a whole thread.
/// glibc's is 32 bytes on 64-bit machines, so the words are laid out at that distance. Our code
/// never follows `prev` or `next`: they are for the kernel and for glibc's own writes.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Node {
    /// A [`Head`].
    pub(crate) head: AtomicU64,
    /// The owner's pid in its own pid namespace, for display only.
    pub(crate) pid: AtomicU32,
    pub(crate) spare: [AtomicU32; 3],
    pub(crate) prev: AtomicU64,
    pub(crate) next: AtomicU64,
}

impl Node {
    pub(crate) fn head(&self) -> Head {
        Head(self.head.load(SeqCst))
    }

    pub(crate) fn set_head(&self, head: Head) {
        self.head.store(head.0, SeqCst);
    }

    /// Sets the slot's hint; the rest of its head may change meanwhile.
    pub(crate) fn set_word(&self, word: u32) {
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
pub(crate) const OWNER_DIED: u32 = 0x4000_0000;

/// The columns of the slots, at any address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table<'a> {
    /// One more than the highest slot that was ever taken; readers may stop there.
    pub(crate) extent: &'a AtomicU32,
    /// The granted bytes.
    pub(crate) used: &'a [AtomicU64],
    /// The bytes that claims request at this moment.
    pub(crate) pending: &'a [AtomicU64],
    pub(crate) nodes: &'a [Node],
    /// The granted bytes, by kind.
    pub(crate) kinds: &'a [[AtomicU64; KINDS]],
    /// One more than the highest sharer that was ever used.
    pub(crate) sharers: &'a AtomicU32,
    /// The rows of exported and imported memory.
    pub(crate) sharing: &'a [Sharer],
}

impl<'a> Table<'a> {
    /// The slots that were ever taken. The slices have equal lengths, so the compiler removes the
    /// bounds checks from loops over them.
    pub(crate) fn reach(self) -> Table<'a> {
        let extent = usize::try_from(self.extent.load(SeqCst)).unwrap_or(usize::MAX);
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
