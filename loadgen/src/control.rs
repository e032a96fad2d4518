// SPDX-License-Identifier: Apache-2.0
//! Control: what the threads of a run and their supervisor share.

use crate::run::{Ending, Run, State};
use crate::system;
use crate::tally::Usage;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What the threads and the supervisor share.
#[derive(Default)]
pub(crate) struct Control {
    state: AtomicU8,
    ending: Mutex<Option<Ending>>,
    pub(crate) clock: Clock,
    failed: AtomicBool,
}

impl Control {
    pub(crate) fn state(&self) -> State {
        match self.state.load(Ordering::Relaxed) {
            0 => State::Run,
            1 => State::Drain,
            _ => State::Abandon,
        }
    }

    /// End the run; the first reason given is the one that counts, but a failure outdoes a signal.
    pub(crate) fn end(&self, ending: Ending, state: State) {
        let failed = matches!(ending, Ending::Failed(_));
        let mut told = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none() || (failed && !self.failed.load(Ordering::Relaxed)) {
            *told = Some(ending);
            self.failed.store(failed, Ordering::Relaxed);
        }
        self.state.fetch_max(state as u8, Ordering::Relaxed);
    }

    pub(crate) fn ending(&self) -> Ending {
        let told = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        told.clone().unwrap_or(Ending::Complete)
    }
}

/// Nanoseconds since the run began; the same for all threads.
pub(crate) struct Clock {
    base: Instant,
    pub(crate) start_ns: AtomicU64,
}

impl Default for Clock {
    fn default() -> Self {
        Clock { base: Instant::now(), start_ns: AtomicU64::new(0) }
    }
}

impl Clock {
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        let elapsed = self.base.elapsed();
        elapsed.as_secs() * 1_000_000_000 + u64::from(elapsed.subsec_nanos())
    }

    pub(crate) fn set(&self) {
        self.start_ns.store(self.now(), Ordering::Relaxed);
    }
}

/// A handle on the run for each of its threads.
#[derive(Clone)]
pub(crate) struct Handle(pub(crate) Arc<Control>);

impl Run for Handle {
    #[inline]
    fn now(&self) -> u64 {
        self.0.clock.now()
    }

    fn start_ns(&self) -> u64 {
        self.0.clock.start_ns.load(Ordering::Relaxed)
    }

    #[inline]
    fn state(&self) -> State {
        self.0.state()
    }

    fn end(&self, ending: Ending, state: State) {
        self.0.end(ending, state);
    }

    fn usage(&self) -> Usage {
        system::thread_usage()
    }

    fn sleep(&self, limit: Duration) {
        std::thread::sleep(limit);
    }

    fn punctual(&self) {
        // the kernel may otherwise wake us 50 us late to save power
        let _ = nix::sys::prctl::set_timerslack(1);
    }

    fn explain(&self, errno: i32) -> String {
        std::io::Error::from_raw_os_error(errno).to_string()
    }
}
