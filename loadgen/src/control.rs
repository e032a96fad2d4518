// SPDX-License-Identifier: Apache-2.0
//! Control: what the threads of a run and their supervisor share.

use crate::failure::Failure;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Why the load ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All that was asked for was done.
    Complete,
    /// A signal asked for it.
    Signal(&'static str),
    /// It could not go on.
    Failed(Failure),
}

/// How far the threads may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
#[repr(u8)]
pub(crate) enum State {
    /// Send requests.
    Run = 0,
    /// Send no more, wait for those in flight.
    Drain = 1,
    /// Do not even wait.
    Abandon = 2,
}

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
