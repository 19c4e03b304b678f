//! Runs gpuslice on a stack of its own if the caller's stack limit (`ulimit -s`) is small. Parsing
//! the command line takes about 80 KiB.
//! Touches: the limit of this process's stack, by reading it; a mapping.
//! Law: the stack limit stays as the caller set it, because the program of a run inherits it.

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect};
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// The stack size that is always enough, in bytes.
const ENOUGH: usize = 1 << 20;
/// The size of the guard at the end of the stack, which must not be reached, in bytes.
const GUARD: usize = 1 << 16;

/// The function to run, and its result. They are static because a context's entry function takes no
/// arguments.
static FUNCTION: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
static RESULT: AtomicI32 = AtomicI32::new(0);

/// Calls the function. It uses the current stack if that may grow far enough, or if no other can be
/// mapped.
pub fn with_room(function: fn() -> c_int) -> c_int {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: getrlimit writes one struct rlimit.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) } == 0;
    if known && limit.rlim_cur >= ENOUGH as libc::rlim_t {
        return function();
    }
    on_another(function).unwrap_or_else(|_| function())
}

#[cold]
fn on_another(function: fn() -> c_int) -> nix::Result<c_int> {
    let length = NonZeroUsize::new(ENOUGH + GUARD).ok_or(nix::Error::EINVAL)?;
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
    // SAFETY: a new mapping, at an address of the kernel's choice.
    let stack = unsafe { mmap_anonymous(None, length, protection, flags) }?;
    // SAFETY: no code uses these pages yet.
    unsafe { mprotect(stack, GUARD, ProtFlags::PROT_NONE) }?;
    FUNCTION.store(function as *mut (), Ordering::Relaxed);
    let (mut here, mut there) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: getcontext fills the structure that it is given, or fails.
    if unsafe { libc::getcontext(there.as_mut_ptr()) } != 0 {
        return Err(nix::Error::last());
    }
    // SAFETY: getcontext has filled it.
    let context = unsafe { there.assume_init_mut() };
    context.uc_stack.ss_sp = stack.as_ptr();
    context.uc_stack.ss_size = length.get();
    context.uc_link = here.as_mut_ptr();
    // SAFETY: the context has a stack of its own, and `run` takes no arguments.
    unsafe { libc::makecontext(context, run, 0) };
    // SAFETY: swapcontext saves this context in `here`, and `there` resumes `here` when `run`
    // returns.
    if unsafe { libc::swapcontext(here.as_mut_ptr(), context) } != 0 {
        return Err(nix::Error::last());
    }
    Ok(RESULT.load(Ordering::Relaxed))
}

extern "C" fn run() {
    let function = FUNCTION.load(Ordering::Relaxed);
    // SAFETY: `on_another` has stored a function of this type.
    let function = unsafe { std::mem::transmute::<*mut (), fn() -> c_int>(function) };
    RESULT.store(function(), Ordering::Relaxed);
}
