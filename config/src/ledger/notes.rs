//! Notes in the ledger for each device: refusals, and the measured size of a context.
//! Touches: the header; a lock on one byte of the file.
//! Law: notes decide nothing and are only reported, so a neighbour's false value affects only a
//! report.

use super::Ledger;
use super::kernel::map::Hold;
use super::protocol::layout::{DEVICES, Device, Kind};
use super::protocol::private::Mine;
use crate::sys::{self, Access, Fd};
use crate::words::units::Bytes;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// The refusals on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// The number of refused allocations.
    pub count: u64,
    /// The largest shortfall of one of them: that much more headroom would have avoided it.
    pub regret: Bytes,
}

/// The right to perform an operation that only one process of the slice may perform at a time.
///
/// It ends when it is dropped, or when its holder dies.
pub struct Turn<'a>(Lasting<'a>);

/// The open file description of the lock lasts as long as one of these.
enum Lasting<'a> {
    /// A mapping, as for a slot: the driver can take seconds meanwhile, in which the program may close
    /// all descriptors and open others.
    Mapping(Option<Hold>),
    /// A descriptor, where a mapping does not keep locks, and its note.
    Descriptor(
        #[expect(dead_code, reason = "closing it ends the lock")] Fd,
        Option<&'a AtomicUsize>,
    ),
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        match &mut self.0 {
            Lasting::Mapping(hold) => {
                if let Some(hold) = hold.take() {
                    hold.release();
                }
            }
            Lasting::Descriptor(_, note) => {
                if let Some(note) = note {
                    note.store(0, SeqCst);
                }
            }
        }
    }
}

impl Ledger {
    /// Records a refusal, and its shortfall.
    pub fn refused(&self, device: Device, short_by: Bytes) {
        if let Some(noted) = self.header.noted(self.in_file(device)) {
            noted.refusals.fetch_add(1, Relaxed);
            noted.regret.fetch_max(short_by.get(), Relaxed);
        }
    }

    /// The refusals on a device, of all processes that the slice ever had.
    #[must_use]
    pub fn refusals(&self, device: Device) -> Refusals {
        let noted = self.header.noted(self.in_file(device));
        noted.map_or_else(Refusals::default, |noted| Refusals {
            count: noted.refusals.load(Relaxed),
            regret: Bytes::new(noted.regret.load(Relaxed)),
        })
    }

    /// The memory of one context on a device; `None` until it is measured.
    #[must_use]
    pub fn context(&self, device: Device) -> Option<Bytes> {
        let learned = self
            .header
            .noted(self.in_file(device))?
            .context
            .load(Relaxed);
        (learned != 0).then_some(Bytes::new(learned))
    }

    /// Records the memory of one context; the first measurement stays.
    pub fn learn_context(&self, device: Device, bytes: Bytes) {
        if let Some(noted) = self.header.noted(self.in_file(device)) {
            let context = &noted.context;
            let _ = context.compare_exchange(0, bytes.get(), Relaxed, Relaxed);
        }
    }

    /// Waits at most two seconds for the turn on a device to measure a context. Returns `None` if a
    /// context was measured meanwhile, another process takes longer, or the kernel gives no lock.
    ///
    /// A thread that is cancelled in its turn leaves the lock to its process, for good. So the
    /// holder of the turn names the slot whose hint belongs to its thread. When that thread is
    /// gone, the other processes take turns at another lock.
    #[must_use]
    pub fn turn(&self, device: Device) -> Option<Turn<'_>> {
        // `settle` runs now: later it would mistake this descriptor for one inherited from a
        // parent.
        self.settle();
        let fd = self.lock_file.open(Access::Write).ok()?;
        let mut lock = 0;
        for round in 0..2000 {
            if self.context(device).is_some() {
                return None;
            }
            let byte = turn_byte(self.table.nodes.len(), self.in_file(device), lock);
            // A kernel that gives no locks gives none later either.
            if fd.try_lock(byte).ok()? {
                let note = self.lock_file.open_fds.note(&fd);
                self.sign(device, lock);
                let is_kept = fd.is_on_tmpfs() == Ok(true);
                let hold = is_kept.then(|| Hold::of(&fd).ok()).flatten();
                if hold.is_none() {
                    return Some(Turn(Lasting::Descriptor(fd, note)));
                }
                drop(fd);
                if let Some(note) = note {
                    note.store(0, SeqCst);
                }
                return Some(Turn(Lasting::Mapping(hold)));
            }
            match self.next_lock(device, lock) {
                Some(next) => lock = next,
                None if round < 100 => sys::sleep_us(100),
                None => sys::sleep_us(1000),
            }
        }
        None
    }

    /// Records this thread as the holder of the turn, if the process's slot has a hint of its end.
    fn sign(&self, device: Device, lock: u8) {
        // Takes the slot in which the context will be claimed.
        let _ = self.claim(device, Bytes::ZERO, Kind::Context, Bytes::MAX);
        let slot = self.private.mine(device).and_then(Mine::slot);
        let (thread, hint) = (sys::gettid(), slot.map(|slot| self.hint(slot)));
        let signed = match slot.and_then(|slot| u64::try_from(slot.saturating_add(1)).ok()) {
            Some(slot) if hint == Some(thread) => slot << SLOT_AT | u64::from(thread),
            _ => 0,
        };
        if let Some(turn) = self.header.turn(self.in_file(device)) {
            turn.store(u64::from(lock) << LOCK_AT | signed, SeqCst);
        }
    }

    /// The next lock to use, if a thread that is gone left this one locked.
    fn next_lock(&self, device: Device, lock: u8) -> Option<u8> {
        let signed = self.header.turn(self.in_file(device))?.load(SeqCst);
        let [t0, t1, t2, t3, s0, s1, _, signed_lock] = signed.to_le_bytes();
        if signed_lock != lock {
            return (lock < signed_lock && signed_lock < LOCKS).then_some(signed_lock);
        }
        let thread = u32::from_le_bytes([t0, t1, t2, t3]);
        let slot = usize::from(u16::from_le_bytes([s0, s1])).checked_sub(1)?;
        let next = lock.saturating_add(1);
        (self.hint(slot) != thread && next < LOCKS).then_some(next)
    }

    /// The thread in a slot's hint, or the mark that it is gone.
    fn hint(&self, slot: usize) -> u32 {
        let node = self.table.nodes.get(slot);
        node.map_or(0, |node| node.head().word())
    }
}

/// The number of locks for the turns on one device.
const LOCKS: u8 = 8;

/// A signature consists of the thread, its slot plus one, and the lock.
const SLOT_AT: u32 = 32;
const LOCK_AT: u32 = 56;

pub(super) fn turn_byte(slots: usize, device: Device, lock: u8) -> usize {
    slots
        .saturating_mul(2)
        .saturating_add(DEVICES.saturating_mul(usize::from(lock)))
        .saturating_add(usize::from(device.number()))
}
