//! The helper thread: drops consumed pages while the loader continues.
//! Touches: a thread unknown to libc, for as long as there is work; one file at a time, whose
//! number it publishes.
//! Law: it runs only where the slice asks for drop-behind, handles no signals, and touches neither
//! libc nor thread-local storage. It delays no thread for longer than one piece takes.

use core::ffi::c_int;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::page_cache::drop_behind;
use crate::page_cache::files::Number;
use crate::sys::file_calls;
use crate::sys::{self, int, syscall};

const STACK: usize = 64 << 10;
static STACK_PLACE: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// The thread's id; the kernel writes 0 there once the thread and its use of the stack have ended.
static THREAD: AtomicU32 = AtomicU32::new(0);
/// The id of the last thread; 0 once it is known to be gone.
static LAST: AtomicU32 = AtomicU32::new(0);
/// Whether the thread runs, or is about to.
static RUNS: AtomicU32 = AtomicU32::new(0);
/// Changes when there is work.
static CALLS: AtomicU32 = AtomicU32::new(0);
/// The number of the file that it works on; 0 for none.
static AT: AtomicU32 = AtomicU32::new(0);
/// The number of threads that wait for it to leave that file.
static WAITING: AtomicU32 = AtomicU32::new(0);
/// The number of threads that require it not to run.
static RESTS: AtomicU32 = AtomicU32::new(0);

const PATIENCE_MS: i64 = 300;

/// Waits until a word has changed from `was`. False: the time ran out first.
pub(in crate::page_cache) fn wait(word: &AtomicU32, was: u32, milliseconds: i64) -> bool {
    wait_by(
        libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
        word,
        was,
        milliseconds,
    )
}

/// `wait` for a word that the kernel itself changes.
fn wait_shared(word: &AtomicU32, was: u32, milliseconds: i64) -> bool {
    wait_by(libc::FUTEX_WAIT, word, was, milliseconds)
}

fn wait_by(how: c_int, word: &AtomicU32, was: u32, milliseconds: i64) -> bool {
    let timeout = libc::timespec {
        tv_sec: 0,
        tv_nsec: milliseconds.saturating_mul(1_000_000),
    };
    let arguments = [
        (&raw const *word) as usize,
        int(how),
        was as usize,
        (&raw const timeout) as usize,
        0,
        0,
    ];
    // SAFETY: the kernel only reads the word and the timeout.
    let waited = unsafe { syscall(libc::SYS_futex, arguments) };
    waited != Err(sys::ETIMEDOUT)
}

/// Sleeps for a millisecond, so that other threads run.
pub(in crate::page_cache) fn pause() {
    static NOBODY_WAKES: AtomicU32 = AtomicU32::new(0);
    wait(&NOBODY_WAKES, 0, 1);
}

fn wake(word: &AtomicU32) {
    let arguments = [
        (&raw const *word) as usize,
        int(libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG),
        i32::MAX as usize,
        0,
        0,
        0,
    ];
    // SAFETY: the kernel only compares the address.
    let _ = unsafe { syscall(libc::SYS_futex, arguments) };
}

/// Wakes the helper thread, or starts it.
pub(in crate::page_cache) fn call() {
    CALLS.fetch_add(1, Ordering::AcqRel);
    if RUNS.swap(1, Ordering::SeqCst) != 0 {
        wake(&CALLS);
    } else if rests() || !start() {
        // The last thread's stack is still in use, or the kernel refuses a thread: the next call
        // tries again.
        RUNS.store(0, Ordering::SeqCst);
    }
}

/// Whether a helper was ever started in this process.
#[inline]
pub(in crate::page_cache) fn has_run() -> bool {
    !STACK_PLACE.load(Ordering::Acquire).is_null()
}

/// Whether the helper runs, and may continue.
pub(in crate::page_cache) fn runs() -> bool {
    RUNS.load(Ordering::SeqCst) != 0 && !rests()
}

/// Whether the helper is required not to run.
pub(in crate::page_cache) fn rests() -> bool {
    RESTS.load(Ordering::SeqCst) != 0
}

/// Ends the helper, and waits at most `milliseconds` until it is gone.
pub(in crate::page_cache) fn rest(milliseconds: u32) {
    RESTS.fetch_add(1, Ordering::SeqCst);
    CALLS.fetch_add(1, Ordering::AcqRel);
    wake(&CALLS);
    for _ in 0..milliseconds {
        let runs = RUNS.load(Ordering::SeqCst);
        let thread = THREAD.load(Ordering::SeqCst);
        if runs == 0 && thread == 0 {
            return;
        }
        // The kernel reports its end only to waiters on THREAD itself.
        match thread {
            0 => wait(&RUNS, runs, 1),
            _ => wait_shared(&THREAD, thread, 1),
        };
    }
}

/// Waits until the kernel no longer counts the thread, a moment after it has ended.
pub(in crate::page_cache) fn is_gone(milliseconds: u32) {
    let last = LAST.load(Ordering::SeqCst);
    // A word that is never woken: the kernel reports no event for this.
    let never = AtomicU32::new(0);
    for _ in 0..milliseconds {
        if last == 0 || !file_calls::has_thread(last) {
            LAST.store(0, Ordering::SeqCst);
            return;
        }
        wait(&never, 0, 1);
    }
}

/// Allows the helper to run again: it processes notes made meanwhile at its next call.
pub(in crate::page_cache) fn resume() {
    RESTS.fetch_sub(1, Ordering::SeqCst);
}

