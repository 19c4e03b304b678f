//! The copies of libraries that call sites of exported symbols use.
//! Touches: atomics.
//! Law: an entry belongs to code that is still loaded. Each `dlclose` empties the table, because it may
//! have unloaded that code, and other code may then be loaded at the same addresses. It does so when
//! libc's function has returned: while destructors run, libc holds the lock of its loader, for which a
//! thread whose call site is no longer known would wait.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::real::copies::CopyId;
use crate::real::functions::Row;

/// The copies selected for call sites: address << 16 | row << 8 | copy + 1. An entry is one word,
/// so it is read and replaced as a whole. The exports of the runtime read it, too: see `export.rs`.
pub(crate) static CALLERS: [AtomicU64; HOMES] = [const { AtomicU64::new(0) }; HOMES];
pub(crate) const HOMES: usize = 512;

/// Whether any call site has an entry: most processes never read the table.
#[unsafe(link_section = ".data")]
static ANY_CALLERS: AtomicBool = AtomicBool::new(false);

fn key(row: Row, caller: usize) -> u64 {
    (caller as u64) << 16 | (row as u64) << 8
}

/// The two slots that can hold the entry of a call site.
fn homes(row: Row, caller: usize) -> impl Iterator<Item = &'static AtomicU64> {
    let first = (caller >> 2).wrapping_add(row as usize) % HOMES;
    [first, first ^ 1]
        .into_iter()
        .filter_map(|home| CALLERS.get(home))
}

/// The copy that was selected for this call site.
pub(crate) fn find(row: Row, caller: usize) -> Option<CopyId> {
    if !ANY_CALLERS.load(Ordering::Relaxed) {
        return None;
    }
    for home in homes(row, caller) {
        let seen = home.load(Ordering::Relaxed);
        if seen & !0xff == key(row, caller) {
            return u8::try_from((seen & 0xff).wrapping_sub(1)).ok().map(CopyId);
        }
    }
    None
}

/// Remembers the copy for a call site.
pub(crate) fn remember(row: Row, caller: usize, copy: CopyId) {
    if caller >> 48 != 0 {
        return;
    }
    let unused = homes(row, caller).find(|home| home.load(Ordering::Relaxed) == 0);
    let Some(home) = unused.or_else(|| homes(row, caller).next()) else {
        return;
    };
    let copy = u64::from(copy.0).saturating_add(1);
    home.store(key(row, caller) | copy, Ordering::Relaxed);
    ANY_CALLERS.store(true, Ordering::Relaxed);
}

/// Forgets all call sites, because a library was closed. Of two threads that close libraries, each
/// empties the table itself before its `dlclose` returns.
pub(crate) fn forget_all() {
    for home in &CALLERS {
        home.store(0, Ordering::Relaxed);
    }
}
