//! A counting allocator. The size of a value is the difference of the count before and after its creation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator with the sum of the bytes in use, for benches.
#[derive(Debug, Default)]
pub struct Counting(AtomicUsize);

/// Returns the heap bytes of a block: glibc's allocator uses multiples of 16 bytes, with 8 of its own, and at least
/// 32.
fn taken(layout: Layout) -> usize {
    (layout.size() + 8).next_multiple_of(16).max(32)
}

impl Counting {
    /// Creates the allocator with a count of zero.
    pub const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Returns the number of bytes in use.
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

// SAFETY: every call is passed unchanged to the system's allocator; counting has no effect on it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.0.fetch_add(taken(layout), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        self.0.fetch_sub(taken(layout), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let larger = Layout::from_size_align(size, layout.align()).map_or(size, taken);
        self.0.fetch_add(larger, Ordering::Relaxed);
        self.0.fetch_sub(taken(layout), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_out_is_counted() {
        let heap = Counting::new();
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
