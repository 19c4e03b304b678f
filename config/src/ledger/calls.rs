//! The kernel, as the protocol asks it: locks on bytes of the ledger's file.
//! Touches: the file, by its path, for as long as one call of the ledger; no descriptor stays.
//! Law: byte n locked means that the owner of slot n lives; byte 512 + n that somebody writes to
//! slot n, which has no owner.

use super::Ledger;
use super::layout::SLOTS;
use super::map::Hold;
use super::protocol::{Kernel, Step};
use super::sys::{self, Access, Errno, Fd};
use core::cell::Cell;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// The file of this path is not the one that is mapped.
const ESTALE: Errno = Errno(116);

/// The descriptors that this process has open at this moment, each plus one.
///
/// A child that is forked in that moment (some microseconds, once per process and device) inherits
/// them, and with them the locks. It closes them when it first comes to the ledger; if it never
/// does and outlives its parent, the parent's bytes stay counted until it ends: too much is said
/// to be used, never too little. The same goes for the mapping, between mmap and madvise.
pub(super) struct Flights([AtomicUsize; 4]);

impl Flights {
    pub(super) const fn none() -> Flights {
        Flights([const { AtomicUsize::new(0) }; 4])
    }

    pub(super) fn enter(&self, fd: &Fd) -> Option<&AtomicUsize> {
        let number = fd.number().saturating_add(1);
        let free = |flight: &&AtomicUsize| {
            let entered = flight.compare_exchange(0, number, SeqCst, SeqCst);
            entered.is_ok()
        };
        self.0.iter().find(free)
    }

    /// In a child: closes what the parent had open, if it still is the ledger.
    pub(super) fn land(&self, ledger: &Ledger) {
        for flight in &self.0 {
            let Some(number) = flight.swap(0, SeqCst).checked_sub(1) else {
                continue;
            };
            let fd = Fd::numbered(number);
            match fd.stat() {
                Ok(stat) if ledger.is(&stat) => drop(fd),
                _ => core::mem::forget(fd),
            }
        }
    }
}

/// The kernel during one call of the ledger.
pub(super) struct Calls<'a> {
    ledger: &'a Ledger,
    /// A descriptor to look at locks with, opened when it is first needed, plus one.
    eyes: Cell<usize>,
    /// The locks of the slot that was taken last.
    pub(super) hold: Cell<Option<Hold>>,
}

impl Drop for Calls<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.eyes.get().checked_sub(1) {
            drop(Fd::numbered(number));
        }
    }
}

impl<'a> Calls<'a> {
    pub(super) fn of(ledger: &'a Ledger) -> Calls<'a> {
        Calls {
            ledger,
            eyes: Cell::new(0),
            hold: Cell::new(None),
        }
    }

    /// Opens the file that is mapped. Its path may lead elsewhere by now, or nowhere.
    pub(super) fn open(&self, access: Access) -> Result<Fd, Errno> {
        let fd = Fd::open(self.ledger.path.as_c_str(), access)?;
        match self.ledger.is(&fd.stat()?) {
            true => Ok(fd),
            false => Err(ESTALE),
        }
    }

    /// Whether somebody has locked the byte.
    #[cold]
    fn locked(&self, byte: usize) -> Result<bool, Errno> {
        let number = match self.eyes.get().checked_sub(1) {
            Some(number) => number,
            None => {
                let fd = self.open(Access::Read)?;
                let number = fd.number();
                core::mem::forget(fd);
                self.eyes.set(number.saturating_add(1));
                number
            }
        };
        let fd = Fd::numbered(number);
        let locked = fd.locked(byte);
        core::mem::forget(fd);
        locked
    }

    /// Whether the lock that says that we live is there, now that its descriptor is closed.
    pub(super) fn own_lock_stays(&self, slot: usize) -> bool {
        self.locked(slot) == Ok(true)
    }
}

/// The right to write to a slot without an owner.
pub(super) struct Seat<'a> {
    fd: Option<Fd>,
    flight: Option<&'a AtomicUsize>,
    slot: usize,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        if let Some(fd) = self.fd.take() {
            // Explicitly: a mapping keeps what is locked.
            fd.unlock(seat_byte(self.slot));
        }
        if let Some(flight) = self.flight {
            flight.store(0, SeqCst);
        }
    }
}

fn seat_byte(slot: usize) -> usize {
    SLOTS.saturating_add(slot)
}

impl<'a> Kernel for Calls<'a> {
    type Seat = Seat<'a>;

    fn owner_lives(&self, slot: usize) -> bool {
        self.locked(slot).unwrap_or(true)
    }

    #[cold]
    fn seat(&self, slot: usize) -> Option<Seat<'a>> {
        let fd = self.open(Access::Write).ok()?;
        let flight = self.ledger.flights.enter(&fd);
        let got = fd.lock(seat_byte(slot));
        let fd = Some(fd);
        // Dropped when the lock is somebody else's.
        let seat = Seat { fd, flight, slot };
        got.then_some(seat)
    }

    fn own(&self, seat: &Seat<'a>, slot: usize) -> bool {
        let Some(fd) = &seat.fd else {
            return false;
        };
        let Ok(hold) = Hold::of(fd) else {
            return false;
        };
        if !fd.lock(slot) {
            hold.release();
            return false;
        }
        if let Some(node) = self.ledger.file.table().nodes.get(slot) {
            node.pid.store(sys::getpid(), Relaxed);
        }
        self.hold.set(Some(hold));
        true
    }

    fn verification_is_due(&self) -> bool {
        let private = self.ledger.private;
        // A lost count between two threads is no harm; a locked instruction would be.
        let looks = private.looks.load(Relaxed);
        private.looks.store(looks.wrapping_add(1), Relaxed);
        looks & 63 == 0 && self.second_has_passed()
    }

    #[cold]
    fn pause(&self, round: u32) {
        match round {
            0..32 => core::hint::spin_loop(),
            32..128 => sys::sched_yield(),
            _ => sys::sleep_us(50),
        }
    }

    /// 20 ms and a little: longer than any claim takes that is not stopped in its middle.
    const ROUNDS: u32 = 512;

    #[inline(always)]
    fn step(&self, step: Step) {
        #[cfg(all(test, not(miri)))]
        super::crash_tests::at(step);
        let _ = step;
    }
}

impl Calls<'_> {
    #[cold]
    fn second_has_passed(&self) -> bool {
        let now = sys::seconds();
        let due = &self.ledger.private.verify_at;
        let passed = now >= due.load(Relaxed);
        if passed {
            due.store(now.saturating_add(1), Relaxed);
        }
        passed
    }
}
