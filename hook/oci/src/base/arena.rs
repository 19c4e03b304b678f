//! A bump allocator for a process that lives for a millisecond: it allocates from one block and
//! frees nothing until the process ends. Thirty system calls for memory took a third of the hook's
//! own time.
//! Touches: its block; beyond it, the system's allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Enough for an ordinary container. The kernel maps its pages only when they are touched.
const SIZE: usize = 512 << 10;

/// Zeroed memory of this size comes from the system, which maps its pages when they are touched: a copy
/// of a ledger is mostly empty.
const LARGE: usize = 128 << 10;

/// The block.
#[repr(align(64))]
pub struct Arena {
    block: UnsafeCell<[u8; SIZE]>,
    used: AtomicUsize,
}

// SAFETY: a part of the block is handed out once, to the caller that has advanced `used` over it.
unsafe impl Sync for Arena {}

impl Arena {
    /// Creates an unused block.
    #[must_use]
    pub const fn new() -> Arena {
        Arena {
            block: UnsafeCell::new([0; SIZE]),
            used: AtomicUsize::new(0),
        }
    }

    fn take(&self, layout: Layout) -> Option<*mut u8> {
        let mut used = self.used.load(Relaxed);
        loop {
            let start = used.checked_next_multiple_of(layout.align())?;
            let end = start.checked_add(layout.size())?;
            if end > SIZE || layout.align() > 64 {
                return None;
            }
            match self.used.compare_exchange(used, end, Relaxed, Relaxed) {
                Ok(_) => return Some(self.block.get().cast::<u8>().wrapping_add(start)),
                Err(now) => used = now,
            }
        }
    }

    fn has(&self, pointer: *mut u8) -> bool {
        let start = self.block.get() as usize;
        (pointer as usize).wrapping_sub(start) < SIZE
    }

    /// Resizes a part in place if it is the most recent allocation. Returns whether it did.
    fn resize(&self, pointer: *mut u8, layout: Layout, size: usize) -> bool {
        let start = (pointer as usize).wrapping_sub(self.block.get() as usize);
        let (end, new) = (start.wrapping_add(layout.size()), start.wrapping_add(size));
        let last = |used| (used == end && new <= SIZE).then_some(new);
        self.used.fetch_update(Relaxed, Relaxed, last).is_ok()
    }
}

impl Default for Arena {
    fn default() -> Arena {
        Arena::new()
    }
}

// SAFETY: parts do not overlap, are aligned, and live as long as the process. Memory that does not
// come from the block comes from the system, and is returned to the system.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match self.take(layout) {
            Some(pointer) => pointer,
            // SAFETY: the caller's contract is the system's.
            None => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= LARGE {
            // SAFETY: the caller's contract is the system's.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: the caller's contract is that of alloc.
        let pointer = unsafe { self.alloc(layout) };
        if !pointer.is_null() {
            // SAFETY: the memory has this many bytes. Parts of the block may have been used before.
            unsafe { pointer.write_bytes(0, layout.size()) };
        }
        pointer
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if self.has(pointer) {
            self.resize(pointer, layout, 0);
        } else {
            // SAFETY: it came from the system, with this layout.
            unsafe { System.dealloc(pointer, layout) };
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !self.has(pointer) {
            // SAFETY: it came from the system, with this layout.
            return unsafe { System.realloc(pointer, layout, size) };
        }
        if size <= layout.size() || self.resize(pointer, layout, size) {
            return pointer;
        }
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else {
            return std::ptr::null_mut();
        };
        // SAFETY: the layout is valid, and its size is not zero because it exceeds the old size.
        let new = unsafe { self.alloc(wanted) };
        if !new.is_null() {
            // SAFETY: the new part is larger and apart from the old one.
            unsafe { std::ptr::copy_nonoverlapping(pointer, new, layout.size()) };
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_aligned_apart_and_grow_in_place_when_they_are_the_last() {
        static ARENA: Arena = Arena::new();
        let layout = |size, align| Layout::from_size_align(size, align).unwrap();
        // SAFETY: the layout is not of size zero.
        let one = unsafe { ARENA.alloc(layout(3, 1)) };
        // SAFETY: this layout is not of size zero either.
        let two = unsafe { ARENA.alloc(layout(8, 8)) };
        assert!(ARENA.has(one) && ARENA.has(two) && (two as usize).is_multiple_of(8));
        assert!(two as usize - one as usize >= 3);
        // SAFETY: `two` is of this layout.
        let grown = unsafe { ARENA.realloc(two, layout(8, 8), 64) };
        assert_eq!(grown, two);
        // SAFETY: `one` is three bytes.
        unsafe { one.copy_from_nonoverlapping(b"abc".as_ptr(), 3) };
        // SAFETY: `one` is of this layout, and not the last.
        let moved = unsafe { ARENA.realloc(one, layout(3, 1), 100) };
        // SAFETY: the first three bytes were copied.
        assert_eq!(unsafe { std::slice::from_raw_parts(moved, 3) }, b"abc");
        assert_ne!(moved, one);
        // SAFETY: the layout is not of size zero.
        let zeroed = unsafe { ARENA.alloc_zeroed(layout(100, 1)) };
        // SAFETY: it has a hundred bytes, which are initialised.
        assert_eq!(unsafe { std::slice::from_raw_parts(zeroed, 100) }, [0; 100]);
        // SAFETY: it has a hundred bytes.
        unsafe { zeroed.write_bytes(7, 100) };
        // SAFETY: it is of this layout, and the last part, so its bytes are used again.
        unsafe { ARENA.dealloc(zeroed, layout(100, 1)) };
        // SAFETY: the layout is not of size zero.
        let again = unsafe { ARENA.alloc_zeroed(layout(100, 1)) };
        assert_eq!(again, zeroed);
        // SAFETY: it has a hundred bytes, which are initialised.
        assert_eq!(unsafe { std::slice::from_raw_parts(again, 100) }, [0; 100]);
        // SAFETY: the layout is not of size zero.
        let sparse = unsafe { ARENA.alloc_zeroed(layout(LARGE, 1)) };
        assert!(!sparse.is_null() && !ARENA.has(sparse));
        // SAFETY: it came from this allocator, with this layout.
        unsafe { ARENA.dealloc(sparse, layout(LARGE, 1)) };
        // SAFETY: the layout is not of size zero; it is larger than the block.
        let large = unsafe { ARENA.alloc(layout(SIZE, 1)) };
        assert!(!large.is_null() && !ARENA.has(large));
        // SAFETY: it came from this allocator, with this layout.
        unsafe { ARENA.dealloc(large, layout(SIZE, 1)) };
    }
}
