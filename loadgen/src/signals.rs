// SPDX-License-Identifier: Apache-2.0
//! Signals: SIGINT and SIGTERM end a run early, with a complete result.

use crate::failure::Failure;
use crate::system;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The last signal that asked us to end, if any.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    last: Arc<AtomicUsize>,
}

impl Signals {
    /// Listen from now on. The signals no longer kill the program.
    pub fn listen() -> Result<Self, Failure> {
        let signals = Signals::default();
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_usize(signal, Arc::clone(&signals.last), signal as usize)
                .map_err(|error| system::failure("cannot listen for signals", &error))?;
        }
        Ok(signals)
    }

    /// Return the name of the signal that asked us to end since the last call, if any.
    pub fn take(&self) -> Option<&'static str> {
        match self.last.swap(0, Ordering::Relaxed) as i32 {
            SIGINT => Some("SIGINT"),
            SIGTERM => Some("SIGTERM"),
            _ => None,
        }
    }
}
