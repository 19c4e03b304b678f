//! Implements the protocol's kernel by locks on bytes of the ledger's file.
//! Touches: the file, by its path, for as long as one call of the ledger; no descriptor stays open.
//! Law: in a file with m slots, a lock on byte n means that the owner of slot n is alive. A lock on
//! byte m + n means that a process is writing to slot n, which has no owner.

use super::lock_file::LockFile;
use super::map::Hold;
use super::quiet;
use crate::ledger::protocol::kernel::{Kernel, Step, Steps};
use crate::ledger::protocol::layout::Node;
use crate::ledger::protocol::private::Private;
use crate::sys::{self, Access, Errno, Fd};
use core::cell::Cell;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// The kernel during one call of the ledger. One descriptor of the file is opened at its first use
/// and serves the whole call.
pub(crate) struct Session<'a> {
    file: &'a LockFile,
    /// The slots of the ledger.
    nodes: &'static [Node],
    private: &'static Private,
    /// The descriptor, plus one.
    fd: Cell<usize>,
    /// The place where this process has noted the descriptor, because locks are held through it.
    note: Cell<Option<&'a AtomicUsize>>,
    /// The slot whose owner's lock this descriptor holds, plus one. A descriptor never conflicts
    /// with its own locks, so the kernel would report that slot as unlocked.
    owned: Cell<usize>,
    /// Whether to query the kernel about other processes even under a seccomp filter.
    insists: bool,
    /// The error of opening the file.
    failure: Cell<Option<Errno>>,
    /// The error of locking, other than that another process holds the lock.
    lock_failure: Cell<Option<Errno>>,
    /// The locks of the slot that was taken last.
    hold: Cell<Option<Hold>>,
}

impl Drop for Session<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.fd.get() != 0 {
            self.close();
        }
    }
}

impl<'a> Session<'a> {
    pub(crate) fn of(
        file: &'a LockFile,
        nodes: &'static [Node],
        private: &'static Private,
    ) -> Session<'a> {
        Session {
            file,
            nodes,
            private,
            fd: Cell::new(0),
            note: Cell::new(None),
            owned: Cell::new(0),
            insists: false,
            failure: Cell::new(None),
            lock_failure: Cell::new(None),
            hold: Cell::new(None),
        }
    }

    /// Makes this call query the kernel about other processes even under a seccomp filter.
    pub(crate) fn insist(&mut self) {
        self.insists = true;
    }

    fn asks(&self) -> bool {
        self.insists || !quiet::is_on()
    }

    /// Returns the error of opening the file, if there was one.
    pub(crate) fn failure(&self) -> Option<Errno> {
        self.failure.get()
    }

    /// Returns the error of locking, other than that another process holds the lock.
    pub(crate) fn lock_failure(&self) -> Option<Errno> {
        self.lock_failure.get()
    }

    /// Runs `act` with the call's descriptor.
    #[cold]
    fn with<T>(&self, act: impl FnOnce(&Fd) -> Result<T, Errno>) -> Result<T, Errno> {
        let fd = match self.fd.get().checked_sub(1) {
            Some(number) => Fd::numbered(number),
            // A process with read access only can still query the locks.
            None => {
                let opened = self.file.open(Access::Write);
                let opened = opened.or_else(|why| self.file.open(Access::Read).map_err(|_| why));
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
        if let Some(note) = self.note.take() {
            note.store(0, SeqCst);
        }
        self.owned.set(0);
    }

    /// Returns whether another process has locked the byte.
    #[cold]
    fn locked(&self, byte: usize) -> Result<bool, Errno> {
        if self.owned.get().checked_sub(1) == Some(byte) || !self.asks() {
            return Ok(true);
        }
        self.with(|fd| fd.locked(byte))
    }

    /// Returns whether the lock that marks this process as alive outlasts its descriptor. On tmpfs it
    /// does; on other file systems, closing the descriptor and querying the lock shows it.
    pub(crate) fn own_lock_stays(&self, slot: usize) -> bool {
        if self.with(|fd| fd.is_on_tmpfs()) == Ok(true) {
            return true;
        }
        self.close();
        self.locked(slot) == Ok(true)
    }

    /// Releases the lock that marks this process as alive.
    pub(crate) fn disown(&self, slot: usize) {
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
pub(crate) struct SlotLock<'s, 'a> {
    session: &'s Session<'a>,
    slot: usize,
}

impl Drop for SlotLock<'_, '_> {
    fn drop(&mut self) {
        // Unlock explicitly: the descriptor stays open until the call ends, and the mapping would
        // keep the lock.
        let _ = self.session.with(|fd| {
            fd.unlock(self.session.slot_lock_byte(self.slot));
            Ok(())
        });
    }
}

impl Session<'_> {
    fn slot_lock_byte(&self, slot: usize) -> usize {
        self.nodes.len().saturating_add(slot)
    }
}

impl<'a> Kernel for Session<'a> {
    type SlotLock<'s>
        = SlotLock<'s, 'a>
    where
        Self: 's;

    fn owner_lives(&self, slot: usize) -> bool {
        self.locked(slot).unwrap_or(true)
    }

    #[cold]
    fn lock_slot(&self, slot: usize) -> Option<SlotLock<'_, 'a>> {
        if !self.asks() {
            return None;
        }
        let got = self.with(|fd| {
            if self.note.get().is_none() {
                self.note.set(self.file.open_fds.note(fd));
            }
            let locked = fd.try_lock(self.slot_lock_byte(slot));
            Ok(locked.unwrap_or_else(|why| {
                self.lock_failure.set(Some(why));
                false
            }))
        });
        (got == Ok(true)).then(|| SlotLock {
            session: self,
            slot,
        })
    }

    fn own(&self, lock: &SlotLock<'_, 'a>, slot: usize) -> bool {
        let held = lock.session.with(|fd| {
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
        if let Some(node) = self.nodes.get(slot) {
            node.pid.store(sys::getpid(), Relaxed);
        }
        self.hold.set(Some(hold));
        true
    }

    fn verification_is_due(&self) -> bool {
        let private = self.private;
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

impl Steps for Session<'_> {
    #[inline(always)]
    fn step(&self, step: Step) {
        CrashPoints.step(step);
    }
}

/// The steps of calls that make no queries to the kernel.
pub(crate) struct CrashPoints;

impl Steps for CrashPoints {
    #[inline(always)]
    fn step(&self, step: Step) {
        #[cfg(all(test, not(miri)))]
        crate::ledger::crash_tests::at(step);
        let _ = step;
    }
}

impl Session<'_> {
    #[cold]
    fn second_has_passed(&self) -> bool {
        let now = sys::seconds();
        let due = &self.private.verify_at;
        let passed = now >= due.load(Relaxed);
        if passed {
            due.store(now.saturating_add(1), Relaxed);
        }
        passed
    }
}
