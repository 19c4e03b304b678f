//! Shared virtual memory that is about to be freed: finds its records before the driver is called, and
//! releases it afterwards. Another thread may have got an address again before the driver returns.
//! Touches: the ledger; this process's own table.

use core::ffi::c_void;

use super::{freed, record, records};
use crate::account;
use crate::state::handles::{Charge, FoundEntry, Space};

/// The records of objects that are about to be freed.
pub(crate) struct Leaving {
    found: [Option<FoundEntry>; Leaving::MOST],
    count: usize,
    is_full: bool,
}

/// The context of a record whose object is about to be freed. All others of OpenCL have context 0.
const MARK: u8 = 1;

impl Leaving {
    const MOST: usize = 8;

    /// No records.
    #[inline]
    pub(crate) fn none() -> Leaving {
        Leaving {
            found: [None; Leaving::MOST],
            count: 0,
            is_full: false,
        }
    }

    /// Adds the records of an object. If there is no room for all of them, they are marked instead.
    #[inline(never)]
    pub(crate) fn add(&mut self, object: *mut c_void) {
        let before = self.count;
        for found in records(object) {
            let Some(place) = self.found.get_mut(self.count) else {
                self.count = before;
                self.is_full = true;
                records(object).for_each(|found| mark(found, MARK));
                return;
            };
            *place = Some(found);
            self.count = self.count.saturating_add(1);
        }
    }

    /// Releases the memory of the records that were added. False: others were marked, and the caller
    /// releases those of each object.
    #[inline(never)]
    pub(crate) fn freed(&self) -> bool {
        for found in self.found.iter().take(self.count).flatten() {
            freed(*found);
        }
        !self.is_full
    }

    /// Whether records were marked.
    pub(crate) fn has_marked(&self) -> bool {
        self.is_full
    }
}

fn mark(found: FoundEntry, context: u8) {
    found.replace(Charge {
        context,
        ..found.charge()
    });
}

/// The marked records of an object. A new object at its address has removed those that it needs the
/// places of, so any of them may be missing.
fn marked(object: *mut c_void) -> impl Iterator<Item = FoundEntry> {
    (0..64)
        .filter_map(move |device| account::find(Space::OpenCl, record(object, device)))
        .filter(|found| found.charge().context == MARK)
}

/// Releases the memory of an object whose records were marked.
#[inline(never)]
pub(crate) fn released(object: *mut c_void) {
    marked(object).for_each(freed);
}

/// Removes the marks of an object that the driver has not freed.
#[cold]
#[inline(never)]
pub(crate) fn kept(object: *mut c_void) {
    marked(object).for_each(|found| mark(found, 0));
}
