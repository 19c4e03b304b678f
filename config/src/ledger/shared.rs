//! The ledger's interface: open, claim, release, sum.
//! Touches: the mapped file; the kernel through `calls`.

use super::calls::{Calls, Flights, Here};
use super::closed::{self, Places};
use super::elsewhere;
use super::file::{self, Beginning, Foreign, Header};
use super::holding;
use super::layout::{self, Device, KINDS, Kind, Node, Table, Trust};
use super::map;
use super::private::{Mine, NO_THREAD, Private};
use super::protocol::{self, Alone, Amount, Columns, Outcome, Own};
use super::sys::{self, Access, Errno, Fd, Stat};
use super::{quiet, slotless};
use crate::words::device::DeviceUuid;
use crate::words::units::Bytes;
use core::ffi::CStr;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use thiserror::Error;

/// Why a file cannot be used as a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LedgerError {
    /// The path is too long to be stored.
    #[error("the path of the ledger is longer than {PATH_MAX} bytes")]
    Path,
    /// The file cannot be opened, or its path is a symbolic link.
    #[error("cannot open the ledger: {0}")]
    Open(#[source] Errno),
    /// It cannot be examined.
    #[error("cannot examine the ledger: fstat fails with {0}{hint}", hint = .0.hint())]
    Examine(#[source] Errno),
    /// It is a directory, a pipe, a device.
    #[error("the ledger is not a regular file")]
    NotAFile,
    /// It is too short or too long.
    #[error("the ledger is {0} bytes long, which is no ledger's length")]
    Length(u64),
    /// It is some other file.
    #[error("the file is not a ledger")]
    Magic,
    /// It was made by another version of gpuslice.
    #[error("the ledger has version {0}, not {ours}", ours = layout::VERSION)]
    Version(u32),
    /// The file is a ledger, but not the one that the slice was given.
    #[error(
        "it is another ledger than the one that the slice was started with (start the slice again)"
    )]
    Another,
    /// A process that used the ledger has found that it was overwritten.
    #[error(
        "the ledger was overwritten while it was in use (end the slice's programs and start the slice again)"
    )]
    Damaged,
    /// It cannot be mapped.
    #[error("cannot map the ledger: {0}")]
    Map(#[source] Errno),
    /// The kernel provides no private page for this process.
    #[error("there is no memory for what this process holds")]
    Memory,
}

impl LedgerError {
    /// Whether the next attempt may succeed without any repair: this process has run out of
    /// descriptors or memory, or was interrupted.
    #[must_use]
    pub fn is_passing(self) -> bool {
        match self {
            LedgerError::Open(errno) | LedgerError::Map(errno) => errno.is_passing(),
            LedgerError::Memory => true,
            _ => false,
        }
    }
}

/// Checks the first words of a file, and returns the error that they cause.
pub(super) fn refuse(magic: u64, version: u32, slots: u32, room: usize) -> Result<(), LedgerError> {
    let room = u32::try_from(room).unwrap_or(0);
    file::check(magic, version, slots, room).map_err(LedgerError::from)
}

impl From<Foreign> for LedgerError {
    fn from(foreign: Foreign) -> LedgerError {
        match foreign {
            Foreign::Magic => LedgerError::Magic,
            Foreign::Damaged => LedgerError::Damaged,
            Foreign::Version(version) => LedgerError::Version(version),
        }
    }
}

/// The conditions under which a ledger is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// The ledger must exist.
    Existing,
    /// The ledger must exist, with this id from [`Ledger::identify`]. Where another process's
    /// descriptor of the ledger is given and can be read, a copy of the ledger is refused.
    Known(u64),
    /// The ledger is created if it is missing, with exactly this mode, whatever the umask.
    Create {
        /// 0o600 for the processes of one user, 0o666 where a container has several.
        mode: u32,
        /// The number of devices that it has room for.
        devices: usize,
    },
}

/// The result of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The bytes are this process's until it releases them or ends.
    Granted,
    /// Nothing was taken: the slice's processes hold this much, and it would not fit.
    Refused {
        /// Bytes held by the slice's processes.
        used: Bytes,
    },
    /// Nothing was taken: this process has no slot, so other processes could not see its bytes.
    NoSlot(NoSlot),
    /// The limit was [`Bytes::MAX`] and this process has no slot. It counts the bytes by itself,
    /// and moves them into its slot when it gets one.
    Private(NoSlot),
}

