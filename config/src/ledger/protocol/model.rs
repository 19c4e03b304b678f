//! A ledger in plain memory whose kernel is a few words: for loom, miri and random programs.

use super::claims::Own;
use super::holding::Holding;
use super::kernel::{Kernel, Step, Steps};
use super::layout::{Device, Head, KINDS, Node, OWNER_DIED, Table};
use super::sync::{AtomicU16, AtomicU32, AtomicU64};
use core::cell::Cell;
use core::sync::atomic::Ordering::SeqCst;
use std::vec::Vec;

/// The device of every model.
pub(crate) const GPU: Device = Device(3);

/// The model's file and kernel.
pub(crate) struct World {
    extent: AtomicU32,
    used: Vec<AtomicU64>,
    pending: Vec<AtomicU64>,
    nodes: Vec<Node>,
    kinds: Vec<[AtomicU64; KINDS]>,
    /// The locks; 0 means unlocked.
    owners: Vec<AtomicU32>,
    slot_locks: Vec<AtomicU32>,
    pub(crate) gates: Vec<AtomicU16>,
    pub(crate) holdings: Vec<Holding>,
    bell: Bell,
    /// Always 0: no process of the model exports or imports.
    sharers: AtomicU32,
}

/// Lets a claim sleep until another thread makes progress. Without it, loom would let two waiting
/// threads yield to each other for ever and not report the deadlock.
#[derive(Default)]
pub(crate) struct Bell {
    /// Not loom's atomic: counting steps must not order operations that the protocol leaves
    /// unordered.
    rung: std::sync::atomic::AtomicUsize,
    #[cfg(loom)]
    waiting: std::sync::atomic::AtomicUsize,
    #[cfg(loom)]
    lock: loom::sync::Mutex<()>,
    #[cfg(loom)]
    bell: loom::sync::Condvar,
}

impl Bell {
    fn ring(&self) {
        self.rung.fetch_add(1, SeqCst);
        #[cfg(loom)]
        if self.waiting.load(SeqCst) > 0 {
            let _lock = self.lock.lock().unwrap();
            self.bell.notify_all();
        }
    }

    /// Waits for the bell, if it has not rung since `heard`.
    fn wait(&self, heard: &Cell<usize>) {
        #[cfg(not(loom))]
        std::thread::yield_now();
        #[cfg(loom)]
        if self.rung.load(SeqCst) == heard.get() {
            self.waiting.fetch_add(1, SeqCst);
            let mut lock = self.lock.lock().unwrap();
            while self.rung.load(SeqCst) == heard.get() {
                lock = self.bell.wait(lock).unwrap();
            }
            self.waiting.fetch_sub(1, SeqCst);
        } else {
            // Earlier reads may be stale; reads after this are not.
            loom::thread::yield_now();
        }
        heard.set(self.rung.load(SeqCst));
    }
}

fn words<T>(count: usize, word: impl Fn() -> T) -> Vec<T> {
    (0..count).map(|_| word()).collect()
}

impl World {
    pub(crate) fn new(slots: usize) -> World {
        let word32 = || AtomicU32::new(0);
        let word64 = || AtomicU64::new(0);
        World {
            extent: word32(),
            used: words(slots, word64),
            pending: words(slots, word64),
            nodes: words(slots, || Node {
                head: word64(),
                pid: word32(),
                spare: [(); 3].map(|()| word32()),
                prev: word64(),
                next: word64(),
            }),
            kinds: words(slots, || [(); KINDS].map(|()| word64())),
            owners: words(slots, word32),
            slot_locks: words(slots, word32),
            gates: words(slots, || AtomicU16::new(0)),
            holdings: words(slots, Holding::default),
            bell: Bell::default(),
            sharers: word32(),
        }
    }

    /// A model in which every slot is taken, and its owner alive.
    pub(crate) fn with_processes(count: usize) -> World {
        World::with_processes_of(count, count)
    }

    /// A model in which that many of the slots are taken.
    pub(crate) fn with_processes_of(count: usize, slots: usize) -> World {
        let world = World::new(slots);
        world.extent.store(u32::try_from(count).unwrap(), SeqCst);
        for (node, owner) in world.nodes.iter().zip(&world.owners).take(count) {
            node.set_head(Head(0).take(GPU));
            node.set_word(7);
            owner.store(1, SeqCst);
        }
        world
    }

    pub(crate) fn table(&self) -> Table<'_> {
        Table {
            extent: &self.extent,
            used: &self.used,
            pending: &self.pending,
            nodes: &self.nodes,
            kinds: &self.kinds,
            sharers: &self.sharers,
            sharing: &[],
        }
    }

    pub(crate) fn own(&self, slot: usize) -> Own<'_> {
        let gate = &self.gates[slot];
        Own {
            slot,
            gate,
            holding: &self.holdings[slot],
            verify: false,
        }
    }

    /// Ends a process as the kernel does: its own memory is freed first, then the hint is written,
    /// then the lock is dropped.
    pub(crate) fn die(&self, slot: usize) {
        self.gates[slot].store(0, SeqCst);
        self.holdings[slot].forget();
        self.nodes[slot].set_word(OWNER_DIED);
        self.owners[slot].store(0, SeqCst);
        self.bell.ring();
    }
}

/// The kernel of one process of the model, which may kill it.
pub(crate) struct Process<'a> {
    world: &'a World,
    /// The step at which it dies.
    pub(crate) fate: Option<Step>,
    /// The count of the bell when this process last checked it.
    heard: Cell<usize>,
}

/// The panic payload that unwinds a killed process.
pub(crate) struct Killed;

impl<'a> Process<'a> {
    pub(crate) fn of(world: &'a World) -> Process<'a> {
        Process {
            world,
            fate: None,
            heard: Cell::new(0),
        }
    }

    pub(crate) fn doomed(world: &'a World, fate: Step) -> Process<'a> {
        Process {
            fate: Some(fate),
            ..Process::of(world)
        }
    }
}

/// Unlocks the slot, as the kernel does even for a killed process.
pub(crate) struct SlotLock<'a>(&'a AtomicU32);

impl Drop for SlotLock<'_> {
    fn drop(&mut self) {
        self.0.store(0, SeqCst);
    }
}

impl<'a> Kernel for Process<'a> {
    type SlotLock<'s>
        = SlotLock<'a>
    where
        Self: 's;

    fn owner_lives(&self, slot: usize) -> bool {
        self.world.owners[slot].load(SeqCst) != 0
    }

    fn lock_slot(&self, slot: usize) -> Option<SlotLock<'a>> {
        let lock = &self.world.slot_locks[slot];
        let got = lock.compare_exchange(0, 1, SeqCst, SeqCst);
        // Not constructed on failure: dropping it would release another process's lock.
        got.is_ok().then(|| SlotLock(lock))
    }

    fn own(&self, _: &SlotLock<'a>, slot: usize) -> bool {
        let owner = &self.world.owners[slot];
        owner.compare_exchange(0, 1, SeqCst, SeqCst).is_ok()
    }

    fn verification_is_due(&self) -> bool {
        false
    }

    fn pause(&self, _: u32) {
        self.world.bell.wait(&self.heard);
    }

    const ROUNDS: u32 = 1 << 20;
}

impl Steps for Process<'_> {
    fn step(&self, step: Step) {
        self.world.bell.ring();
        if self.fate == Some(step) {
            std::panic::resume_unwind(std::boxed::Box::new(Killed));
        }
    }
}
