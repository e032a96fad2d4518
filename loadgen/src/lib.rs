// SPDX-License-Identifier: Apache-2.0
//! `virtune-load`: disk load at the speed of a guest's virtio queue, without a guest.
//!
//! A load is described in fio's words ([`args`], [`job`]), sent by one thread for each queue ([`engine`]) through one
//! client for vhost-user and io_uring ([`driver`]), and reported in the shape of fio's `json+` ([`report`]). With a
//! journal every block is stamped ([`stamp`]), noted ([`journal`]) and can be read back ([`verify`]).

pub mod args;
pub mod chance;
pub mod check;
mod control;
mod crew;
pub mod driver;
pub mod engine;
pub mod failure;
pub mod histogram;
pub mod job;
pub mod journal;
pub mod logs;
pub mod medium;
pub mod pacing;
pub mod places;
pub mod quantity;
pub mod report;
pub mod signals;
mod spin;
pub mod stamp;
pub mod tally;
pub mod verify;
pub mod words;
mod worker;

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
