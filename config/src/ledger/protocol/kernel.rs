//! The traits by which the claim protocol uses the kernel, and the steps at which a test may kill a
//! process.
//! Touches: nothing; `kernel` implements the traits by locks, the tests by plain memory.

/// An observer of the protocol's steps.
pub(crate) trait Steps {
    /// A place where a test may kill the process.
    fn step(&self, step: Step);
}

/// The protocol's queries to the kernel.
pub(crate) trait Kernel: Steps {
    /// The right to write to a slot without an owner. Ends when it is dropped, or its holder dies.
    type SlotLock<'s>
    where
        Self: 's;

    /// Whether the slot's owner is alive, by a lock that the kernel holds for it. True when the
    /// kernel cannot be queried, because a possibly live owner must be counted.
    fn owner_lives(&self, slot: usize) -> bool;

    /// Tries to get the right to write to a slot without an owner; never waits.
    fn lock_slot(&self, slot: usize) -> Option<Self::SlotLock<'_>>;

    /// Makes this process the owner of a slot whose lock it holds, until it dies.
    fn own(&self, lock: &Self::SlotLock<'_>, slot: usize) -> bool;

    /// Whether to query the kernel about every slot now, regardless of hints.
    fn verification_is_due(&self) -> bool;

    /// Lets other threads run, for longer with each round.
    fn pause(&self, round: u32);

    /// How often a claim sums again while other claims are undecided.
    const ROUNDS: u32;
}

/// The points of the protocol at which a kill makes a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The slot is locked.
    SlotLocked = 1,
    /// The used bytes of the dead owner are cleared, by kind and in all.
    UsedWiped,
    /// Its pending claims are cleared.
    AmountsWiped,
    /// Its head is cleared: the slot is free.
    HeadWiped,
    /// The kernel knows the slot as ours; its head is still free.
    Owned,
    /// The slot's head says that it is taken.
    Taken,
    /// The robust list refers to the slot as pending; the slot names no thread yet.
    HintPending,
    /// The slot names our thread.
    HintNamed,
    /// The slot is in the robust list.
    HintLinked,
    /// The claim is published.
    Published,
    /// The claim is granted.
    Granted,
    /// The granted claim has a kind.
    Sorted,
    /// The granted claim is no longer pending.
    Settled,
    /// The claim is withdrawn.
    Withdrawn,
    /// Released bytes are no longer used.
    Released,
}
