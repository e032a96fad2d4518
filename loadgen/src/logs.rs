// SPDX-License-Identifier: Apache-2.0
//! Logs over time, in the form of fio's: `time in ms, value, direction, block, offset`.

use crate::failure::Failure;
use crate::job::Job;
use crate::report::Harvest;
use crate::system;
use crate::tally::Window;
use virtune_load_core::logs::{each, lines};

/// Make every log that the jobs ask for, still empty, so that a wrong path costs no run.
pub fn prepare(jobs: &[Job]) -> Result<(), Failure> {
    let clones = jobs.iter().flat_map(|job| std::iter::repeat_n(job, job.clones));
    for (number, job) in clones.enumerate() {
        let logs = &job.logs;
        for (prefix, kind) in
            [(&logs.iops, "iops"), (&logs.bandwidth, "bw"), (&logs.latency, "clat"), (&logs.latency, "lat")]
        {
            if let Some(prefix) = prefix {
                let path = path_of(prefix, kind, number);
                std::fs::File::create(&path)
                    .map_err(|error| Failure::usage(format!("cannot write the log {path}: {error}")))?;
            }
        }
    }
    Ok(())
}

fn path_of(prefix: &str, kind: &str, number: usize) -> String {
    format!("{prefix}_{kind}.{}.log", number + 1)
}

/// Write the logs that the jobs ask for, one file for each clone, or one for all when they are reported together.
pub fn write(jobs: &[Job], harvest: &Harvest) -> Result<(), Failure> {
    for (number, outcome) in harvest.outcomes.iter().enumerate() {
        let job = &jobs[outcome.job];
        let seconds = job.logs.every.as_secs_f64();
        let per_second = |window: &Window| window.ios as f64 / seconds;
        let mean = |sum: u64, window: &Window| if window.ios == 0 { 0.0 } else { sum as f64 / window.ios as f64 };
        let kib = job.block as f64 / 1024.0;
        let save = |prefix: &Option<String>, kind: &str, value: &dyn Fn(&Window) -> f64, empty: bool| match prefix {
            Some(prefix) => write_text(&path_of(prefix, kind, number), &lines(job, outcome, value, empty)),
            None => Ok(()),
        };
        save(&job.logs.iops, "iops", &per_second, true)?;
        save(&job.logs.bandwidth, "bw", &|window| per_second(window) * kib, true)?;
        if let (Some(prefix), true) = (&job.logs.latency, job.logs.each) {
            write_text(&path_of(prefix, "clat", number), &each(job, outcome, false))?;
            write_text(&path_of(prefix, "lat", number), &each(job, outcome, true))?;
            continue;
        }
        save(&job.logs.latency, "clat", &|window| mean(window.clat_ns, window), false)?;
        save(&job.logs.latency, "lat", &|window| mean(window.lat_ns, window), false)?;
    }
    Ok(())
}

fn write_text(path: &str, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| system::failure(format!("cannot write the log {path}"), &error))
}
