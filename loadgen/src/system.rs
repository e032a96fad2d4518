// SPDX-License-Identifier: Apache-2.0
//! The system below: its errors as failures, what it counted of a thread.

use crate::failure::Failure;
use crate::tally::Usage;
use nix::sys::resource::{UsageWho, getrusage};
use std::fmt;

/// A run that did not end well because of an I/O error: `what` failed with `error`.
pub fn failure(what: impl fmt::Display, error: &std::io::Error) -> Failure {
    Failure::Run { message: format!("{what}: {error}"), errno: error.raw_os_error().unwrap_or(0) }
}

/// What the kernel counted of this thread.
pub(crate) fn thread_usage() -> Usage {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_THREAD) else {
        return Usage::default();
    };
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Usage {
        user_seconds: seconds(usage.user_time()),
        system_seconds: seconds(usage.system_time()),
        switches: usage.voluntary_context_switches() + usage.involuntary_context_switches(),
        major_faults: usage.major_page_faults(),
        minor_faults: usage.minor_page_faults(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_systems_error_is_a_failure_with_its_number() {
        let failure = failure("cannot use x", &std::io::Error::from_raw_os_error(2));
        assert_eq!(failure.to_string(), "cannot use x: No such file or directory");
        assert_eq!((failure.errno(), failure.code()), (2, 1));
    }
}
