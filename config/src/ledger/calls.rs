//! Implements the protocol's kernel by locks on bytes of the ledger's file.
//! Touches: the file, by its path, for as long as one call of the ledger; no descriptor stays open.
//! Law: in a file with m slots, a lock on byte n means that the owner of slot n is alive. A lock on
//! byte m + n means that a process is writing to slot n, which has no owner.

use super::Ledger;
use super::map::Hold;
use super::protocol::{Kernel, Step, Steps};
use super::sys::{self, Access, ESTALE, Errno, Fd};
use super::{elsewhere, quiet};
use core::cell::Cell;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// The descriptors that this process has open at this moment, each plus one.
///
/// A child that is forked in that moment (some microseconds, once per process and device) inherits
/// them, and with them the locks. It closes them at its first use of the ledger. If it never uses
/// the ledger and outlives its parent, the parent's bytes stay counted until the child ends: too
/// much is reported as used, never too little. The same applies to the mapping, between mmap and
/// madvise.
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

    /// In a child: closes the descriptors that the parent had open, if they still refer to the
    /// ledger.
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

/// The kernel during one call of the ledger. One descriptor of the file is opened at its first use
/// and serves the whole call.
pub(super) struct Calls<'a> {
    ledger: &'a Ledger,
    /// The descriptor, plus one.
    fd: Cell<usize>,
    /// The place where this process has noted the descriptor, because locks are held through it.
    flight: Cell<Option<&'a AtomicUsize>>,
    /// The slot whose owner's lock this descriptor holds, plus one. A descriptor never conflicts
    /// with its own locks, so the kernel would report that slot as unlocked.
    owned: Cell<usize>,
    /// Whether to query the kernel about other processes even under a seccomp filter.
    insists: bool,
    /// Why the file could not be opened.
    failure: Cell<Option<Errno>>,
    /// Why the kernel gave no lock, where another process does not have it.
    lock_failure: Cell<Option<Errno>>,
    /// The locks of the slot that was taken last.
    pub(super) hold: Cell<Option<Hold>>,
}

impl Drop for Calls<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.fd.get() != 0 {
            self.close();
        }
    }
}

impl<'a> Calls<'a> {
    pub(super) fn of(ledger: &'a Ledger) -> Calls<'a> {
        Calls {
            ledger,
            fd: Cell::new(0),
            flight: Cell::new(None),
            owned: Cell::new(0),
            insists: false,
            failure: Cell::new(None),
            lock_failure: Cell::new(None),
            hold: Cell::new(None),
        }
    }

    /// Makes this call query the kernel about other processes even under a seccomp filter.
    pub(super) fn insist(&mut self) {
        self.insists = true;
    }

    fn asks(&self) -> bool {
        self.insists || !quiet::is_on()
    }

    /// Why the file could not be opened, if it could not.
    pub(super) fn failure(&self) -> Option<Errno> {
        self.failure.get()
    }

    /// Why the kernel gave no lock, if another process does not have it.
    pub(super) fn lock_failure(&self) -> Option<Errno> {
        self.lock_failure.get()
    }

    /// Opens the file that carries the locks. Its path may by now lead to another file, or to none.
    pub(super) fn open(&self, access: Access) -> Result<Fd, Errno> {
        let ours = |fd: Fd| match self.ledger.is(&fd.stat()?) {
            true => Ok(fd),
            false => Err(ESTALE),
        };
        let (path, descriptor) = (&self.ledger.path, &self.ledger.descriptor);
        let named = Fd::open(path.as_c_str(), access).and_then(ours);
        named.or_else(|why| {
            let there = elsewhere::open(path.as_c_str(), descriptor.as_c_str());
            there.and_then(ours).map_err(|_| why)
        })
    }

    /// Runs `act` with the call's descriptor.
    #[cold]
    fn with<T>(&self, act: impl FnOnce(&Fd) -> Result<T, Errno>) -> Result<T, Errno> {
        let fd = match self.fd.get().checked_sub(1) {
            Some(number) => Fd::numbered(number),
            // A process with read access only can still query the locks.
            None => {
                let opened = self.open(Access::Write);
                let opened = opened.or_else(|why| self.open(Access::Read).map_err(|_| why));
                opened.inspect_err(|why| self.failure.set(Some(*why)))?
            }
        };
        self.fd.set(fd.number().saturating_add(1));
        let done = act(&fd);
        core::mem::forget(fd);
        done
    }

    /// Closes the descriptor, and drops its locks except those that a mapping keeps.
    #[cold]
    fn close(&self) {
        if let Some(number) = self.fd.take().checked_sub(1) {
            drop(Fd::numbered(number));
        }
        if let Some(flight) = self.flight.take() {
            flight.store(0, SeqCst);
        }
        self.owned.set(0);
    }

    /// Whether another process has locked the byte.
    #[cold]
    fn locked(&self, byte: usize) -> Result<bool, Errno> {
        if self.owned.get().checked_sub(1) == Some(byte) || !self.asks() {
            return Ok(true);
        }
        self.with(|fd| fd.locked(byte))
    }

    /// Whether the lock that marks this process as alive outlasts its descriptor. On tmpfs it does;
    /// elsewhere only closing the descriptor can tell.
    pub(super) fn own_lock_stays(&self, slot: usize) -> bool {
        if self.with(|fd| fd.is_on_tmpfs()) == Ok(true) {
            return true;
        }
        self.close();
        self.locked(slot) == Ok(true)
    }

    /// Releases the lock that marks this process as alive.
    pub(super) fn disown(&self, slot: usize) {
        if let Some(hold) = self.hold.take() {
            hold.release();
        }
        // The descriptor may still be open, and would then hold the lock without the mapping.
        if self.owned.take() != 0 {
            let _ = self.with(|fd| {
                fd.unlock(slot);
                Ok(())
            });
        }
    }
}

/// The right to write to a slot without an owner.
pub(super) struct Seat<'s, 'a> {
    calls: &'s Calls<'a>,
    slot: usize,
}

impl Drop for Seat<'_, '_> {
    fn drop(&mut self) {
        // Unlocked explicitly, because the descriptor stays open for the rest of the call, and a
        // mapping keeps its locks.
        let _ = self.calls.with(|fd| {
            fd.unlock(self.calls.seat_byte(self.slot));
            Ok(())
        });
    }
}

impl Calls<'_> {
    fn seat_byte(&self, slot: usize) -> usize {
        self.ledger.table.nodes.len().saturating_add(slot)
    }
}

