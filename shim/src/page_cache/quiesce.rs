//! Stops all work of the library before the program installs a seccomp filter or changes
//! namespaces.
//! Touches: the helper, which ends; the threads that are at a model file, which are waited for.
//! Law: the wait has an end, whoever was interrupted by the signal handler that waits.

use core::sync::atomic::{AtomicU32, Ordering};

use super::{fork, helper};
use crate::sys;

/// How many threads are just at something.
static INSIDE: AtomicU32 = AtomicU32::new(0);
/// Nothing takes so long but a thread that this one has interrupted.
const PATIENCE_MS: u32 = 2000;

/// This thread is at a model file, and makes system calls that the program has not asked for.
pub(super) struct Inside(());

impl Inside {
    /// None where no such calls may be made any more.
    pub(super) fn begin() -> Option<Inside> {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        let inside = Inside(());
        (!sys::filters::is_filtered()).then_some(inside)
    }

    /// The same, where the tables are this process's own.
    pub(super) fn at_own_files() -> Option<Inside> {
        Inside::begin().filter(|_| fork::is_this_process(1))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

/// This process is a forked child, with so many threads that are at something.
pub(super) fn inherit(inside: u32) {
    INSIDE.store(inside, Ordering::SeqCst);
}

/// Whether this is a vfork child, as far as that matters.
pub(crate) fn is_another_process() -> bool {
    fork::is_known() && !fork::is_this_process(0)
}

/// Waits until nothing is done any more. Nothing is begun meanwhile: see [`seccomp`].
pub(crate) fn finish() {
    for _ in 0..PATIENCE_MS {
        let inside = INSIDE.load(Ordering::SeqCst);
        if inside == 0 {
            break;
        }
        helper::wait(&INSIDE, inside, 1);
    }
    if helper::has_run() {
        helper::rest(PATIENCE_MS);
        helper::resume();
    }
}

/// The helper does not run for as long as this is held.
#[derive(Clone, Copy)]
pub(crate) struct Alone(bool);

/// Ends the helper: a process with a second thread gets no user namespace, and enters none of files;
/// and what a process gives up of its rights libc takes from the threads that it knows.
#[inline]
pub(crate) fn be_alone() -> Alone {
    match helper::has_run() {
        true => end_helper(),
        false => Alone(false),
    }
}

#[cold]
fn end_helper() -> Alone {
    // Under a filter it is gone already, and nothing more is asked of the kernel. A vfork child has
    // no second thread, and its parent's helper is none of its business.
    if sys::filters::is_filtered() || is_another_process() {
        return Alone(false);
    }
    helper::rest(PATIENCE_MS);
    helper::is_gone(PATIENCE_MS);
    Alone(true)
}

impl Alone {
    /// It may run again.
    #[inline]
    pub(crate) fn no_longer(self) {
        if self.0 {
            helper::resume();
        }
    }
}
