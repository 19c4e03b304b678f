//! The memory ledger: how much of which device each process of a slice holds.
//! Touches: a file of 164 KiB or more that every process of the slice maps, and locks on its bytes.
//! Law: a slot has one writer process. A total is summed, never stored. The kernel, not we, decides
//! which process is dead. A SIGKILL at any moment leaves the ledger usable.
//!
//! `protocol` has the words of the file and the rules by which processes change them, `kernel` the
//! mappings and locks. On top of them stands the interface: opening, claims, imports, notes,
//! snapshots.
//!
//! A process takes a slot of the file at its first claim on a device. It owns the slot as long as
//! the kernel holds a lock on the slot's byte for it: as long as its address space exists
//! (`kernel::map`). Querying 64 locks takes 20 µs, so each slot has a hint, which the kernel itself
//! writes when the owner's thread ends (`kernel::robust`). A hint never decides: it only says when
//! to query the kernel. The kernel is queried without a hint in three more cases: before a claim is
//! refused, when the table is full, and at most once a second in every process.
//!
//! When the table is full, the kernel gives no lock, or the file cannot be used at all, a process
//! has no slot. It is granted nothing ([`Claim::NoSlot`]). It counts the memory that the driver has
//! already given it by itself ([`Claim::Private`]) until it gets a slot.

#[cfg(not(all(test, loom)))]
mod kernel;
mod protocol;

#[cfg(not(all(test, loom)))]
mod claim;
#[cfg(not(all(test, loom)))]
mod closed;
#[cfg(not(all(test, loom)))]
mod damage;
#[cfg(not(all(test, loom)))]
mod error;
#[cfg(not(all(test, loom)))]
mod imports;
mod limits;
#[cfg(not(all(test, loom)))]
mod notes;
#[cfg(not(all(test, loom)))]
mod open;
mod reservation;
#[cfg(not(all(test, loom)))]
mod slotless;
#[cfg(not(all(test, loom)))]
mod slots;
#[cfg(not(all(test, loom)))]
mod snapshot;

pub use limits::{LIMIT_UNIT, SetLimit};
pub use protocol::layout::{DEVICES, Device, Kind, MAX_SIZE, SIZE, SLOTS, VERSION, size_for};
pub use protocol::sharing::{CLASSES, Class, ObjectSize, key_of};
pub use protocol::step::{STEP, rounded, spoken_for, stepped};
pub use reservation::{Account, Grant, Growth, Patience, Reservable, Reserve};

#[cfg(not(all(test, loom)))]
pub use crate::sys::Errno;
#[cfg(not(all(test, loom)))]
pub use claim::Claim;
#[cfg(not(all(test, loom)))]
pub use error::{LedgerError, NoSlot};
#[cfg(not(all(test, loom)))]
pub use imports::Import;
#[cfg(not(all(test, loom)))]
pub use kernel::quiet::set_quiet;
#[cfg(not(all(test, loom)))]
pub use notes::{Refusals, Turn};
#[cfg(not(all(test, loom)))]
pub use open::{Ledger, Open};
#[cfg(not(all(test, loom)))]
pub use protocol::header::{Locks, beginning};
#[cfg(not(all(test, loom)))]
pub use protocol::private::Private;
#[cfg(not(all(test, loom)))]
pub use slots::Record;
#[cfg(not(all(test, loom)))]
pub use snapshot::{Snapshot, fingerprint};

#[cfg(all(test, not(loom), not(miri)))]
mod claim_tests;
#[cfg(all(test, not(loom), not(miri)))]
mod crash_tests;
#[cfg(all(test, not(loom), not(miri)))]
mod file_tests;
#[cfg(all(test, not(loom), not(miri)))]
mod holding_tests;
#[cfg(all(test, not(loom), not(miri)))]
mod imports_tests;
#[cfg(all(test, not(loom), not(miri)))]
mod life_tests;
#[cfg(all(test, not(loom), not(miri)))]
mod notes_tests;
#[cfg(all(test, not(loom), not(miri)))]
mod processes;
#[cfg(all(test, loom))]
mod reservation_loom_tests;
#[cfg(all(test, not(loom)))]
mod reservation_tests;
#[cfg(all(test, not(loom), not(miri)))]
mod sharing_tests;
#[cfg(all(test, not(loom), not(miri)))]
mod slotless_tests;
#[cfg(all(test, not(loom), not(miri)))]
mod snapshot_tests;