/// Why a process has no slot. It looks for one again after a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoSlot {
    /// Every slot has a living owner, or another process has locked it.
    #[error("all of its {0} places are taken or locked")]
    Full(u32),
    /// The file cannot be opened, so there is nothing to lock.
    #[error("it cannot be opened again: {0}")]
    Unreachable(#[source] Errno),
    /// The kernel refuses locks on its file.
    #[error("it cannot be locked: {0}{hint}", hint = .0.hint())]
    Unlockable(#[source] Errno),
    /// The file system drops locks that a mapping should keep.
    #[error("it is not on tmpfs, and its file system drops locks")]
    LocksDoNotStay,
    /// The ledger as a whole cannot be used.
    #[error("it cannot be used")]
    Closed,
    /// The ledger has no room for another device, or the device's entry is garbled.
    #[error("it has no room for another device")]
    Unlisted,
    /// The ledger was overwritten while it was in use. It grants nothing any more.
    #[error(
        "it was overwritten while it was in use (end the slice's programs and start the slice again)"
    )]
    Damaged,
}

/// The longest path of a ledger.
const PATH_MAX: usize = 255;

/// The longest path of a descriptor.
const DESCRIPTOR_MAX: usize = 31;

/// A path that ends in NUL.
pub(super) struct Path<const N: usize>([u8; N]);

impl<const N: usize> Path<N> {
    /// The path of the file `name` in the same folder.
    pub(super) fn beside(path: &CStr, name: &[u8]) -> Option<Path<N>> {
        let path = path.to_bytes();
        let folder = path.iter().rposition(|byte| *byte == b'/')?;
        let folder = path.get(..folder.saturating_add(1))?;
        let mut bytes = [0; N];
        let (start, rest) = bytes.split_at_mut_checked(folder.len())?;
        start.copy_from_slice(folder);
        let (to, end) = rest.split_at_mut_checked(name.len())?;
        to.copy_from_slice(name);
        // The name must have room for its NUL.
        let _ = end.first()?;
        Some(Path(bytes))
    }

    pub(super) fn new(path: &CStr) -> Option<Path<N>> {
        let from = path.to_bytes_with_nul();
        let mut bytes = [0; N];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        Some(Path(bytes))
    }

    pub(super) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or_default()
    }
}

/// A slice's ledger, as mapped in one process.
///
/// It stays mapped until the process ends, dropped or not, because the kernel and libc refer to it.
pub struct Ledger {
    pub(super) header: &'static Header,
    /// The first words of the header, at the time of opening.
    begins: Beginning,
    pub(super) table: Table<'static>,
    /// The first slot, for the fast path of a process alone in its slice.
    first: Option<(&'static Node, Columns<'static>)>,
    /// Whether the ledger cannot be used: nothing is granted, and every sum covers this process
    /// only.
    pub(super) closed: bool,
    /// This process's numbers of the devices, where they differ from the file's.
    pub(super) places: Option<&'static Places>,
    pub(super) private: &'static Private,
    /// The path of the file that carries the locks.
    pub(super) path: Path<{ PATH_MAX + 1 }>,
    /// The path of another process's descriptor of the ledger; empty where there is none.
    pub(super) descriptor: Path<{ DESCRIPTOR_MAX + 1 }>,
    pub(super) flights: Flights,
    identity: Identity,
}

/// The identity of the file that carries the locks.
enum Identity {
    /// The ledger itself.
    Ledger(Stat),
    /// A file beside it, by its device and inode once it has been opened.
    Beside([AtomicU64; 2]),
}

/// The lock file beside a sealed ledger, because no mapping keeps that ledger's own locks.
pub(super) const LOCKS: &[u8] = b"locks";

impl core::fmt::Debug for Ledger {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_tuple("Ledger")
            .field(&self.path.as_c_str())
            .finish()
    }
}

/// One slot, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The slot's number.
    pub slot: usize,
    /// The pid, in the process's own pid namespace; for display only.
    pub pid: u32,
    /// The device; None where the file's table is garbled.
    pub device: Option<DeviceUuid>,
    /// The bytes that it holds.
    pub used: u64,
    /// The bytes that it holds, by kind.
    pub by_kind: [(Kind, u64); KINDS],
    /// Whether it is alive, as the kernel reports.
    pub alive: bool,
}

