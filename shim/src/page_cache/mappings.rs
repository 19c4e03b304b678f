//! Tracks where model files are mapped in this process.
//! Touches: atomics. One thread at a time changes the table; the others leave notes for it.
//! Law: no thread waits without limit for that thread, because a signal handler may have
//! interrupted it.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::drop_behind::helper;
use super::files::{self, Number};
use super::queue::{Entry, Queue};
use crate::sys;

/// The number of pieces of mappings in the table. Loaders map a file once, and unmap it in a few
/// pieces.
const RECORDS: usize = 1024;

/// A piece of a mapping.
struct Record {
    start: AtomicU64,
    end: AtomicU64,
    /// The offset in the file at which it begins.
    offset: AtomicU64,
    /// The file's number and the kind; 0 when the record is free.
    what: AtomicU32,
}

static TABLE: [Record; RECORDS] = [const {
    Record {
        start: AtomicU64::new(0),
        end: AtomicU64::new(0),
        offset: AtomicU64::new(0),
        what: AtomicU32::new(0),
    }
}; RECORDS];

/// One more than the highest record that was ever used.
static HIGHEST: AtomicUsize = AtomicUsize::new(0);
/// The number of records, including those still in the notes.
static USED: AtomicU32 = AtomicU32::new(0);
/// The address range that contains all records.
static LOWEST_ADDRESS: AtomicU64 = AtomicU64::new(u64::MAX);
static HIGHEST_ADDRESS: AtomicU64 = AtomicU64::new(0);

static NOTES: Queue<128> = Queue::new();
/// The thread that changes the table; 0 for none.
static CHANGING: AtomicU64 = AtomicU64::new(0);
/// A thread for which others have waited in vain: a signal handler may have left it by longjmp.
static STUCK: AtomicU64 = AtomicU64::new(0);
/// A note about a writable range was lost: from then on every mapping counts as writable.
static DISTRUSTED: AtomicBool = AtomicBool::new(false);

const FILE: u32 = 0xff;
/// The mapping is or was writable: its pages may hold data that no file has.
pub(super) const WRITABLE: u32 = 1 << 8;
/// The mapping is shared: data written to it is the file's.
pub(super) const SHARED: u32 = 1 << 9;

const ADD: u64 = 1;
const REMOVE: u64 = 2;
const WRITTEN: u64 = 3;

/// A range of addresses.
#[derive(Clone, Copy)]
pub(super) struct Range {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Range {
    /// The pages of `length` bytes at an address, as the kernel rounds them.
    pub(super) fn new(address: usize, length: usize) -> Range {
        let start = address as u64;
        let end = start.saturating_add(length as u64).saturating_add(PAGE - 1) & !(PAGE - 1);
        Range { start, end }
    }

    fn meets(self, other: Range) -> bool {
        self.start < other.end && other.start < self.end
    }
}

const PAGE: u64 = 4096;

/// A piece of a mapping, as of when it was read.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) range: Range,
    pub(super) offset: u64,
    pub(super) number: Number,
    pub(super) kind: u32,
}

impl Record {
    fn piece(&self) -> Option<Piece> {
        let what = self.what.load(Ordering::Acquire);
        let number = Number::from_raw((what & FILE).to_le_bytes()[0])?;
        let range = Range {
            start: self.start.load(Ordering::Relaxed),
            end: self.end.load(Ordering::Relaxed),
        };
        let offset = self.offset.load(Ordering::Relaxed);
        let same = self.what.load(Ordering::Acquire) == what;
        let written = match DISTRUSTED.load(Ordering::Relaxed) {
            true => WRITABLE,
            false => 0,
        };
        same.then_some(Piece {
            range,
            offset,
            number,
            kind: what & !FILE | written,
        })
    }
}

fn used() -> impl Iterator<Item = &'static Record> {
    TABLE.iter().take(HIGHEST.load(Ordering::Acquire))
}

/// Whether a range may meet a mapping of a model file.
#[inline]
pub(super) fn may_meet(range: Range) -> bool {
    USED.load(Ordering::Relaxed) != 0
        && range.start < HIGHEST_ADDRESS.load(Ordering::Relaxed)
        && range.end > LOWEST_ADDRESS.load(Ordering::Relaxed)
}

/// The pieces that overlap a range.
pub(super) fn meeting(range: Range) -> impl Iterator<Item = Piece> {
    settle();
    used()
        .filter_map(Record::piece)
        .filter(move |piece| piece.range.meets(range))
}

/// Records that a model file was mapped. The caller has added a user to its entry for this.
pub(super) fn add(piece: Piece) {
    USED.fetch_add(1, Ordering::AcqRel);
    LOWEST_ADDRESS.fetch_min(piece.range.start, Ordering::AcqRel);
    HIGHEST_ADDRESS.fetch_max(piece.range.end, Ordering::AcqRel);
    let what = u64::from(piece.kind) | u64::from(piece.number.raw());
    if note([
        ADD | what << 8,
        piece.range.start,
        piece.range.end,
        piece.offset,
    ]) {
        change();
    } else {
        USED.fetch_sub(1, Ordering::AcqRel);
        piece.number.release(None);
    }
}

/// Records that a range is about to be unmapped, or mapped anew.
pub(super) fn remove(range: Range) {
    if note([REMOVE, range.start, range.end, 0]) {
        change();
    }
}

/// Records that a range has become writable.
pub(super) fn written(range: Range) {
    match note([WRITTEN, range.start, range.end, 0]) {
        true => change(),
        false => DISTRUSTED.store(true, Ordering::SeqCst),
    }
}

/// Leaves a note. A full queue means that the thread that empties it was descheduled: then this
/// waits, because a lost note would keep a file in use for good.
fn note(entry: Entry) -> bool {
    NOTES.push(entry) || wait_until(|| NOTES.push(entry))
}

