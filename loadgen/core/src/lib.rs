// SPDX-License-Identifier: Apache-2.0
//! What a load is, wherever it runs: as a program of a host (`virtune-load`) or as a guest of its own.
//!
//! A load is described in fio's words ([`jobfile`], [`job`]), dealt out to queues ([`plan`]), sent by one crew for each
//! queue ([`crew`], [`worker`]) and reported in the shape of fio's `json+` ([`report`]). Where it runs is behind three
//! traits ([`run`]): the queue that takes its requests, the clock and the end of the run, the journal of its writes.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod chance;
pub mod check;
pub mod crew;
pub mod failure;
pub mod histogram;
pub mod job;
pub mod jobfile;
pub mod logs;
pub mod pacing;
pub mod pattern;
pub mod places;
pub mod plan;
pub mod quantity;
pub mod record;
pub mod report;
pub mod run;
mod spin;
pub mod stamp;
pub mod tally;
pub mod words;
pub mod worker;

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What `std` gives every module for nothing.
mod prelude {
    pub(crate) use alloc::borrow::ToOwned;
    pub(crate) use alloc::boxed::Box;
    pub(crate) use alloc::string::{String, ToString};
    pub(crate) use alloc::vec::Vec;
    pub(crate) use alloc::{format, vec};
}
