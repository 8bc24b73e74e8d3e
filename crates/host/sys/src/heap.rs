//! The allocator of the programs (`docs/adr/0016-allocator.md`), and a counting allocator: the size of a value is the
//! difference of the count before and after its creation.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub use mimalloc::MiMalloc;

/// The option `mi_option_purge_delay` of mimalloc 3, in milliseconds. The crate exports the numbers of few options.
const PURGE_DELAY: c_int = 15;

/// The time that unused pages stay with the process. With the default of one second, an idle server spends a third of
/// its work on pages that it returns to the kernel and takes again a moment later.
const DELAY: Duration = Duration::from_secs(10);

/// Sets the time after which unused pages return to the kernel, for the whole process.
pub fn delay_purges() {
    let millis = c_long::try_from(DELAY.as_millis()).unwrap_or(c_long::MAX);
    // SAFETY: the function stores a number in an atomic variable of mimalloc and ignores numbers of unknown options.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, millis) }
}

/// An allocator with the sum of the bytes in use, for benches.
#[derive(Debug, Default)]
pub struct Counting<A> {
    allocator: A,
    bytes: AtomicUsize,
}

/// Returns the approximate number of heap bytes of a block. Allocators differ: that of glibc uses multiples of 16
/// bytes, at least 32, of which it needs 8 itself.
fn taken(layout: Layout) -> usize {
    (layout.size() + 8).next_multiple_of(16).max(32)
}

impl<A> Counting<A> {
    /// Counts the blocks of an allocator.
    pub const fn new(allocator: A) -> Self {
        Self { allocator, bytes: AtomicUsize::new(0) }
    }

    /// Returns the number of bytes in use.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

// SAFETY: every call is passed unchanged to the allocator; counting has no effect on it.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.bytes.fetch_add(taken(layout), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { self.allocator.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        self.bytes.fetch_sub(taken(layout), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { self.allocator.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let larger = Layout::from_size_align(size, layout.align()).map_or(size, taken);
        self.bytes.fetch_add(larger, Ordering::Relaxed);
        self.bytes.fetch_sub(taken(layout), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { self.allocator.realloc(block, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_of_the_allocator_has_the_number_of_its_option() {
        // SAFETY: the function reads a number.
        let delay = || unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) };
        // No other option has this default.
        assert_eq!(delay(), 1000);
        delay_purges();
        assert_eq!(delay(), 10_000);
    }

    #[test]
    fn what_is_handed_out_is_counted() {
        let heap = Counting::new(std::alloc::System);
        let layout = Layout::from_size_align(100, 8).unwrap();
        // SAFETY: the layout is not empty, and the block is deallocated once with its own layout.
        unsafe {
            let block = heap.alloc(layout);
            assert_eq!(heap.bytes(), 112);
            let block = heap.realloc(block, layout, 1000);
            assert_eq!(heap.bytes(), 1008);
            heap.dealloc(block, Layout::from_size_align(1000, 8).unwrap());
        }
        assert_eq!(heap.bytes(), 0);
    }
}
