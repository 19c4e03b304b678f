//! The copies of libraries that call sites of exported symbols use.
//! Touches: atomics.
//! Law: an entry belongs to code that is still loaded. `dlclose` empties the table, because it may
//! unload that code, and other code may then lie at the same addresses.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::real::copies::CopyId;
use crate::real::functions::Row;

/// The copies selected for call sites: address << 16 | row << 8 | copy + 1. An entry is one word,
/// so it is read and replaced as a whole. The exports of the runtime read it, too: see `export.rs`.
pub(crate) static CALLERS: [AtomicU64; HOMES] = [const { AtomicU64::new(0) }; HOMES];
pub(crate) const HOMES: usize = 512;

/// Whether any call site has an entry: most processes never read the table.
#[unsafe(link_section = ".data")]
static ANY_CALLERS: AtomicBool = AtomicBool::new(false);

/// The calls of dlclose that have not returned.
static CLOSING: AtomicUsize = AtomicUsize::new(0);

fn key(row: Row, caller: usize) -> u64 {
    (caller as u64) << 16 | (row as u64) << 8
}

/// The two places in which the entry for a call site may lie.
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
    // While a library is being closed, its own destructors may be the callers.
    if caller >> 48 != 0 || CLOSING.load(Ordering::SeqCst) != 0 {
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

/// Forgets all call sites before a library is closed. A thread that adds one meanwhile runs code
/// that stays loaded, because a program does not unload code that it runs.
pub(crate) fn begin_close() {
    CLOSING.fetch_add(1, Ordering::SeqCst);
    if ANY_CALLERS.swap(false, Ordering::Relaxed) {
        for home in &CALLERS {
            home.store(0, Ordering::Relaxed);
        }
    }
}

/// The library is closed. If a destructor never returns, no call site is remembered from then on,
/// and each call looks its library up.
pub(crate) fn end_close() {
    CLOSING.fetch_sub(1, Ordering::SeqCst);
}
