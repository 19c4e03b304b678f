//! The system calls that the library makes, beyond those of the ledger.
//! Touches: the kernel. Never: errno, libc's locks.
//! Law: no call here is a cancellation point or can be interposed, and no descriptor outlives the
//! function that opened it. `gpuslice_config::sys` alone enters the kernel.

use core::ffi::CStr;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use gpuslice_config::words::units::Bytes;

mod file;
pub(crate) mod file_calls;
pub(crate) mod filters;
pub(crate) mod locks;
#[cfg(all(not(debug_assertions), target_arch = "x86_64"))]
pub(crate) mod memory;
#[cfg(not(debug_assertions))]
pub(crate) mod panic;
pub(crate) mod stack;
mod stat;
pub(crate) mod stderr;

pub(crate) use file::{Contents, File, Listing, is_sealed_text};
pub(crate) use gpuslice_config::sys::{
    EACCES, EFBIG, EINVAL, ELOOP, ENOENT, ENOTDIR, ETIMEDOUT, Errno, Stat, file_system, int, map,
    map_wiped, syscall, unmap,
};
pub(crate) use stat::{stat_into, statx_into};
pub(crate) use stderr::write_stderr;

unsafe extern "C" {
    /// libc's function, which usually avoids entering the kernel: a twentieth of the cost of a
    /// system call.
    fn clock_gettime(clock: i32, time: *mut [i64; 2]) -> i32;
}

/// Monotonic time in nanoseconds; 0 where there is no such clock.
#[inline]
pub(crate) fn clock() -> u64 {
    let mut time = [0i64; 2];
    // SAFETY: clock_gettime's contract: a timespec is two 64-bit words.
    let failed = unsafe { clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let [seconds, rest] = time.map(i64::cast_unsigned);
    match failed {
        0 => seconds.wrapping_mul(1_000_000_000).wrapping_add(rest),
        _ => 0,
    }
}

/// Seconds since the start of 1970; 0 where there is no such clock.
pub(crate) fn seconds() -> u64 {
    let mut time = [0i64; 2];
    // SAFETY: clock_gettime's contract: a timespec is two 64-bit words.
    let failed = unsafe { clock_gettime(libc::CLOCK_REALTIME, &raw mut time) };
    let [seconds, _] = time;
    match failed {
        0 => u64::try_from(seconds).unwrap_or(0),
        _ => 0,
    }
}

/// A duration in the unit of [`clock`].
pub(crate) const fn nanoseconds(duration: Duration) -> u64 {
    let whole = duration.as_secs().wrapping_mul(1_000_000_000);
    whole.wrapping_add(duration.subsec_nanos() as u64)
}

/// The page size, from the auxiliary vector that the kernel passes to the program.
pub(crate) fn page_size() -> u64 {
    static KNOWN: AtomicU64 = AtomicU64::new(0);
    match KNOWN.load(Ordering::Relaxed) {
        0 => {
            let size = ask_page_size();
            KNOWN.store(size.unwrap_or(0), Ordering::Relaxed);
            size.unwrap_or(gpuslice_config::host::cgroup::PAGE)
        }
        size => size,
    }
}

fn ask_page_size() -> Option<u64> {
    let mut auxiliary = [0u8; 512];
    let file = File::open(c"/proc/self/auxv");
    let read = file
        .and_then(|file| file.read(&mut auxiliary))
        .unwrap_or_default();
    let (pairs, _) = read.as_chunks::<16>();
    let word = |bytes: &[u8]| {
        bytes
            .first_chunk()
            .map_or(0, |word| u64::from_ne_bytes(*word))
    };
    pairs.iter().find_map(|pair| {
        let (name, value) = pair.split_at(8);
        (word(name) == libc::AT_PAGESZ).then(|| word(value))
    })
}

/// The part of a mapped range that is in memory. Its ends are those of pages. What the kernel does
/// not tell counts as in memory.
pub(crate) fn resident(range: Range<u64>) -> Bytes {
    let page = page_size();
    let mut pages = 0u64;
    let mut from = range.start;
    while from < range.end {
        let mut present = [0u8; 1024];
        let most = page.saturating_mul(present.len() as u64);
        let length = range.end.saturating_sub(from).min(most);
        let arguments = [from, length, present.as_mut_ptr() as u64, 0, 0, 0];
        let arguments = arguments.map(|argument| usize::try_from(argument).unwrap_or(0));
        // SAFETY: the kernel writes a byte for each page of the range, which has as many at most.
        let asked = unsafe { syscall(libc::SYS_mincore, arguments) };
        let there = present.iter().filter(|byte| **byte & 1 != 0).count();
        pages = pages.saturating_add(match asked {
            Ok(_) => there as u64,
            Err(_) => length.div_ceil(page.max(1)),
        });
        from = from.saturating_add(length);
    }
    Bytes::new(pages.saturating_mul(page))
}

/// The path `/proc/PID/…`. None: it does not fit with its NUL.
pub(crate) fn path_of_process<'a>(
    path: &'a mut [u8; 32],
    pid: u32,
    file: &[u8],
) -> Option<&'a CStr> {
    let mut digits = [0u8; 10];
    let (mut rest, mut first) = (pid, digits.len());
    for (place, digit) in digits.iter_mut().enumerate().rev() {
        *digit = b'0'.saturating_add((rest % 10) as u8);
        (rest, first) = (rest / 10, place);
        if rest == 0 {
            break;
        }
    }
    let number = digits.get(first..)?;
    let parts = b"/proc/".iter().chain(number).chain(file);
    path.iter_mut()
        .zip(parts)
        .for_each(|(to, from)| *to = *from);
    CStr::from_bytes_until_nul(path).ok()
}

/// This process's id.
pub(crate) fn pid() -> u64 {
    u64::from(gpuslice_config::sys::getpid())
}

/// This thread's id.
pub(crate) fn tid() -> u64 {
    u64::from(gpuslice_config::sys::gettid())
}

/// The address of this thread's control block, which no other living thread has.
pub(crate) fn thread_pointer() -> u64 {
    let pointer: u64;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the ABI's first word of the control block is the block's own address.
    unsafe {
        core::arch::asm!(
            "mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads the register that holds the address.
    unsafe {
        core::arch::asm!(
            "mrs {}, tpidr_el0", out(reg) pointer, options(nostack, preserves_flags, nomem)
        );
    }
    pointer
}

/// A wait for other threads. It also ends where the clock stands still.
pub(crate) struct Wait {
    end: u64,
    rounds: u64,
}

impl Wait {
    /// Starts a wait of at most this time by the clock, and of four times as long without one.
    pub(crate) fn at_most(time: Duration) -> Wait {
        let time = nanoseconds(time);
        Wait {
            end: clock().saturating_add(time),
            rounds: time / 20_000,
        }
    }

    /// Naps once. False: the time is over.
    pub(crate) fn goes_on(&mut self) -> bool {
        if self.rounds == 0 || clock() >= self.end {
            return false;
        }
        self.rounds = self.rounds.saturating_sub(1);
        nap();
        true
    }
}

/// Sleeps for about 70 µs. A mere yield would wait for a full time slice of each other thread on
/// the processor.
pub(crate) fn nap() {
    gpuslice_config::sys::sleep_us(20);
}