/// Waits briefly for another thread that is changing the table. False: the table does not reflect
/// all notes yet.
pub(super) fn settle() -> bool {
    let settled = || NOTES.is_empty() && CHANGING.load(Ordering::SeqCst) == 0;
    for _ in 0..2000 {
        if settled() {
            return true;
        }
        core::hint::spin_loop();
    }
    wait_until(settled)
}

/// Waits at most 50 ms for a thread that was descheduled while it changed the table. If a signal
/// handler has interrupted that very thread, waiting is useless, and this returns at once.
fn wait_until(done: impl Fn() -> bool) -> bool {
    let this = sys::tid();
    for _ in 0..50 {
        let by = CHANGING.load(Ordering::SeqCst);
        if by == this || by != 0 && by == STUCK.load(Ordering::Relaxed) {
            return false;
        }
        helper::pause();
        if done() {
            return true;
        }
    }
    STUCK.store(CHANGING.load(Ordering::SeqCst), Ordering::Relaxed);
    false
}

/// Whether a range overlaps a mapping. Also true while the table is not settled.
pub(super) fn meets(range: Range) -> bool {
    !settle() || meeting(range).next().is_some()
}

/// Applies the notes, unless another thread is doing so, which will find ours too.
fn change() {
    let this = sys::tid();
    while !NOTES.is_empty() {
        let free = CHANGING.compare_exchange(0, this, Ordering::AcqRel, Ordering::Relaxed);
        if free.is_err() {
            return;
        }
        let mut gone = Gone::new();
        let mut done = false;
        while let Some(note) = NOTES.pop() {
            apply(note, &mut gone);
            done = true;
            if gone.is_full() {
                break;
            }
        }
        CHANGING.store(0, Ordering::Release);
        STUCK.store(0, Ordering::Relaxed);
        // After CHANGING is cleared: dropping the pages of a large file takes a while.
        gone.release();
        if !done {
            // The next note is still being written; its writer calls `change` afterwards.
            return;
        }
    }
}

/// The files that have lost mappings.
struct Gone {
    numbers: [u8; 64],
    count: usize,
}

impl Gone {
    fn new() -> Gone {
        Gone {
            numbers: [0; 64],
            count: 0,
        }
    }

    fn push(&mut self, number: Number) {
        match self.numbers.get_mut(self.count) {
            Some(place) => {
                *place = number.raw();
                self.count = self.count.saturating_add(1);
            }
            None => number.release(None),
        }
    }

    fn is_full(&self) -> bool {
        self.count >= 48
    }

    fn release(self) {
        let numbers = self.numbers.iter().take(self.count);
        for number in numbers.filter_map(|raw| Number::from_raw(*raw)) {
            files::sweep(number);
            number.release(None);
        }
    }
}

fn apply([what, start, end, offset]: Entry, gone: &mut Gone) {
    let range = Range { start, end };
    match what & 0xff {
        ADD => {
            let Some(what) = u32::try_from(what >> 8).ok() else {
                return;
            };
            if !insert(range, offset, what) {
                USED.fetch_sub(1, Ordering::AcqRel);
                if let Some(number) = Number::from_raw((what & FILE).to_le_bytes()[0]) {
                    gone.push(number);
                }
            }
        }
        REMOVE => used().for_each(|record| cut(record, range, gone)),
        _ => {
            for record in used() {
                if record.piece().is_some_and(|piece| piece.range.meets(range)) {
                    record.what.fetch_or(WRITABLE, Ordering::AcqRel);
                }
            }
        }
    }
}

fn insert(range: Range, offset: u64, what: u32) -> bool {
    let free = |(_, record): &(usize, &Record)| record.what.load(Ordering::Acquire) == 0;
    let Some((place, record)) = TABLE.iter().enumerate().find(free) else {
        return false;
    };
    record.start.store(range.start, Ordering::Relaxed);
    record.end.store(range.end, Ordering::Relaxed);
    record.offset.store(offset, Ordering::Relaxed);
    record.what.store(what, Ordering::Release);
    HIGHEST.fetch_max(place.saturating_add(1), Ordering::AcqRel);
    true
}

/// Removes a range from a record.
fn cut(record: &Record, range: Range, gone: &mut Gone) {
    let Some(piece) = record.piece().filter(|piece| piece.range.meets(range)) else {
        return;
    };
    let before = piece.range.start < range.start;
    let after = range.end < piece.range.end;
    if after {
        let rest = Range {
            start: range.end,
            end: piece.range.end,
        };
        let skipped = range.end.saturating_sub(piece.range.start);
        let offset = piece.offset.saturating_add(skipped);
        if !before {
            record.offset.store(offset, Ordering::Relaxed);
            record.start.store(rest.start, Ordering::Release);
            return;
        }
        // Parts remain on both sides: they need another record, and another user of the file.
        let what = piece.kind | u32::from(piece.number.raw());
        if piece.number.acquire() {
            match insert(rest, offset, what) {
                true => {
                    USED.fetch_add(1, Ordering::AcqRel);
                }
                false => gone.push(piece.number),
            }
        }
    }
    if before {
        record.end.store(range.start, Ordering::Release);
        return;
    }
    record.what.store(0, Ordering::Release);
    USED.fetch_sub(1, Ordering::AcqRel);
    gone.push(piece.number);
}

/// Resets the state in a forked child: changes by the parent's threads are never finished here.
pub(super) fn inherit() {
    NOTES.clear();
    CHANGING.store(0, Ordering::Release);
    let records = used().filter(|record| record.piece().is_some()).count();
    USED.store(
        u32::try_from(records).unwrap_or(u32::MAX),
        Ordering::Release,
    );
}
