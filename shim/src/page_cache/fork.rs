//! Distinguishes a forked child, which inherits the tables, from a vfork child, which must not
//! change them.
//! Touches: one page that reads as zeros in a forked child, the process's pid.
//! Law: a vfork child shares its parent's memory but has descriptors of its own: it changes
//! nothing.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::{drop_behind, files, mappings, quiesce};
use crate::state::page;
use crate::sys;
use crate::sys::file_calls;

const PAGE: usize = 4096;

/// The pid of the process that keeps the tables; zero in a freshly forked child.
static WIPED: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());
/// The pid of the process that kept the tables last; not wiped, so a child sees its parent's.
static LAST: AtomicU64 = AtomicU64::new(0);
/// The pid of the process from which the tables were inherited.
static PARENT: AtomicU64 = AtomicU64::new(0);

/// Whether `is_this_process` was ever called.
pub(super) fn is_known() -> bool {
    !WIPED.load(Ordering::Acquire).is_null()
}

/// Whether the tables are this process's own. Called only where a model file is concerned, because
/// it makes a system call. `inside`: in a freshly forked child, the number of its threads that are
/// at work on a model file: 0 or 1, because such a child has one thread.
pub(super) fn is_this_process(inside: u32) -> bool {
    // SAFETY: the stored pointer is mapped for good, and all zeros is a valid AtomicU64.
    let Some(word) = page::get(&WIPED, PAGE).and_then(|page| unsafe { page.as_ref() }) else {
        return false;
    };
    let pid = sys::pid();
    match word.load(Ordering::Acquire) {
        known if known == pid => true,
        0 => {
            let first = word
                .compare_exchange(0, pid, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok();
            let last = LAST.swap(pid, Ordering::AcqRel);
            if first && last != 0 && last != pid {
                PARENT.store(last, Ordering::Release);
                mappings::inherit();
                files::inherit();
                drop_behind::inherit();
                quiesce::inherit(inside);
            }
            true
        }
        // A vfork child: its parent waits, and continues with these tables.
        known if known == file_calls::parent() => false,
        // The first process of a new pid namespace, which sees no parent.
        _ if pid == 1 && file_calls::parent() == 0 => false,
        // A vfork child took the tables first, and is gone.
        _ => {
            word.store(pid, Ordering::Release);
            LAST.store(pid, Ordering::Release);
            true
        }
    }
}

/// Whether the process from which this one inherited its files still runs.
pub(super) fn parent_lives() -> bool {
    let parent = PARENT.load(Ordering::Acquire);
    parent != 0 && file_calls::parent() == parent
}
