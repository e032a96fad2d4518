// SPDX-License-Identifier: Apache-2.0
//! Lines of logs over time, in the form of fio's: `time in ms, value, direction, block, offset`.

use crate::job::Job;
use crate::prelude::*;
use crate::tally::{Each, Window};
use crate::worker::Outcome;
use core::fmt::Write as _;

/// The log of I/Os a second.
pub fn iops(job: &Job, outcome: &Outcome) -> String {
    let seconds = job.logs.every.as_secs_f64();
    lines(job, outcome, &|window| window.ios as f64 / seconds, true)
}

/// A line for each request that was recorded, with its whole latency in nanoseconds or that of its completion alone.
pub fn each(job: &Job, outcome: &Outcome, whole: bool) -> String {
    let mut text = String::new();
    for Each { times, direction, offset } in outcome.tally.each.iter().flatten() {
        let time = times.ended_ns.saturating_sub(outcome.tally.start_ns) / 1_000_000;
        let value = times.ended_ns - if whole { times.ready_ns } else { times.sent_ns };
        let _ = writeln!(text, "{time}, {value}, {}, {}, {offset}", *direction as usize, job.block);
    }
    text
}

/// One line for each window and direction; a rate of zero is a line, a latency of nothing (`empty` false) is none.
pub fn lines(job: &Job, outcome: &Outcome, value: &dyn Fn(&Window) -> f64, empty: bool) -> String {
    let directions = [job.pattern.reads, job.pattern.writes];
    let windows: Vec<Vec<Window>> = outcome
        .tally
        .sides
        .iter()
        .map(|side| side.log.as_ref().map(|log| log.complete(outcome.tally.end_ns)).unwrap_or_default())
        .collect();
    let count = windows.iter().map(Vec::len).max().unwrap_or(0);
    let mut text = String::new();
    for index in 0..count {
        let time = (index as u128 + 1) * job.logs.every.as_millis();
        for (direction, windows) in windows.iter().enumerate().filter(|(direction, _)| directions[*direction]) {
            match windows.get(index) {
                Some(window) if empty || window.ios > 0 => {
                    let _ = writeln!(text, "{time}, {:.0}, {direction}, 0, 0", value(window));
                }
                _ => {}
            }
        }
    }
    text
}
