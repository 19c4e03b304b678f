//! Reads the host of a slice of unified memory at one moment: its memory, its reserve, its promises
//! to others, and the host memory that the slice's programs hold.
//! Touches: the host's meminfo and its memory pressure, the promises, the clock.
//! Law: a query reuses a reading for less than a millisecond, and only while the slice holds as
//! much as it held then. An allocation reuses it only far from the limit. While a process cannot
//! open files, its last reading counts, however old; without one, nothing is free.
//!
//! No descriptor is kept open between readings. Programs close descriptors that they do not know
//! (`closefrom`), and the number may then belong to another file. An open one would save 4 of 10
//! µs.

use core::sync::atomic::Ordering;
use core::time::Duration;

use gpuslice_config::answer::view::{Host, Pressed};
use gpuslice_config::host::meminfo::HostMemory;
use gpuslice_config::host::pressure;
use gpuslice_config::ledger::Ledger;
use gpuslice_config::slice::DeviceSlice;
use gpuslice_config::words::units::Bytes;

use crate::answer::device::Device;
use crate::answer::{host_charge, promises};
use crate::log::Piece::{Dec, Size, Str};
use crate::log::counters;
use crate::slice::loaded_slice::LoadedSlice;
use crate::state::page::{self, ProcessState};
use crate::state::reading::WORDS;
use crate::sys::{self, Errno, File};

/// How long a reading of the host is reused.
const VALID: Duration = Duration::from_micros(900);

/// A reading of the host at one moment.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    /// The host.
    pub(crate) host: Host,
    /// The part of the host's memory that is charged to the slice.
    pub(crate) charge: Bytes,
}

/// The total of a host that was never read.
const UNKNOWN: Bytes = Bytes::MAX;

impl Reading {
    /// The reading of a host that was never read and cannot be read now.
    fn nothing(charge: Bytes) -> Reading {
        let memory = HostMemory {
            total: UNKNOWN,
            free: Bytes::ZERO,
            available: Bytes::ZERO,
        };
        let host = Host {
            memory,
            reserve: Some(Bytes::ZERO),
            others_unused: Bytes::ZERO,
            pressed: None,
        };
        Reading { host, charge }
    }

    /// Whether the host's total is known.
    pub(super) fn has_total(&self) -> bool {
        self.host.memory.total != UNKNOWN
    }

    /// This reading, less the memory that the slice has taken since.
    #[inline]
    fn after(self, held_then: u64, held: Bytes) -> Reading {
        let since = held.minus(Bytes::new(held_then));
        let memory = HostMemory {
            available: self.host.memory.available.minus(since),
            ..self.host.memory
        };
        let host = Host {
            memory,
            ..self.host
        };
        Reading { host, ..self }
    }
}

/// The word that changes with every allocation of the slice: the sum in its ledger or, without a
/// ledger, the driver's free memory, which is MemFree. None: neither is known.
fn word_of(held: Option<Bytes>, free: Option<Bytes>) -> Option<u64> {
    held.or(free).map(Bytes::get)
}

/// No word: only allocations can reuse such a reading.
const NO_WORD: u64 = u64::MAX;

/// The current reading of the host, for a query. `free` is the driver's.
#[inline]
pub(crate) fn now(
    slice: &LoadedSlice,
    device: &Device<'_>,
    budget: &DeviceSlice,
    held: Option<Bytes>,
    free: Option<Bytes>,
) -> Option<Reading> {
    let state = page::page()?;
    let clock = sys::clock();
    let word = word_of(held, free);
    if let Some(word) = word
        && let Some(reading) = kept(slice, state, clock, word)
    {
        return Some(reading);
    }
    fresh(slice, device, budget, held, word, state, clock)
}

