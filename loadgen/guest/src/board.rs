// SPDX-License-Identifier: Apache-2.0
//! The run as the load sees it: the clock of the guest, and the word of the host that ends it.

use crate::clock::Clock;
use crate::lock::Lock;
use crate::machine::relax;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, Ordering};
use core::time::Duration;
use virtune_load_core::run::{Ending, Run, State};
use virtune_load_core::tally::Usage;

/// How long a disk may complete nothing, unless the host says otherwise.
const PATIENCE: Duration = Duration::from_secs(15);

/// A handle on the run, which all CPUs share.
#[derive(Clone)]
pub struct Board(Arc<Inner>);

struct Inner {
    clock: Clock,
    begun: AtomicBool,
    start_ns: AtomicU64,
    patience_ns: AtomicU64,
    state: AtomicU8,
    ending: Lock<Option<Ending>>,
    /// Where to see that the host has something to say (zero: nowhere), and what is there as long as it has not.
    word: AtomicU64,
    unsaid: AtomicU16,
}

impl Board {
    /// A run that has not begun.
    pub fn new(clock: Clock) -> Board {
        Board(Arc::new(Inner {
            clock,
            begun: AtomicBool::new(false),
            start_ns: AtomicU64::new(0),
            patience_ns: AtomicU64::new(PATIENCE.as_nanos() as u64),
            state: AtomicU8::new(State::Run as u8),
            ending: Lock::new(None),
            word: AtomicU64::new(0),
            unsaid: AtomicU16::new(0),
        }))
    }

    /// The run begins now; `word` is where the host's next word shows.
    pub fn begin(&self, patience: Duration, word: (u64, u16)) {
        self.0.unsaid.store(word.1, Ordering::Relaxed);
        self.0.word.store(word.0, Ordering::Relaxed);
        self.0.patience_ns.store(patience.as_nanos() as u64, Ordering::Relaxed);
        self.0.start_ns.store(self.now(), Ordering::Relaxed);
        self.0.begun.store(true, Ordering::Release);
    }

    /// Wait until the run begins.
    pub fn wait(&self) {
        while !self.0.begun.load(Ordering::Acquire) {
            relax();
        }
    }

    /// End a run that has not begun: whoever waits for it finds nothing to do.
    pub fn cancel(&self) {
        self.end(Ending::Signal("SIGTERM"), State::Abandon);
        self.0.begun.store(true, Ordering::Release);
    }

    /// How long a disk may complete nothing.
    pub fn patience_ns(&self) -> u64 {
        self.0.patience_ns.load(Ordering::Relaxed)
    }

    /// Why the run ended.
    pub fn ending(&self) -> Ending {
        self.0.ending.with(|ending| ending.clone()).unwrap_or(Ending::Complete)
    }

    fn called(&self) -> bool {
        let place = self.0.word.load(Ordering::Relaxed);
        // SAFETY: the index of the ring by which the host's words come, which lives as long as the guest.
        place != 0 && unsafe { (place as *const u16).read_volatile() } != self.0.unsaid.load(Ordering::Relaxed)
    }
}

impl Run for Board {
    #[inline]
    fn now(&self) -> u64 {
        self.0.clock.now()
    }

    fn start_ns(&self) -> u64 {
        self.0.start_ns.load(Ordering::Relaxed)
    }

    #[inline]
    fn state(&self) -> State {
        if self.0.state.load(Ordering::Relaxed) == State::Run as u8 && self.called() {
            self.end(Ending::Signal("SIGTERM"), State::Drain);
        }
        match self.0.state.load(Ordering::Relaxed) {
            0 => State::Run,
            1 => State::Drain,
            _ => State::Abandon,
        }
    }

    fn end(&self, ending: Ending, state: State) {
        self.0.ending.with(|told| {
            if told.is_none() || (matches!(ending, Ending::Failed(_)) && !matches!(*told, Some(Ending::Failed(_)))) {
                *told = Some(ending);
            }
        });
        self.0.state.fetch_max(state as u8, Ordering::Relaxed);
    }

    /// Nothing counts CPU time here: the host does.
    fn usage(&self) -> Usage {
        Usage::default()
    }

    fn sleep(&self, limit: Duration) {
        let end = self.now() + limit.as_nanos() as u64;
        while self.now() < end && !self.called() {
            relax();
        }
    }

    fn punctual(&self) {}

    fn explain(&self, errno: i32) -> String {
        match errno {
            5 => "Input/output error".to_string(),
            95 => "Operation not supported".to_string(),
            other => format!("error {other}"),
        }
    }
}