impl<'a> Kernel for Calls<'a> {
    type Seat<'s>
        = Seat<'s, 'a>
    where
        Self: 's;

    fn owner_lives(&self, slot: usize) -> bool {
        self.locked(slot).unwrap_or(true)
    }

    #[cold]
    fn seat(&self, slot: usize) -> Option<Seat<'_, 'a>> {
        if !self.asks() {
            return None;
        }
        let got = self.with(|fd| {
            if self.flight.get().is_none() {
                self.flight.set(self.ledger.flights.enter(fd));
            }
            let locked = fd.try_lock(self.seat_byte(slot));
            Ok(locked.unwrap_or_else(|why| {
                self.lock_failure.set(Some(why));
                false
            }))
        });
        (got == Ok(true)).then(|| Seat { calls: self, slot })
    }

    fn own(&self, seat: &Seat<'_, 'a>, slot: usize) -> bool {
        let held = seat.calls.with(|fd| {
            let hold = Hold::of(fd)?;
            let locked = fd.lock(slot);
            Ok((hold, locked))
        });
        let Ok((hold, locked)) = held else {
            return false;
        };
        if !locked {
            hold.release();
            return false;
        }
        self.owned.set(slot.saturating_add(1));
        if let Some(node) = self.ledger.table.nodes.get(slot) {
            node.pid.store(sys::getpid(), Relaxed);
        }
        self.hold.set(Some(hold));
        true
    }

    fn verification_is_due(&self) -> bool {
        let private = self.ledger.private;
        // Two threads may lose a count, which does no harm; a locked instruction would cost time.
        let looks = private.looks.load(Relaxed);
        private.looks.store(looks.wrapping_add(1), Relaxed);
        looks & 63 == 0 && self.asks() && self.second_has_passed()
    }

    #[cold]
    fn pause(&self, round: u32) {
        match round {
            0..32 => core::hint::spin_loop(),
            32..128 => sys::sched_yield(),
            _ => sys::sleep_us(50),
        }
    }

    /// Slightly more than 20 ms: longer than any claim takes, unless its thread is stopped halfway.
    const ROUNDS: u32 = 512;
}

impl Steps for Calls<'_> {
    #[inline(always)]
    fn step(&self, step: Step) {
        Here.step(step);
    }
}

/// The steps of calls that make no queries to the kernel.
pub(super) struct Here;

impl Steps for Here {
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