/// The host of a machine without a slice. `free` is the driver's, which is MemFree: it changes with
/// every allocation.
pub(crate) fn unsliced(slice: &LoadedSlice, free: Option<Bytes>) -> Option<Host> {
    let state = page::page()?;
    let clock = sys::clock();
    let word = word_of(None, free);
    if let Some(word) = word
        && let Some(reading) = kept(slice, state, clock, word)
    {
        return Some(reading.host);
    }
    let Ok(memory) = slice.host() else {
        say_unread();
        return None;
    };
    let (total, available) = (memory.total.get(), memory.available.get());
    let word = word.unwrap_or(NO_WORD);
    state.host.keep([clock, word, total, available, 0, 0, 0]);
    Some(Host {
        memory,
        reserve: slice.reserve(),
        others_unused: Bytes::ZERO,
        pressed: None,
    })
}

/// A reading less than a millisecond old, less the memory that the slice has taken since.
pub(crate) fn lately(slice: &LoadedSlice, held: Option<Bytes>) -> Option<Reading> {
    let (reading, held_then) = young(slice, page::page()?, sys::clock())?;
    let reading = reading.after(held_then, held?);
    (held_then != NO_WORD).then_some(reading)
}

/// A new reading of the host.
#[cold]
pub(crate) fn just_now(
    slice: &LoadedSlice,
    device: &Device<'_>,
    budget: &DeviceSlice,
    held: Option<Bytes>,
) -> Option<Reading> {
    let word = word_of(held, None);
    fresh(
        slice,
        device,
        budget,
        held,
        word,
        page::page()?,
        sys::clock(),
    )
}

#[inline]
fn kept(slice: &LoadedSlice, state: &ProcessState, clock: u64, word: u64) -> Option<Reading> {
    let (reading, word_then) = young(slice, state, clock)?;
    (word == word_then && word != NO_WORD).then_some(reading)
}

/// The last reading and its word, if it is young enough.
#[inline]
fn young(slice: &LoadedSlice, state: &ProcessState, clock: u64) -> Option<(Reading, u64)> {
    let words = state.host.words()?;
    let [at, ..] = words;
    let is_young = at != 0 && clock.wrapping_sub(at) < const { sys::nanoseconds(VALID) };
    is_young.then(|| of_words(slice, words))
}

/// A reading and its word from the words that are kept.
#[inline]
fn of_words(slice: &LoadedSlice, words: [u64; WORDS]) -> (Reading, u64) {
    let [_, word, total, available, unused, keeps, charge] = words;
    let memory = HostMemory {
        total: Bytes::new(total),
        // No decision uses this value.
        free: Bytes::ZERO,
        available: Bytes::new(available),
    };
    let pressed = Pressed {
        keeps: Bytes::new(keeps),
        beyond: slice.thresholds().request(),
    };
    let host = Host {
        memory,
        reserve: slice.reserve(),
        others_unused: Bytes::new(unused),
        pressed: (keeps != 0).then_some(pressed),
    };
    let charge = Bytes::new(charge);
    (Reading { host, charge }, word)
}

/// The last reading, however old, less the memory that the slice has taken since. Without one,
/// nothing is available: the memory of the host may be promised to others.
#[cold]
fn last(slice: &LoadedSlice, state: &ProcessState, held: Option<Bytes>, charge: Bytes) -> Reading {
    /// The number of retries while another thread stores a reading.
    const ROUNDS: u32 = 16;
    let whole = |_| {
        let words = state.host.words();
        if words.is_none() {
            sys::nap();
        }
        words
    };
    let words = (0..ROUNDS).find_map(whole).filter(|[at, ..]| *at != 0);
    let Some((reading, word)) = words.map(|words| of_words(slice, words)) else {
        counters::MEMINFO.warn_text(
            "the host's memory cannot be read for the moment (too many open files?): none is free",
        );
        return Reading::nothing(charge);
    };
    counters::MEMINFO.warn_text(
        "the host's memory cannot be read for the moment (too many open files?): the last reading counts",
    );
    match held {
        Some(held) if word != NO_WORD => reading.after(word, held),
        _ => reading,
    }
}