impl Ledger {
    /// Maps the ledger at `path`. Takes no slot yet, and leaves no descriptor open.
    ///
    /// The path should be absolute: it is used again when a slot is taken, or when a process has
    /// died.
    ///
    /// # Errors
    /// When the file cannot be opened or mapped, or is not a ledger of this version.
    pub fn open(path: &CStr, open: Open) -> Result<Ledger, LedgerError> {
        let private = map::private().map_err(LedgerError::Map)?;
        Ledger::open_with(path, c"", open, private)
    }

    /// Like [`Ledger::open`], with the caller's memory for this process's own slots: zeros at
    /// first, and zeros again in every forked child. `descriptor`, if not empty, is the path of
    /// another process's descriptor of the ledger, `/proc/PID/fd/N`. It is used when `path` no
    /// longer leads to the ledger.
    ///
    /// # Errors
    /// As [`Ledger::open`].
    pub fn open_with(
        path: &CStr,
        descriptor: &CStr,
        open: Open,
        private: &'static Private,
    ) -> Result<Ledger, LedgerError> {
        let kept = Path::new(path).ok_or(LedgerError::Path)?;
        let access = match open {
            Open::Existing | Open::Known(_) => Access::Write,
            Open::Create { .. } => Access::Create,
        };
        // A descriptor path that is too long is ignored.
        let descriptor = Path::new(descriptor).unwrap_or(Path([0; DESCRIPTOR_MAX + 1]));
        let fd = Fd::open(path, access).or_else(|why| {
            let there = elsewhere::open(path, descriptor.as_c_str());
            there.map_err(|_| why)
        });
        let fd = fd.map_err(LedgerError::Open)?;
        let mut stat = fd.stat().map_err(LedgerError::Examine)?;
        if !stat.regular {
            return Err(LedgerError::NotAFile);
        }
        if let (Open::Create { mode, devices }, 0) = (open, stat.length) {
            // Another process that creates it at this moment sets the same mode.
            fd.set_mode(mode).map_err(LedgerError::Open)?;
            let length = layout::size_for(devices);
            fd.set_length(length).map_err(LedgerError::Open)?;
            stat = fd.stat().map_err(LedgerError::Open)?;
        }
        let wrong = LedgerError::Length(stat.length);
        let slots = layout::slots_of(stat.length).ok_or(wrong)?;
        let length = usize::try_from(stat.length).map_err(|_| wrong)?;
        let mapped = map::file(&fd, length, slots).map_err(LedgerError::Map)?;
        if let Open::Create { .. } = open {
            mapped.header.begin(slots);
        }
        let checked = mapped.header.check(slots).map_err(LedgerError::from);
        // An exact copy of the ledger has its id too.
        let is_another = matches!(open, Open::Known(id) if !mapped.header.is(id)
            || elsewhere::holds_another(descriptor.as_c_str(), id, &stat));
        let begins = match checked {
            Ok(begins) if !is_another => begins,
            checked => {
                map::forget(mapped);
                return Err(checked.err().unwrap_or(LedgerError::Another));
            }
        };
        let (header, table) = (mapped.header, mapped.table);
        let (path, identity) = match header.locks_are_beside() {
            true => {
                let locks = Path::beside(path, LOCKS).ok_or(LedgerError::Path)?;
                (locks, Identity::Beside([const { AtomicU64::new(0) }; 2]))
            }
            false => (kept, Identity::Ledger(stat)),
        };
        let node = table.nodes.first();
        Ok(Ledger {
            header,
            begins,
            table,
            first: node.and_then(|node| Some((node, Columns::of(table, 0)?))),
            closed: false,
            places: closed::places(header),
            private,
            path,
            descriptor,
            flights: Flights::none(),
            identity,
        })
    }

    /// Gives a new ledger an id, by which processes recognise it. Returns false if it has another
    /// id.
    #[must_use]
    pub fn identify(&self, id: u64) -> bool {
        self.header.identify(id)
    }