/// Waits until the helper has left a file. Before that the file must not be forgotten or unmapped.
pub(in crate::page_cache) fn wait_for(number: Number) {
    let raw = u32::from(number.raw());
    core::sync::atomic::fence(Ordering::SeqCst);
    if AT.load(Ordering::SeqCst) != raw {
        return;
    }
    WAITING.fetch_add(1, Ordering::SeqCst);
    while AT.load(Ordering::SeqCst) == raw {
        wait(&AT, raw, 1);
    }
    WAITING.fetch_sub(1, Ordering::SeqCst);
}

/// Publishes that the helper works on a file. Checks made after this stay valid until it leaves.
pub(in crate::page_cache) fn enter(number: Number) {
    AT.store(u32::from(number.raw()), Ordering::SeqCst);
    core::sync::atomic::fence(Ordering::SeqCst);
}

/// Publishes that the helper has left its file.
pub(in crate::page_cache) fn leave() {
    AT.store(0, Ordering::SeqCst);
    if WAITING.load(Ordering::SeqCst) != 0 {
        wake(&AT);
    }
}

/// Resets the state in a forked child: the thread was its parent's.
pub(in crate::page_cache) fn inherit() {
    for word in [&THREAD, &LAST, &RUNS, &AT, &WAITING, &RESTS] {
        word.store(0, Ordering::SeqCst);
    }
}

/// The thread's function: works until there has been no work for a while.
extern "C" fn work() {
    let mut calls = CALLS.load(Ordering::Acquire);
    loop {
        drop_behind::work();
        if rests() {
            RUNS.store(0, Ordering::SeqCst);
            return;
        }
        if wait(&CALLS, calls, PATIENCE_MS) {
            calls = CALLS.load(Ordering::Acquire);
            continue;
        }
        RUNS.store(0, Ordering::SeqCst);
        let now = CALLS.load(Ordering::SeqCst);
        if now == calls || RUNS.swap(1, Ordering::AcqRel) != 0 {
            // There was no call since, or the caller is starting another thread.
            return;
        }
        calls = now;
    }
}

unsafe extern "C" {
    fn memset(place: *mut u8, byte: i32, length: usize) -> *mut u8;
    fn memcpy(to: *mut u8, from: *const u8, length: usize) -> *mut u8;
    fn memmove(to: *mut u8, from: *const u8, length: usize) -> *mut u8;
    fn bcmp(one: *const u8, other: *const u8, length: usize) -> i32;
}

/// Calls each function once that the compiler may call in the thread. The loader binds a name at
/// its first call, and needs a thread that libc knows.
fn bind() {
    let mut bytes = [0u8; 16];
    let (place, length) = (bytes.as_mut_ptr(), core::hint::black_box(8usize));
    let half = place.wrapping_add(8);
    // SAFETY: `bytes` has eight bytes at `place` and eight more at `half`. All four calls rely on
    // this.
    unsafe { memset(place, 0, length) };
    // SAFETY: eight bytes each, see above.
    unsafe { memcpy(place, half, length) };
    // SAFETY: eight bytes each, see above.
    unsafe { memmove(half, place, length) };
    // SAFETY: eight bytes each, see above.
    core::hint::black_box(unsafe { bcmp(place, half, length) });
}

fn start() -> bool {
    if THREAD.load(Ordering::Acquire) != 0 {
        return false;
    }
    let known = STACK_PLACE.load(Ordering::Acquire);
    let stack = match known.is_null() {
        false => known,
        true => match sys::map(STACK) {
            Ok(fresh) => {
                STACK_PLACE.store(fresh, Ordering::Release);
                fresh
            }
            Err(_) => return false,
        },
    };
    bind();
    let everything = u64::MAX;
    let mut before = 0u64;
    file_calls::mask_signals(&everything, Some(&mut before));
    let thread = clone(stack.wrapping_add(STACK));
    file_calls::mask_signals(&before, None);
    LAST.store(u32::try_from(thread).unwrap_or(0), Ordering::SeqCst);
    thread > 0
}

/// Shares memory, file-system state, descriptors, signal handlers and the process itself; the
/// kernel clears THREAD when the thread has ended.
const FLAGS: usize = int(libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM
    | libc::CLONE_CHILD_CLEARTID
    | libc::CLONE_PARENT_SETTID);

/// The id of the new thread, or a negative error.
fn clone(top: *mut u8) -> isize {
    let thread = (&raw const THREAD) as usize;
    let answer: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the new thread begins on a stack of its own, calls `work` and ends. This thread
    // continues behind the call. The kernel changes rax, rcx and r11 only.
    unsafe {
        core::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "call {work}",
            "xor edi, edi",
            "mov eax, {exit}",
            "syscall",
            "ud2",
            "2:",
            work = sym work,
            exit = const libc::SYS_exit,
            inlateout("rax") libc::SYS_clone => answer,
            in("rdi") FLAGS, in("rsi") top, in("rdx") thread, in("r10") thread, in("r8") 0usize,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the new thread begins on a stack of its own, calls `work` and ends. This thread
    // continues behind the call. The kernel changes x0 only.
    unsafe {
        core::arch::asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "bl {work}",
            "mov x0, xzr",
            "mov x8, #{exit}",
            "svc #0",
            "brk #1",
            "2:",
            work = sym work,
            exit = const libc::SYS_exit,
            in("x8") libc::SYS_clone,
            inlateout("x0") FLAGS => answer,
            in("x1") top, in("x2") thread, in("x3") 0usize, in("x4") thread,
            out("x30") _,
        );
    }
    answer
}
