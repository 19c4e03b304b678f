//! Stops all work of the library before the program installs a seccomp filter or changes
//! namespaces.
//! Touches: the helper, which ends; the threads at work on a model file, which are waited for.
//! Law: the wait is limited, because the waiting signal handler may have interrupted such a thread.

use core::sync::atomic::{AtomicU32, Ordering};

use super::drop_behind::helper;
use super::fork;
use crate::sys;

/// The number of threads at work on a model file.
static IN_FLIGHT: AtomicU32 = AtomicU32::new(0);
/// The limit of a wait: only a thread that this one has interrupted takes as long.
const PATIENCE_MS: u32 = 2000;

/// Marks this thread as at work on a model file, where it makes system calls that the program has
/// not asked for.
pub(super) struct InFlight(());

impl InFlight {
    /// Begins such work. None: these system calls are no longer allowed.
    pub(super) fn begin() -> Option<InFlight> {
        IN_FLIGHT.fetch_add(1, Ordering::SeqCst);
        let in_flight = InFlight(());
        (!sys::filters::is_filtered()).then_some(in_flight)
    }

    /// `begin`, where the tables are this process's own.
    pub(super) fn at_own_files() -> Option<InFlight> {
        InFlight::begin().filter(|_| fork::is_this_process(1))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        IN_FLIGHT.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Resets the count in a forked child; `in_flight`: its number of threads at work.
pub(super) fn inherit(in_flight: u32) {
    IN_FLIGHT.store(in_flight, Ordering::SeqCst);
}

/// Whether this is a vfork child. False also where the tables were never used.
pub(crate) fn is_another_process() -> bool {
    fork::is_known() && !fork::is_this_process(0)
}

/// Waits until all work is finished. No new work begins meanwhile: see `seccomp`.
pub(crate) fn finish() {
    for _ in 0..PATIENCE_MS {
        let in_flight = IN_FLIGHT.load(Ordering::SeqCst);
        if in_flight == 0 {
            break;
        }
        helper::wait(&IN_FLIGHT, in_flight, 1);
    }
    if helper::has_run() {
        helper::rest(PATIENCE_MS);
        helper::resume();
    }
}

/// Keeps the helper from running until `resume`.
#[derive(Clone, Copy)]
pub(crate) struct StoppedHelper(bool);

/// Ends the helper. The kernel refuses a user or mount namespace to a process with a second thread.
/// And libc removes the process's rights only from the threads that it knows.
#[inline]
pub(crate) fn stop_helper() -> StoppedHelper {
    match helper::has_run() {
        true => end_helper(),
        false => StoppedHelper(false),
    }
}

#[cold]
fn end_helper() -> StoppedHelper {
    // Under a filter the helper is gone already, and no further system calls are made. A vfork
    // child has no second thread, and must not end its parent's helper.
    if sys::filters::is_filtered() || is_another_process() {
        return StoppedHelper(false);
    }
    helper::rest(PATIENCE_MS);
    helper::is_gone(PATIENCE_MS);
    StoppedHelper(true)
}

impl StoppedHelper {
    /// Allows the helper to run again.
    #[inline]
    pub(crate) fn resume(self) {
        if self.0 {
            helper::resume();
        }
    }
}