    /// A ledger that grants nothing, for a slice whose own ledger cannot be used. `private` is as
    /// for [`Ledger::open_with`]; `None` where the kernel provides no page for it.
    #[must_use]
    pub fn closed(private: Option<&'static Private>) -> Ledger {
        let header = closed::header();
        Ledger {
            header,
            begins: Beginning::NONE,
            table: Table {
                extent: &header.extent,
                used: &[],
                pending: &[],
                nodes: &[],
                kinds: &[],
                sharers: &header.sharers,
                sharing: &[],
            },
            first: None,
            closed: true,
            places: None,
            private: private.unwrap_or_else(closed::no_page),
            path: Path([0; PATH_MAX + 1]),
            descriptor: Path([0; DESCRIPTOR_MAX + 1]),
            flights: Flights::none(),
            identity: Identity::Beside([const { AtomicU64::new(0) }; 2]),
        }
    }

    /// Whether a file is the one that carries the locks.
    pub(super) fn is(&self, stat: &Stat) -> bool {
        match &self.identity {
            Identity::Ledger(ledger) => stat == ledger,
            Identity::Beside([device, inode]) => {
                let same = |word: &AtomicU64, found: u64| {
                    let known = word.compare_exchange(0, found, SeqCst, SeqCst);
                    known.map_or_else(|known| known == found, |_| true)
                };
                stat.regular && same(device, stat.device) && same(inode, stat.inode)
            }
        }
    }

    /// The device's number for claims; `None` if the file has no room for another device.
    #[must_use]
    pub fn device(&self, uuid: &DeviceUuid) -> Option<Device> {
        match self.places {
            None => self.header.device(uuid),
            Some(places) => places.device(uuid, self.header),
        }
    }

    /// The file's number for a device of this process.
    #[inline(always)]
    pub(super) fn in_file(&self, device: Device) -> Device {
        match self.places {
            None => device,
            Some(places) => places.in_file(device),
        }
    }

    /// The bytes that the slice's live processes hold on a device. Bytes of a process without a
    /// slot are known only to that process.
    #[must_use]
    pub fn sum(&self, device: Device) -> Bytes {
        if let Some(alone) = self.sum_alone(device) {
            return alone;
        }
        self.settle();
        let mine = self.private.mine(device);
        if let Some(mine) = mine
            && let Some(slot) = mine.slot()
        {
            self.arm(mine, slot);
        }
        if self.finds_damage(device) {
            return Bytes::MAX;
        }
        let calls = Calls::of(self);
        let device = self.in_file(device);
        Bytes::new(protocol::sum(self.table, &calls, device))
    }

    /// Like [`Ledger::sum`], on the fast path: the bytes in the slot of a process alone in its
    /// slice. `None` if it is not alone.
    #[inline(always)]
    fn sum_alone(&self, device: Device) -> Option<Bytes> {
        let (node, own) = self.first.as_ref()?;
        let mine = self.private.mine(device)?;
        let is_alone = mine.slot() == Some(0)
            && self.begins == self.header.begins()
            && node
                .head()
                .is_alive(self.in_file(device), Trust::unless(false));
        is_alone.then(|| own.sum_alone(&self.header.extent, &mine.holding))?
    }

    /// Checks whether the ledger was overwritten, as far as this process can tell. If so, marks it
    /// as damaged for every process.
    #[inline(always)]
    fn finds_damage(&self, device: Device) -> bool {
        let mine = self.private.mine(device);
        let own = mine.and_then(|mine| Some((mine.slot()?, &mine.holding)));
        let place = self.in_file(device);
        let is_intact =
            self.begins == self.header.begins() && holding::seem_intact(self.table, place, own);
        !is_intact && self.find_damage(place, own)
    }

    #[cold]
    fn find_damage(&self, place: Device, own: Option<(usize, &holding::Holding)>) -> bool {
        let damaged =
            self.begins != self.header.begins() || holding::are_damaged(self.table, place, own);
        if damaged {
            self.header.spoil();
            self.private.spoil();
        }
        damaged
    }

