// SPDX-License-Identifier: Apache-2.0
//! The run as the load sees it: the clock of the guest, and the word of the host that ends it.

use crate::clock::Clock;
use crate::machine::relax;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use core::cell::{Cell, RefCell};
use core::time::Duration;
use virtune_load_core::run::{Ending, Run, State};
use virtune_load_core::tally::Usage;

/// How long a disk may complete nothing, unless the host says otherwise.
const PATIENCE: Duration = Duration::from_secs(15);

/// A handle on the run.
#[derive(Clone)]
pub struct Board(Rc<Inner>);

struct Inner {
    clock: Clock,
    start_ns: Cell<u64>,
    patience_ns: Cell<u64>,
    state: Cell<State>,
    ending: RefCell<Option<Ending>>,
    /// Where to see that the host has something to say, and what is there as long as it has not.
    word: Cell<Option<(u64, u16)>>,
}

impl Board {
    /// A run that has not begun.
    pub fn new(clock: Clock) -> Board {
        Board(Rc::new(Inner {
            clock,
            start_ns: Cell::new(0),
            patience_ns: Cell::new(PATIENCE.as_nanos() as u64),
            state: Cell::new(State::Run),
            ending: RefCell::new(None),
            word: Cell::new(None),
        }))
    }

    /// The run begins now; `word` is where the host's next word shows.
    pub fn begin(&self, patience: Duration, word: (u64, u16)) {
        self.0.word.set(Some(word));
        self.0.patience_ns.set(patience.as_nanos() as u64);
        self.0.start_ns.set(self.now());
    }

    /// How long a disk may complete nothing.
    pub fn patience_ns(&self) -> u64 {
        self.0.patience_ns.get()
    }

    /// Why the run ended.
    pub fn ending(&self) -> Ending {
        self.0.ending.borrow().clone().unwrap_or(Ending::Complete)
    }

    fn called(&self) -> bool {
        let Some((place, before)) = self.0.word.get() else { return false };
        // SAFETY: the index of the ring by which the host's words come, which lives as long as the guest.
        unsafe { (place as *const u16).read_volatile() != before }
    }
}

impl Run for Board {
    #[inline]
    fn now(&self) -> u64 {
        self.0.clock.now()
    }

    fn start_ns(&self) -> u64 {
        self.0.start_ns.get()
    }

    #[inline]
    fn state(&self) -> State {
        if self.0.state.get() == State::Run && self.called() {
            self.end(Ending::Signal("SIGTERM"), State::Drain);
        }
        self.0.state.get()
    }

    fn end(&self, ending: Ending, state: State) {
        let mut told = self.0.ending.borrow_mut();
        if told.is_none() || (matches!(ending, Ending::Failed(_)) && !matches!(*told, Some(Ending::Failed(_)))) {
            *told = Some(ending);
        }
        if state > self.0.state.get() {
            self.0.state.set(state);
        }
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
