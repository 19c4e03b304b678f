//! The slots of a ledger: this process takes one for each device, and all can be listed.
//! Touches: the mapped file; the kernel through `kernel`.

use super::kernel::locks::Session;
use super::kernel::{quiet, robust};
use super::protocol::layout::{Device, KINDS, Kind, Node};
use super::protocol::private::{Mine, NO_THREAD};
use super::protocol::slots;
use super::{Ledger, NoSlot, slotless};
use crate::sys::{self, ESRCH, Errno};
use crate::words::device::DeviceUuid;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

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
    /// The slots that are taken, for display. Slots of dead processes are cleared on the way.
    pub fn slots(&self) -> impl Iterator<Item = Record> + '_ {
        let table = self.table;
        let session = self.session();
        let rows = table.nodes.iter().zip(table.used).zip(table.kinds);
        rows.enumerate()
            .filter_map(move |(slot, ((node, used), kinds))| {
                let head = node.head();
                if !head.taken() || !slots::counts(table, &session, slot) {
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

    /// Whether this process's memory on a device is counted, or would be. False once the process
    /// was refused for lack of a slot. It then looks for a slot again, at most once a second.
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
            self.lock_file.close_inherited();
        }
    }

    /// Takes a slot for a device.
    #[cold]
    pub(super) fn enter(
        &self,
        session: &Session<'_>,
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
        let Some(slot) = slots::take(self.table, session, here) else {
            let failure = session.failure();
            if !failure.is_some_and(Errno::is_passing) {
                until.store(now.saturating_add(1), Relaxed);
            }
            let unlockable = session.lock_failure().map(NoSlot::Unlockable);
            let unreachable = failure.map(NoSlot::Unreachable);
            return Err(unreachable.or(unlockable).unwrap_or(full));
        };
        let give_up = || {
            slots::give_up(self.table, slot);
            session.disown(slot);
        };
        if !session.own_lock_stays(slot) {
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
    pub(super) fn arm(&self, mine: &Mine, slot: usize) {
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
        if carrier == NO_THREAD || (carrier != 0 && sys::probe_thread(carrier) != Err(ESRCH)) {
            return;
        }
        let mine_to_arm = mine
            .thread
            .compare_exchange(carrier, NO_THREAD, SeqCst, SeqCst);
        if mine_to_arm.is_ok()
            && let Some(tid) = robust::arm(node, &self.session())
        {
            mine.thread.store(tid, SeqCst);
        }
    }
}
