// SPDX-License-Identifier: Apache-2.0
//! Every way a run can end badly: one sentence for the user and an exit code.

use crate::prelude::*;
use core::fmt;

/// Why the program stops, as the user reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The command line or the job file is wrong, or does not fit the device: nothing was started. Exit 2.
    Usage(String),
    /// The load or the check did not run to its end. Exit 1.
    Run {
        /// The sentence.
        message: String,
        /// The errno behind it, or 0.
        errno: i32,
    },
    /// What was read back is not what was written. Exit 4.
    Data(String),
}

impl Failure {
    /// A mistake in what was asked.
    pub fn usage(message: impl Into<String>) -> Self {
        Failure::Usage(message.into())
    }

    /// A run that did not end well, without an errno behind it.
    pub fn run(message: impl Into<String>) -> Self {
        Failure::Run { message: message.into(), errno: 0 }
    }

    /// The same failure, with what went wrong besides.
    pub fn and(self, also: &str) -> Self {
        self.told(|message| format!("{message}; {also}"))
    }

    /// The same failure, with the name of what it is about.
    pub fn of(self, name: &str) -> Self {
        self.told(|message| format!("{name}: {message}"))
    }

    fn told(self, how: impl Fn(String) -> String) -> Self {
        match self {
            Failure::Usage(message) => Failure::Usage(how(message)),
            Failure::Run { message, errno } => Failure::Run { message: how(message), errno },
            Failure::Data(message) => Failure::Data(how(message)),
        }
    }

    /// Return the exit code of the program.
    pub fn code(&self) -> u8 {
        match self {
            Failure::Run { .. } => 1,
            Failure::Usage(_) => 2,
            Failure::Data(_) => 4,
        }
    }

    /// Return the errno behind the failure, as fio's `error` field wants it; 0 when there is none.
    pub fn errno(&self) -> i32 {
        match self {
            Failure::Run { errno, .. } => *errno,
            _ => 0,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(message) | Failure::Run { message, .. } | Failure::Data(message) => {
                f.write_str(&without_number(message))
            }
        }
    }
}

impl core::error::Error for Failure {}

/// Take Rust's ` (os error 2)` off a system's sentence.
fn without_number(message: &str) -> String {
    match message.split_once(" (os error ") {
        Some((before, after)) => {
            format!("{before}{}", after.trim_start_matches(|c: char| c.is_ascii_digit() || c == ')'))
        }
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_systems_sentence_has_no_number() {
        let failure = Failure::Run { message: "cannot use x: No such file or directory (os error 2)".into(), errno: 2 };
        assert_eq!(failure.to_string(), "cannot use x: No such file or directory");
        assert_eq!((failure.errno(), failure.code()), (2, 1));
    }
}
