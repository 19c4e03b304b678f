//! The hint that the kernel writes when a thread ends in any way, SIGKILL included: the slot's
//! node, entered into the robust list of the calling thread as glibc enters a mutex.
//! Touches: this thread's robust list. Never: a pointer that was read from the shared file.
//! Law: no code in this process follows a pointer that a hostile neighbour has written into a node.
//!
//! This is sound beside the program's mutexes, given the code of glibc and of the kernel. Entering
//! a mutex writes `prev` of the node that was first (perhaps ours) and reads nothing of it. Leaving
//! reads the leaving mutex's own two pointers and writes to its neighbours (perhaps ours). We never
//! leave a list: a thread's end takes the list with it. So only the kernel reads our two pointers.
//! It checks every address it walks to, gives up after 2048 nodes, and changes a word only where it
//! finds the ending thread's own id.
#![expect(unsafe_code, reason = "the robust list is made of raw pointers")]

use crate::ledger::protocol::kernel::{Kernel, Step};
use crate::ledger::protocol::layout::Node;
use crate::sys;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// The distance from a node's `next` to its word.
const WORD: usize = core::mem::offset_of!(Node, next).wrapping_neg();

/// Enters the node into this thread's list. Returns `None` if the thread's list has another layout.
/// The slot then has no hint, and its lock is checked on every read.
///
/// The node must not be in the list of any live thread, and must stay mapped until the process
/// ends.
pub(crate) fn arm(node: &'static Node, kernel: &impl Kernel) -> Option<u32> {
    let head = sys::robust_list()?;
    let here = head.as_ptr() as usize;
    // SAFETY: what the kernel has for this thread is libc's, and lives as long as the thread.
    // Only this thread writes to it.
    let list = unsafe { head.as_ref() };
    if list.futex_offset.load(Relaxed) != WORD {
        return None;
    }
    let tid = sys::gettid();
    let link = &raw const node.next as usize;
    // From here on the kernel looks at our word if the thread ends between two of these steps.
    list.list_op_pending.store(link, SeqCst);
    kernel.step(Step::HintPending);
    node.set_word(tid);
    kernel.step(Step::HintNamed);
    let first = list.first.load(SeqCst);
    node.next.store(first as u64, SeqCst);
    node.prev.store(here as u64, SeqCst);
    // Bit 0 of a link says that its node is a priority-inheriting mutex.
    let neighbour = first & !1;
    if neighbour != here {
        let prev = neighbour.wrapping_sub(size_of::<usize>()) as *mut usize;
        // SAFETY: libc's own code writes to the `prev` of the first node in the same way; the
        // node is a mutex that this thread holds, or another slot of ours.
        unsafe { prev.write_volatile(link) };
    }
    list.first.store(link, SeqCst);
    kernel.step(Step::HintLinked);
    list.list_op_pending.store(0, SeqCst);
    Some(tid)
}
