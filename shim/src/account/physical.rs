//! The record of physical memory: its size, its references, and whether another process shares it.
//! Touches: this process's own table; the ledger, when the last reference goes.

use core::sync::atomic::Ordering;

use gpuslice_config::ledger::{Class, Device, Kind, Ledger};
use gpuslice_config::words::units::Bytes;

use crate::account::{self, sharing};
use crate::state::allocations::STEP;
use crate::state::handles::{self, FoundEntry, Space};
use crate::state::page::ProcessState;

/// The origin of physical memory.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Whose {
    /// Memory of this process that it has not exported.
    Own,
    /// Memory of this process that it has exported.
    Exported,
    /// Memory of another process that this process has imported.
    Imported,
    /// Imported memory whose size is an average until its first mapping.
    Averaged,
}

/// The record of physical memory: 16 bits of references, 23 of steps.
#[derive(Clone, Copy)]
pub(crate) struct Physical {
    pub(crate) steps: u64,
    pub(crate) references: u64,
    pub(crate) device: Device,
    pub(crate) kind: Kind,
    pub(crate) whose: Whose,
    pub(crate) class: Class,
}

/// The most references that are counted. Memory that has had so many is never released: how many
/// more it has is not known.
const REFERENCES: u64 = (1 << 16) - 1;
const STEPS_AT: u32 = 16;
const STEPS: u64 = (1 << 23) - 1;
const DEVICE_AT: u32 = 39;
const KIND_AT: u32 = 45;
const WHOSE_AT: u32 = 48;
const CLASS_AT: u32 = 50;

impl Physical {
    pub(crate) fn pack(self) -> u64 {
        self.references & REFERENCES
            | (self.steps & STEPS) << STEPS_AT
            | u64::from(self.device.number()) << DEVICE_AT
            | (self.kind as u64) << KIND_AT
            | (self.whose as u64) << WHOSE_AT
            | u64::from(self.class.number()) << CLASS_AT
    }

    pub(crate) fn unpack(payload: u64) -> Physical {
        let [device, kind, whose, class] =
            [DEVICE_AT, KIND_AT, WHOSE_AT, CLASS_AT].map(|at| (payload >> at).to_le_bytes()[0]);
        let kind = Kind::ALL.get(usize::from(kind & 7)).copied();
        Physical {
            steps: payload >> STEPS_AT & STEPS,
            references: payload & REFERENCES,
            device: Device::numbered(device & 63),
            kind: kind.unwrap_or(Kind::Vmm),
            whose: match whose & 3 {
                0 => Whose::Own,
                1 => Whose::Exported,
                2 => Whose::Imported,
                _ => Whose::Averaged,
            },
            class: Class::numbered(class),
        }
    }

    pub(crate) fn bytes(self) -> Bytes {
        Bytes::new(self.steps.wrapping_mul(STEP))
    }

    /// The record of imported memory that is mapped up to `end`, in steps.
    pub(crate) fn mapped(self, end: u64) -> Physical {
        match self.whose {
            // Any mapping is a better measure than an average.
            Whose::Averaged => Physical {
                steps: end,
                whose: Whose::Imported,
                ..self
            },
            // A mapping of a part says nothing about the rest.
            _ => Physical {
                steps: end.max(self.steps),
                ..self
            },
        }
    }

    pub(crate) fn release(self, ledger: &Ledger) {
        let Physical { device, class, .. } = self;
        match self.whose {
            Whose::Imported | Whose::Averaged => {
                return sharing::unimport(device, class, self.bytes());
            }
            // The export ends before the memory itself is released: see `sharing`.
            Whose::Exported => ledger.unexport(device, class, self.bytes()),
            Whose::Own => {}
        }
        account::give_back(ledger, device, self.bytes(), self.kind);
    }
}

/// Adds a reference to physical memory that has a record.
pub(crate) fn refer(state: &'static ProcessState, handle: u64) {
    while let Some(found) = handles::find(state, Space::Physical, handle) {
        let physical = Physical::unpack(found.payload());
        let more = Physical {
            references: physical.references.saturating_add(1).min(REFERENCES),
            ..physical
        };
        if found.replace_payload(more.pack()) {
            return;
        }
    }
}

/// Removes a reference; the last one releases the memory.
pub(crate) fn drop_reference(mut found: FoundEntry) {
    loop {
        let physical = Physical::unpack(found.payload());
        if physical.references == REFERENCES {
            return;
        }
        if physical.references > 1 {
            let fewer = Physical {
                references: physical.references.wrapping_sub(1),
                ..physical
            };
            if found.replace_payload(fewer.pack()) {
                return;
            }
        } else if found.take() {
            if let Some(ledger) = account::ledger() {
                physical.release(ledger);
            }
            return;
        }
        let Some(now) = found.again() else {
            return;
        };
        found = now;
    }
}

/// The number of the entry for a mapping of physical memory into an array. The number and the handle
/// together give the array.
fn tile(array: u64, handle: u64) -> u64 {
    const NUMBER: u64 = (1 << 59) - 1;
    (array ^ handle.rotate_left(24)) & NUMBER
}

/// Records that physical memory was mapped into a sparse array. It counts as mapped until the
/// array is destroyed, because only the driver knows when the last part is unmapped.
pub(crate) fn mapped_into_array(state: &'static ProcessState, array: u64, handle: u64) {
    let number = tile(array, handle);
    let mut known = handles::all(state, Space::Tile, number);
    if known.any(|found| found.payload() == handle)
        || handles::find(state, Space::Physical, handle).is_none()
    {
        return;
    }
    state.tiles.store(1, Ordering::Release);
    handles::put_payload(state, Space::Tile, number, handle);
    // Without a record the mapping counts for good: its end cannot be told.
    refer(state, handle);
}

/// Removes the references of an array to physical memory.
#[inline(never)]
pub(crate) fn array_destroyed(state: &'static ProcessState, array: u64) {
    each_tile(state, |number, found| {
        let handle = found.payload();
        if number == tile(array, handle) && found.take() {
            let physical = handles::find(state, Space::Physical, handle);
            physical.into_iter().for_each(drop_reference);
        }
    });
}

/// Forgets the arrays that have mapped a handle, because the driver has reused the handle.
pub(crate) fn forget_tiles(state: &'static ProcessState, handle: u64) {
    each_tile(state, |_, found| {
        if found.payload() == handle {
            found.take();
        }
    });
}

fn each_tile(state: &'static ProcessState, mut visit: impl FnMut(u64, FoundEntry)) {
    if state.tiles.load(Ordering::Acquire) == 0 {
        return;
    }
    handles::each(state, |space, number, found| {
        if space == Space::Tile {
            visit(number, found);
        }
    });
}
