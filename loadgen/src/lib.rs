// SPDX-License-Identifier: Apache-2.0
//! `virtune-load`: disk load at the speed of a guest's virtio queue, without a guest.
//!
//! A load is described in fio's words ([`args`], [`job`]), sent by one thread for each queue ([`engine`]) through one
//! client for vhost-user and io_uring ([`driver`]), and reported in the shape of fio's `json+` ([`report`]). With a
//! journal every block is stamped ([`stamp`]), noted ([`journal`]) and can be read back ([`verify`]).

pub mod args;
mod control;
pub mod driver;
pub mod engine;
pub mod journal;
pub mod logs;
pub mod medium;
pub mod signals;
pub mod system;
pub mod verify;

pub use virtune_load_core::{
    VERSION, chance, check, crew, failure, histogram, job, jobfile, pacing, pattern, places, plan, quantity, record,
    report, run, stamp, tally, words, worker,
};
