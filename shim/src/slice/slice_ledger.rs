//! The slice's ledger, or a closed one in its place while it cannot be used.
//! Touches: the ledger's file, once, and again while it cannot be used.
//! Law: an enforced limit is never given up. A closed ledger grants nothing, never fails a free,
//! and is replaced as soon as the slice's own can be used again.

use core::ffi::CStr;
use core::fmt::Write;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use core::time::Duration;

use gpuslice_config::ledger::{self, Ledger, LedgerError, Open};
use gpuslice_config::slice::{self, Slice};
use gpuslice_config::words::paths;

use crate::log::Piece::{Raw, Str};
use crate::log::counters;
use crate::log::{self, Level};
use crate::state::page;
use crate::sys;

/// The ledger in which the slice's processes record what they hold.
pub(crate) struct SliceLedger {
    /// The current ledger. Null: nothing is counted.
    now: AtomicPtr<Ledger>,
    /// The ledger opened first, or a closed one.
    first: Option<Ledger>,
    file: Option<Named>,
    /// The time from which a closed ledger may be opened again.
    again_at: AtomicU64,
}

/// The paths by which a ledger is found.
#[derive(Clone, Copy)]
struct Named {
    path: &'static CStr,
    descriptor: &'static CStr,
    /// The ledger's id in the slice file.
    id: Option<u64>,
}

/// The pause before a damaged ledger is opened again.
const PAUSE: Duration = Duration::from_secs(1);

impl SliceLedger {
    /// Opens the slice's ledger. The hook always creates one for a slice that it mounts. `in_root`: it
    /// is mounted at the usual path, so its ledger has a usual path too.
    pub(crate) fn open(slice: &'static Slice, in_root: bool) -> SliceLedger {
        let mut opened = SliceLedger {
            now: AtomicPtr::new(core::ptr::null_mut()),
            first: None,
            file: None,
            again_at: AtomicU64::new(0),
        };
        let path = match slice.ledger.as_ref().and_then(slice::Text::as_c_str) {
            Some(path) if !path.is_empty() => path,
            _ if in_root => paths::MOUNTED_LEDGER,
            _ => {
                if slice.enforce && slice.limits_something() {
                    say_unnamed();
                }
                return opened;
            }
        };
        let descriptor = slice.ledger_descriptor.as_ref();
        let file = Named {
            path,
            descriptor: descriptor.and_then(slice::Text::as_c_str).unwrap_or(c""),
            id: slice.ledger_id,
        };
        let enforced = slice.enforce && slice.limits_something();
        match file.open() {
            Ok(ledger) => opened.first = Some(ledger),
            Err(why) if enforced => {
                opened.first = Some(Ledger::closed(page::page().map(|page| &page.ledger)));
                opened.put_off(file, why);
            }
            Err(why) => file.say(why, "nothing is counted"),
        }
        opened.file = Some(file);
        opened
    }

    /// The ledger of a slice that cannot be read.
    #[cold]
    pub(crate) fn closed() -> SliceLedger {
        SliceLedger {
            now: AtomicPtr::new(core::ptr::null_mut()),
            first: Some(Ledger::closed(page::page().map(|page| &page.ledger))),
            file: None,
            again_at: AtomicU64::new(0),
        }
    }

    /// Publishes the ledger to [`SliceLedger::get`]. `self` must be at its final address.
    pub(crate) fn publish(&'static self) {
        if let Some(first) = &self.first {
            self.now
                .store(core::ptr::from_ref(first).cast_mut(), Ordering::Release);
        }
    }

    /// The current ledger. None: nothing is counted.
    #[inline(always)]
    pub(crate) fn get(&self) -> Option<&'static Ledger> {
        // SAFETY: only ledgers that are never freed or changed are stored there.
        unsafe { self.now.load(Ordering::Acquire).as_ref() }
    }

    /// Tries to open an unusable ledger again. If that succeeds, later calls of `get` return it.
    #[cold]
    pub(crate) fn look_again(&self) {
        let (true, Some(file)) = (self.get().is_some_and(Ledger::is_closed), self.file) else {
            return;
        };
        let now = sys::clock();
        if now != 0 && now < self.again_at.load(Ordering::Relaxed) {
            return;
        }
        match file.open() {
            Ok(ledger) => self.replace_by(file, ledger),
            Err(why) => self.put_off(file, why),
        }
    }

    #[cold]
    fn put_off(&self, file: Named, why: LedgerError) {
        file.say(
            why,
            "GPU memory is refused until the ledger can be used again",
        );
        if !why.is_passing() {
            let at = sys::clock().saturating_add(const { sys::nanoseconds(PAUSE) });
            self.again_at.store(at, Ordering::Relaxed);
        }
    }

    fn replace_by(&self, file: Named, ledger: Ledger) {
        let Ok(place) = sys::map(size_of::<Ledger>()) else {
            return;
        };
        let place = place.cast::<Ledger>();
        // SAFETY: fresh pages of that size; no other thread knows them, and they are never
        // unmapped.
        unsafe { place.write(ledger) };
        // If another thread did this too, either ledger will do.
        self.now.store(place, Ordering::Release);
        let line = [
            Str("the ledger "),
            Raw(file.path.to_bytes()),
            Str(" can be used again"),
        ];
        log::say(Level::Info, &line, None);
    }
}

impl Named {
    fn open(self) -> Result<Ledger, LedgerError> {
        // The page is zeroed in a forked child.
        let state = &page::page().ok_or(LedgerError::Memory)?.ledger;
        let open = self.id.map_or(Open::Existing, Open::Known);
        Ledger::open_with(self.path, self.descriptor, open, state)
    }

    #[cold]
    fn say(self, why: LedgerError, follows: &'static str) {
        let mut text = log::Text::<256>::new();
        let _ = write!(text, "{why}");
        let line = [
            Str("ledger "),
            Raw(self.path.to_bytes()),
            Str(": "),
            Raw(text.as_bytes()),
            Str("; "),
            Str(follows),
        ];
        counters::LEDGER.warn(&line);
    }
}

/// Logs that the limit of a slice file without a ledger is only shown.
#[cold]
fn say_unnamed() {
    counters::LEDGER.warn_text(
        "the slice file names no ledger: its limit is shown, but nothing is counted or refused (start the program with gpuslice run --config FILE)",
    );
}

/// Logs that the ledger was overwritten while it was in use.
#[cold]
pub(crate) fn say_damaged(enforced: bool) {
    let follows = match enforced {
        true => {
            "GPU memory is refused until all programs of the slice have ended and the slice is started again"
        }
        false => "nothing is counted any more",
    };
    let line = [
        Str("the ledger was overwritten while it was in use; "),
        Str(follows),
    ];
    counters::LEDGER.warn(&line);
}

/// Logs why a claim found no slot.
#[cold]
pub(crate) fn say_no_slot(why: ledger::NoSlot, follows: &'static str) {
    let mut text = log::Text::<256>::new();
    let _ = write!(text, "{why}");
    let line = [
        Str("the ledger has no place for this process: "),
        Raw(text.as_bytes()),
        Str("; "),
        Str(follows),
    ];
    counters::UNCOUNTED.warn(&line);
}