    /// Whether the ledger was found to be overwritten. It then grants nothing any more.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.private.damaged.load(Relaxed) != 0
    }

    /// The bytes that this process holds on a device.
    #[must_use]
    pub fn own(&self, device: Device) -> Bytes {
        let slot = self.private.mine(device).and_then(Mine::slot);
        let used = slot.and_then(|slot| self.table.used.get(slot));
        used.map_or(Bytes::ZERO, |used| Bytes::new(used.load(SeqCst)))
    }

    /// Claims `bytes` if the slice then holds no more than `limit`.
    ///
    /// With [`Bytes::MAX`] as the limit, the claim only counts. This records memory that the driver
    /// has already given.
    #[inline(always)]
    pub fn claim(&self, device: Device, bytes: Bytes, kind: Kind, limit: Bytes) -> Claim {
        if bytes.get() <= protocol::MOST
            && let Some(mine) = self.private.mine(device)
            && mine.slot() == Some(0)
            && let Some((node, own)) = &self.first
            && node.head().hinted_alive()
        {
            let bytes = bytes.get();
            let amount = Amount { bytes, kind };
            let extent = &self.header.extent;
            match own.claim_alone(extent, &Here, &mine.holding, amount, limit.get()) {
                Alone::Granted => return Claim::Granted,
                Alone::Contested => {
                    if self.contested(mine, device, amount, limit) {
                        return Claim::Granted;
                    }
                }
                Alone::NotGranted => {}
            }
        }
        self.claim_among(device, bytes, kind, limit)
    }

    #[cold]
    #[inline(never)]
    fn contested(&self, mine: &Mine, device: Device, amount: Amount, limit: Bytes) -> bool {
        let own = Own {
            slot: 0,
            gate: &mine.gate,
            holding: &mine.holding,
            verify: false,
        };
        let (table, calls) = (self.table, Calls::of(self));
        let device = self.in_file(device);
        protocol::contested(table, &calls, &own, device, amount, limit.get())
    }

    #[inline(never)]
    fn claim_among(&self, device: Device, bytes: Bytes, kind: Kind, limit: Bytes) -> Claim {
        let Some(mine) = self.private.mine(device) else {
            return Claim::NoSlot(NoSlot::Unlisted);
        };
        if self.finds_damage(device) {
            return slotless::claim(self, device, bytes, kind, limit, NoSlot::Damaged);
        }
        let mut calls = Calls::of(self);
        let (slot, fresh) = match mine.slot() {
            Some(slot) => (slot, false),
            None => {
                // The program itself causes a first claim, so the kernel is queried even under a
                // seccomp filter.
                calls.insist();
                match self.enter(&calls, mine, device) {
                    Ok(slot) => (slot, true),
                    Err(why) => {
                        self.header.uncounted.fetch_add(1, Relaxed);
                        return slotless::claim(self, device, bytes, kind, limit, why);
                    }
                }
            }
        };
        self.arm(mine, slot);
        let own = Own {
            slot,
            gate: &mine.gate,
            holding: &mine.holding,
            verify: fresh,
        };
        let bytes = bytes.get();
        let table = self.table;
        let amount = Amount { bytes, kind };
        let device = self.in_file(device);
        match protocol::claim(table, &calls, &own, device, amount, limit.get()) {
            Outcome::Granted => Claim::Granted,
            Outcome::Refused { used } => Claim::Refused {
                used: Bytes::new(used),
            },
        }
    }

    /// Releases granted bytes; a larger amount releases all of them. A child cannot release bytes
    /// that its parent held before the fork.
    #[inline]
    pub fn release(&self, device: Device, bytes: Bytes, kind: Kind) {
        let mine = self.private.mine(device);
        match mine.and_then(|mine| Some((mine.slot()?, &mine.holding))) {
            Some((slot, holding)) => {
                let bytes = bytes.get();
                let amount = Amount { bytes, kind };
                protocol::release(self.table, &Here, slot, holding, amount);
            }
            None => slotless::release(self, device, bytes, kind),
        }
    }

    /// The slots that are taken, for display. Slots of dead processes are cleared on the way.
    pub fn slots(&self) -> impl Iterator<Item = Record> + '_ {
        let table = self.table;
        let calls = Calls::of(self);
        let rows = table.nodes.iter().zip(table.used).zip(table.kinds);
        rows.enumerate()
            .filter_map(move |(slot, ((node, used), kinds))| {
                let head = node.head();
                if !head.taken() || !protocol::counts(table, &calls, slot) {
                    return None;
                }
                let used = used.load(SeqCst);
                let word = |index: usize| kinds.get(index).map_or(0, |word| word.load(Relaxed));
                let (used, by_kind) = Kind::by_kind(used, word);
                Some(Record {
                    slot,
                    pid: node.pid.load(Relaxed),
                    device: self.header.uuid(head.device()),
                    used,
                    by_kind,
                    alive: true,
                })
            })
    }

    /// The number of the slice's claims that found no slot.
    #[must_use]
    pub fn uncounted(&self) -> u64 {
        self.header.uncounted.load(Relaxed)
    }

    /// Whether this ledger grants nothing, even if memory is free.
    #[inline]
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether this process's memory on a device is counted, or would be. False once it was refused
    /// for lack of a slot. It looks for a slot again, at most once a second.
    #[inline(always)]
    #[must_use]
    pub fn counts(&self, device: Device) -> bool {
        !self.closed
            && device != Device::UNLISTED
            && (self.private.slotless.load(Relaxed) == 0 || slotless::look_again(self, device))
    }

    /// In a forked child: closes the descriptors that the parent had open at the moment of the
    /// fork.
    pub(super) fn settle(&self) {
        if self.private.settled.load(Relaxed) == 0 {
            self.settle_now();
        }
    }

    #[cold]
    fn settle_now(&self) {
        let settled = &self.private.settled;
        if settled.compare_exchange(0, 1, SeqCst, SeqCst).is_ok() {
            self.flights.land(self);
        }
    }

    /// Takes a slot for a device.
    #[cold]
    pub(super) fn enter(
        &self,
        calls: &Calls<'_>,
        mine: &Mine,
        device: Device,
    ) -> Result<usize, NoSlot> {
        if self.closed {
            return Err(NoSlot::Closed);
        }
        if self.is_damaged() {
            return Err(NoSlot::Damaged);
        }
        let here = self.in_file(device);
        if here == Device::UNLISTED {
            return Err(NoSlot::Unlisted);
        }
        self.settle();
        let now = sys::seconds();
        let until = &self.private.full_until;
        let full = NoSlot::Full(u32::try_from(self.table.nodes.len()).unwrap_or(u32::MAX));
        if now < until.load(Relaxed) {
            return Err(full);
        }
        let Some(slot) = protocol::take(self.table, calls, here) else {
            let failure = calls.failure();
            if !failure.is_some_and(Errno::is_passing) {
                until.store(now.saturating_add(1), Relaxed);
            }
            let unlockable = calls.lock_failure().map(NoSlot::Unlockable);
            let unreachable = failure.map(NoSlot::Unreachable);
            return Err(unreachable.or(unlockable).unwrap_or(full));
        };
        let give_up = || {
            protocol::give_up(self.table, slot);
            calls.disown(slot);
        };
        if !calls.own_lock_stays(slot) {
            give_up();
            until.store(now.saturating_add(1), Relaxed);
            return Err(NoSlot::LocksDoNotStay);
        }
        let number = u16::try_from(slot.saturating_add(1)).unwrap_or(0);
        let held = slotless::enter(self, device, slot);
        match mine.slot.compare_exchange(0, number, SeqCst, SeqCst) {
            Ok(_) => {
                slotless::entered(self, device, slot, held);
                // The following claim queries the kernel about every slot.
                let verify_at = &self.private.verify_at;
                verify_at.store(now.saturating_add(1), Relaxed);
                Ok(slot)
            }
            Err(_) => {
                // Another thread of this process was faster.
                slotless::leave(self, slot, held);
                give_up();
                mine.slot().ok_or(full)
            }
        }
    }

    /// Gives the slot a hint of this thread's end, unless a live thread already has one in it.
    fn arm(&self, mine: &Mine, slot: usize) {
        if let Some(node) = self.table.nodes.get(slot)
            && !node.head().hinted_alive()
            && !quiet::is_on()
        {
            self.arm_now(mine, node);
        }
    }

    #[cold]
    fn arm_now(&self, mine: &Mine, node: &'static Node) {
        let carrier = mine.thread.load(SeqCst);
        // A thread that still exists may have the node in its list. The report of its end may be
        // early (it is leaving), refer to a reused id, or be a neighbour's false value. Then there
        // is no hint, and readers query the kernel.
        if carrier == NO_THREAD || (carrier != 0 && !sys::thread_is_gone(carrier)) {
            return;
        }
        let mine_to_arm = mine
            .thread
            .compare_exchange(carrier, NO_THREAD, SeqCst, SeqCst);
        if mine_to_arm.is_ok()
            && let Some(tid) = super::robust::arm(node, &Calls::of(self))
        {
            mine.thread.store(tid, SeqCst);
        }
    }
}
