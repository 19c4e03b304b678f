//! The hint that the kernel writes when a thread ends in any way, SIGKILL included: the slot's
//! node, entered into the robust list of the calling thread as glibc enters a mutex.
//! Touches: this thread's robust list. Never: a pointer that was read from the shared file.
//! Law: what a hostile neighbour writes into a node is followed by nobody in this process.
//!
//! Why this is sound beside the mutexes of the program, glibc's code and the kernel's being what
//! they are: entering a mutex writes `prev` of the node that was first (ours, perhaps) and reads
//! nothing of it; leaving reads the leaving mutex's own two pointers and writes to its neighbours
//! (ours, perhaps). We never leave a list: a thread's end takes the list with it. So our two
//! pointers are only ever read by the kernel, which checks every address it walks to, gives up
//! after 2048 nodes, and changes a word only where it finds the ending thread's own id.
#![expect(unsafe_code, reason = "the robust list is made of raw pointers")]

use super::layout::Node;
use super::protocol::{Kernel, Step};
use super::sys;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// From a node's `next` to its word.
const WORD: usize = core::mem::offset_of!(Node, next).wrapping_neg();

/// Enters the node into this thread's list. None where the thread's list has another shape: the
/// slot then has no hint, and its lock is asked at every look.
///
/// The node must be in no living thread's list, and stay mapped until the process ends.
pub(super) fn arm(node: &'static Node, kernel: &impl Kernel) -> Option<u32> {
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
