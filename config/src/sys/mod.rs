//! System calls, made directly: the one place of the ledger and the library that enters the kernel.
//! Touches: the kernel. Never: errno or libc's code. Numbers, flags and struct layouts are the
//! `libc` crate's, of which nothing is linked.
//! Law: no call here is a cancellation point, can be interposed, allocates or panics.
#![expect(unsafe_code, reason = "system calls")]

mod call;
mod errno;
mod file;
mod lock;
mod memory;
mod placeholders;
mod process;
mod stat;
#[cfg(all(test, not(loom), not(miri)))]
mod tests;

pub use call::{int, syscall};
pub use errno::{
    EACCES, EAGAIN, EFBIG, EINTR, EINVAL, ELOOP, EMFILE, ENFILE, ENOENT, ENOMEM, ENOSYS, ENOTDIR,
    EPERM, ESRCH, ESTALE, ETIMEDOUT, Errno,
};
pub use file::{Access, Fd, file_system, read_link};
pub use lock::{Lock, is_locked, set_lock};
pub use memory::{PAGE, madvise, map, map_file, map_wiped, unmap};
pub use placeholders::Placeholders;
pub use process::{
    RobustList, getpid, gettid, probe_thread, robust_list, sched_yield, seconds, sleep_us,
};
pub use stat::Stat;
