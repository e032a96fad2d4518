// SPDX-License-Identifier: Apache-2.0
//! A lock that a CPU waits for by looking: what is done under it takes a few instructions.

use crate::machine::relax;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

/// A value that one CPU at a time may use.
pub struct Lock<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `with` gives the value to one CPU at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// A lock that nobody holds.
    pub const fn new(value: T) -> Lock<T> {
        Lock { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Use the value. Whoever holds a lock must not ask for it again.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        while self.taken.swap(true, Ordering::Acquire) {
            relax();
        }
        // SAFETY: the flag was free and is ours now, so nobody else has the value.
        let result = work(unsafe { &mut *self.value.get() });
        self.taken.store(false, Ordering::Release);
        result
    }
}