#[cold]
#[inline(never)]
fn fresh(
    slice: &LoadedSlice,
    device: &Device<'_>,
    budget: &DeviceSlice,
    held: Option<Bytes>,
    word: Option<u64>,
    state: &ProcessState,
    clock: u64,
) -> Option<Reading> {
    let charge = host_charge::charge(slice, device, state, clock);
    let spent = held.map(|held| held.plus(charge));
    let unspent = budget.memory.minus(spent.unwrap_or(Bytes::ZERO));
    let host = match host_of(slice, unspent) {
        Ok(host) => host,
        Err(why) if why.is_passing() => return Some(last(slice, state, held, charge)),
        Err(_) => {
            say_unread();
            return None;
        }
    };
    if let Some(spent) = spent {
        promises::write(slice, spent);
    }
    state.host.keep([
        clock,
        word.unwrap_or(NO_WORD),
        host.memory.total.get(),
        host.memory.available.get(),
        host.others_unused.get(),
        host.pressed.map_or(0, |pressed| pressed.keeps.get()),
        charge.get(),
    ]);
    Some(Reading { host, charge })
}

#[cold]
fn say_unread() {
    counters::MEMINFO.warn_text(
        "the host's meminfo cannot be read: FREE is the driver's, and NVML reports no memory",
    );
}

/// The host now, for a slice that has still to take this much.
fn host_of(slice: &LoadedSlice, unspent: Bytes) -> Result<Host, Errno> {
    let seen = |others_unused| {
        Ok(Host {
            memory: slice.host()?,
            reserve: slice.reserve(),
            others_unused,
            pressed: None,
        })
    };
    // If the memory suffices even with every promise unspent, the neighbours' files need not be
    // read.
    let mut host = seen(promises::promised(slice)?)?;
    if host.under_pressure(slice.thresholds()).obtainable() < unspent {
        if slice.promises().is_some() {
            host = seen(promises::unspent(slice)?)?;
            // A neighbour that spent memory between the two readings was counted twice.
            let again = promises::unspent(slice)?;
            host.others_unused = host.others_unused.at_most(again);
        }
        host.pressed = pressed(slice, &host, unspent);
    }
    Ok(host)
}

/// Whether the machine is under memory pressure. Reads the pressure file only where it would change
/// the result.
fn pressed(slice: &LoadedSlice, host: &Host, unspent: Bytes) -> Option<Pressed> {
    let under = host.under_pressure(slice.thresholds());
    let pressed = under.pressed?;
    if under.obtainable() >= unspent {
        return None;
    }
    let mut head = [0u8; pressure::HEAD];
    let file = File::open(slice.pressure_file()).ok()?;
    let full = pressure::full_avg10(file.read(&mut head).ok()?)?;
    if full < slice.thresholds().full() {
        return None;
    }
    let line = [
        Str("all tasks stalled for "),
        Dec(u64::from(full / 100)),
        Str(" % of the last ten seconds; "),
        Size(host.memory.available),
        Str(" is available, "),
        Size(pressed.keeps),
        Str(" is reserved against large requests"),
    ];
    counters::PRESSED.warn(&line);
    Some(pressed)
}

/// Publishes to the neighbours that the slice's holdings have changed.
pub(crate) fn changed(slice: &LoadedSlice, device: &Device<'_>, ledger: &Ledger) {
    let (Some(listed), Some(state)) = (device.listed, page::page()) else {
        return;
    };
    // With a closed ledger the other processes' holdings are unknown: the published sum stands.
    if ledger.is_closed() {
        return;
    }
    let charge = Bytes::new(state.host.charged.load(Ordering::Relaxed));
    let mut held = ledger.sum(listed);
    if held == Bytes::MAX {
        return;
    }
    // Concurrent writers may store sums out of order, so each re-reads the sum after writing.
    for _ in 0..4 {
        promises::write(slice, held.plus(charge));
        let again = ledger.sum(listed);
        if again == held {
            break;
        }
        held = again;
    }
}
