//! The slice's ledger, or the closed one that stands for it while it cannot be used.
//! Touches: the ledger's file, once, and again while it cannot be used.
//! Law: a limit that is enforced is never given up. A closed ledger grants nothing, never fails a
//! free, and is replaced as soon as the slice's own can be used again.

use core::ffi::CStr;
use core::fmt::Write;
use core::sync::atomic::{AtomicU64, Ordering};

use gpuslice_config::ledger::{self, Ledger, LedgerError, Open};
use gpuslice_config::slice::{self, Slice};
use gpuslice_config::source;
use once_cell::race::OnceRef;

use crate::log::{self, Level, Piece::Raw, Piece::Str};
use crate::{count, private, sys};

/// Where the slice's processes say what they hold.
pub(crate) enum SliceLedger {
    /// Nothing is counted: the slice names no ledger, or limits nothing and cannot use it.
    Absent,
    /// It can be used.
    Usable(Ledger),
    /// It could not be used when it was first opened.
    Closed(Closed),
}

/// A ledger that could not be used.
pub(crate) struct Closed {
    closed: Ledger,
    file: Named,
    /// The slice's own, once it can be used.
    usable: OnceRef<'static, Ledger>,
    /// The moment from which it is opened again.
    again_at: AtomicU64,
}

/// The paths by which a ledger is found.
#[derive(Clone, Copy)]
struct Named {
    path: &'static CStr,
    descriptor: &'static CStr,
}

/// How long a ledger that is damaged is left alone, in nanoseconds.
const PAUSE: u64 = 1_000_000_000;

impl SliceLedger {
    /// Opens the slice's ledger. The hook always makes one for a slice that it mounts.
    pub(crate) fn of(slice: &'static Slice, mounted: bool) -> SliceLedger {
        let path = match slice.ledger.as_ref().and_then(slice::Text::as_c_str) {
            Some(path) if !path.is_empty() => path,
            _ if mounted => source::MOUNTED_LEDGER,
            _ => return SliceLedger::Absent,
        };
        let descriptor = slice.ledger_descriptor.as_ref();
        let file = Named {
            path,
            descriptor: descriptor.and_then(slice::Text::as_c_str).unwrap_or(c""),
        };
        let why = match file.open() {
            Ok(ledger) => return SliceLedger::Usable(ledger),
            Err(why) => why,
        };
        if !(slice.enforce && slice.limits_something()) {
            file.say(why, "nothing is counted");
            return SliceLedger::Absent;
        }
        let closed = Closed {
            closed: Ledger::closed(private::page().map(|page| &page.ledger)),
            file,
            usable: OnceRef::new(),
            again_at: AtomicU64::new(0),
        };
        closed.put_off(why);
        SliceLedger::Closed(closed)
    }

    /// The ledger as it is now. None: nothing is counted.
    #[inline(always)]
    pub(crate) fn get(&self) -> Option<&Ledger> {
        match self {
            SliceLedger::Usable(ledger) => Some(ledger),
            SliceLedger::Absent => None,
            SliceLedger::Closed(closed) => Some(closed.get()),
        }
    }
}

impl Named {
    fn open(self) -> Result<Ledger, LedgerError> {
        // The page is wiped in a forked child.
        let private = &private::page().ok_or(LedgerError::Memory)?.ledger;
        Ledger::open_with(self.path, self.descriptor, Open::Existing, private)
    }

    #[cold]
    fn say(self, why: LedgerError, follows: &'static str) {
        let mut text = log::Text::<256>::new();
        let _ = write!(text, "{why}");
        let line = [
            Raw(self.path.to_bytes()),
            Str(": "),
            Raw(text.as_bytes()),
            Str("; "),
            Str(follows),
        ];
        count::LEDGER.say("ledger", &line);
    }
}

impl Closed {
    #[cold]
    #[inline(never)]
    fn get(&self) -> &Ledger {
        if let Some(usable) = self.usable.get() {
            return usable;
        }
        let now = sys::clock();
        if now != 0 && now < self.again_at.load(Ordering::Relaxed) {
            return &self.closed;
        }
        match self.file.open() {
            Ok(ledger) => self.replace_by(ledger),
            Err(why) => {
                self.put_off(why);
                &self.closed
            }
        }
    }

    fn put_off(&self, why: LedgerError) {
        self.file
            .say(why, "no GPU memory is given until it can be used again");
        if !why.is_passing() {
            let at = sys::clock().saturating_add(PAUSE);
            self.again_at.store(at, Ordering::Relaxed);
        }
    }

    fn replace_by(&self, ledger: Ledger) -> &Ledger {
        let Ok(place) = sys::map(size_of::<Ledger>()) else {
            return &self.closed;
        };
        // SAFETY: fresh pages of that size, which nobody else knows and nobody unmaps.
        let usable = unsafe {
            let place = place.cast::<Ledger>();
            place.write(ledger);
            &*place
        };
        // Another thread may have been faster: what it has opened is as good.
        if self.usable.set(usable).is_ok() {
            let line = [Raw(self.file.path.to_bytes()), Str(" can be used again")];
            log::say(Level::Info, "ledger", &line, None);
        }
        self.usable.get().unwrap_or(usable)
    }
}

/// Why a claim found no slot, in words.
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
    count::UNCOUNTED.say("ledger", &line);
}
