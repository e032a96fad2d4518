// SPDX-License-Identifier: Apache-2.0
//! The result of a load, in the shape of fio's `json+`.

use crate::check::Finding;
use crate::failure::Failure;
use crate::histogram::Histogram;
use crate::job::Job;
use crate::prelude::*;
use crate::run::Ending;
use crate::tally::{Depths, Side, Spread, Tally, Window, Windows};
use crate::worker::Outcome;
use core::time::Duration;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// EIO, the same on every Unix: what a failure without an errno is to those who only look at the number.
const EIO: i32 = 5;

/// What was counted over a time, under fio's names.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Use {
    /// As in fio.
    pub name: String,
    /// As in fio.
    pub read_ios: u64,
    /// As in fio.
    pub write_ios: u64,
    /// As in fio.
    pub read_sectors: u64,
    /// As in fio.
    pub write_sectors: u64,
    /// As in fio.
    pub read_merges: u64,
    /// As in fio.
    pub write_merges: u64,
    /// As in fio.
    pub read_ticks: u64,
    /// As in fio.
    pub write_ticks: u64,
    /// As in fio.
    pub in_queue: u64,
    /// As in fio.
    pub util: f64,
}

/// What a whole run brought home.
pub struct Harvest {
    /// One for each clone, in the order of the jobs and their clones.
    pub outcomes: Vec<Outcome>,
    /// How many queues they had.
    pub queues: usize,
    /// Why it ended.
    pub ending: Ending,
    /// The seed that was used.
    pub seed: u64,
    /// The size of the disk in bytes.
    pub capacity: u64,
    /// What the kernel counted on the device that a file lies on, over the time that counts.
    pub medium: Option<Use>,
    /// How writes with `sync=1` were made durable.
    pub durable_by: &'static str,
}

/// A JSON object whose keys keep their order.
#[derive(Clone, Debug)]
pub struct Ordered<T>(Vec<(String, T)>);

impl<T: Serialize> Serialize for Ordered<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// The whole result.
#[derive(Serialize)]
pub struct Report {
    #[serde(rename = "fio version")]
    version: String,
    timestamp: u64,
    timestamp_ms: u64,
    time: String,
    jobs: Vec<JobReport>,
    disk_util: Vec<Use>,
    #[serde(rename = "virtune-load")]
    own: Own,
}

/// What fio has no word for.
#[derive(Serialize)]
struct Own {
    driver: &'static str,
    path: String,
    capacity_bytes: u64,
    queues: usize,
    poll: bool,
    open_loop: bool,
    seed: u64,
    /// How a write with sync=1 was made durable.
    #[serde(skip_serializing_if = "Option::is_none")]
    sync_by: Option<&'static str>,
    /// `complete`, the name of a signal, or `error`.
    ended_by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// Starts that were intended before the end but never sent (open loop).
    unsent_ios: u64,
    /// What was in flight when the server went away.
    in_flight: Vec<PendingReport>,
    /// Reads of stamped blocks that did not hold what they should.
    bad_blocks: u64,
    findings: Vec<Finding>,
}

#[derive(Serialize)]
struct PendingReport {
    kind: &'static str,
    offset: u64,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u32>,
}

#[derive(Serialize)]
struct JobReport {
    jobname: String,
    groupid: u32,
    error: i32,
    eta: u32,
    elapsed: u64,
    #[serde(rename = "job options")]
    options: Ordered<String>,
    read: SideReport,
    write: SideReport,
    trim: SideReport,
    sync: SyncReport,
    job_runtime: u64,
    usr_cpu: f64,
    sys_cpu: f64,
    ctx: i64,
    majf: i64,
    minf: i64,
    iodepth_level: Ordered<f64>,
    iodepth_submit: Ordered<f64>,
    iodepth_complete: Ordered<f64>,
    latency_ns: Ordered<f64>,
    latency_us: Ordered<f64>,
    latency_ms: Ordered<f64>,
    latency_depth: usize,
}

#[derive(Serialize)]
struct SideReport {
    io_bytes: u64,
    io_kbytes: u64,
    bw_bytes: u64,
    bw: u64,
    iops: f64,
    runtime: u64,
    total_ios: u64,
    short_ios: u64,
    drop_ios: u64,
    slat_ns: Latency,
    clat_ns: Latency,
    lat_ns: Latency,
    bw_min: u64,
    bw_max: u64,
    bw_agg: f64,
    bw_mean: f64,
    bw_dev: f64,
    bw_samples: u64,
    iops_min: u64,
    iops_max: u64,
    iops_mean: f64,
    iops_stddev: f64,
    iops_samples: u64,
}

#[derive(Serialize)]
struct SyncReport {
    total_ios: u64,
    lat_ns: Latency,
}

#[derive(Serialize)]
struct Latency {
    min: u64,
    max: u64,
    mean: f64,
    stddev: f64,
    #[serde(rename = "N")]
    count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    percentile: Option<Ordered<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bins: Option<Ordered<u64>>,
}

/// Make the result of a load; `now` is the time since 1970, `bins` decides between `json+` and `json`.
pub fn report(jobs: &[Job], harvest: &Harvest, now: Duration, bins: bool) -> Report {
    let first = &jobs[0];
    let (ended_by, message) = match &harvest.ending {
        Ending::Complete => ("complete".to_owned(), None),
        Ending::Signal(name) => ((*name).to_owned(), None),
        Ending::Failed(failure) => ("error".to_owned(), Some(failure.to_string())),
    };
    let error = match &harvest.ending {
        Ending::Failed(failure @ Failure::Run { .. }) if failure.errno() == 0 => EIO,
        Ending::Failed(failure) => failure.errno(),
        _ => 0,
    };
    let groups = groups(jobs, &harvest.outcomes);
    Report {
        version: format!("virtune-load-{}", crate::VERSION),
        timestamp: now.as_secs(),
        timestamp_ms: now.as_millis() as u64,
        time: calendar(now.as_secs()),
        jobs: groups.iter().map(|(number, group)| job_report(jobs, *number, group, error, bins)).collect(),
        disk_util: harvest.medium.iter().cloned().collect(),
        own: Own {
            driver: first.place.driver.name(),
            path: first.place.path.clone(),
            capacity_bytes: harvest.capacity,
            queues: harvest.queues,
            poll: first.place.poll,
            open_loop: jobs.iter().any(Job::open_loop),
            seed: harvest.seed,
            sync_by: jobs.iter().any(|job| job.sync).then_some(harvest.durable_by),
            ended_by,
            message,
            unsent_ios: harvest.outcomes.iter().map(|outcome| outcome.tally.unsent).sum(),
            in_flight: harvest
                .outcomes
                .iter()
                .flat_map(|outcome| &outcome.pending)
                .map(|pending| PendingReport {
                    kind: pending.kind,
                    offset: pending.offset,
                    bytes: pending.bytes,
                    generation: pending.generation,
                })
                .collect(),
            bad_blocks: harvest.outcomes.iter().map(|outcome| outcome.bad_blocks).sum(),
            findings: harvest
                .outcomes
                .iter()
                .flat_map(|outcome| outcome.findings.iter().cloned())
                .take(crate::check::FINDINGS_MAX)
                .collect(),
        },
    }
}

/// Put together what is reported together: neighbours of the same group, where group_reporting is on.
fn groups<'a>(jobs: &[Job], outcomes: &'a [Outcome]) -> Vec<(u32, Vec<&'a Outcome>)> {
    let mut groups: Vec<(u32, Vec<&Outcome>)> = Vec::new();
    let (mut number, mut last_job) = (0, 0);
    for outcome in outcomes {
        let job = &jobs[outcome.job];
        if outcome.job != last_job && job.new_group {
            number += 1;
        }
        last_job = outcome.job;
        match groups.last_mut() {
            Some((last, group)) if *last == number && job.grouped && jobs[group[0].job].grouped => group.push(outcome),
            _ => groups.push((number, vec![outcome])),
        }
    }
    groups
}

fn job_report(jobs: &[Job], number: u32, group: &[&Outcome], error: i32, bins: bool) -> JobReport {
    let job = &jobs[group[0].job];
    let mut sum = group[0].tally.clone();
    for outcome in &group[1..] {
        sum.merge(&outcome.tally);
    }
    let seconds = sum.seconds();
    // fio gives CPU time as a share of the added run times of a group's threads
    let thread_seconds: f64 = group.iter().map(|outcome| outcome.tally.seconds()).sum();
    let share = |used: f64| if thread_seconds > 0.0 { 100.0 * used / thread_seconds } else { 0.0 };
    let side = |index: usize| side_report(&sum, index, group, job, bins);
    let reads_and_writes = {
        let mut all = sum.sides[0].lat_or_clat(job).clone();
        all.merge(sum.sides[1].lat_or_clat(job));
        all
    };
    JobReport {
        jobname: job.name.clone(),
        groupid: number,
        error,
        eta: 0,
        elapsed: libm::ceil(seconds + job.ramp.as_secs_f64()) as u64,
        options: Ordered(job.options.clone()),
        read: side(0),
        write: side(1),
        trim: SideReport::empty(),
        sync: SyncReport {
            total_ios: sum.sync.count(),
            lat_ns: latency(&sum.sync, Some(&sum.sync_bins), &job.percentiles, bins),
        },
        job_runtime: libm::round(thread_seconds * 1e3) as u64,
        usr_cpu: share(sum.usage.user_seconds),
        sys_cpu: share(sum.usage.system_seconds),
        ctx: sum.usage.switches,
        majf: sum.usage.major_faults,
        minf: sum.usage.minor_faults,
        iodepth_level: shares(&sum.depth, ["1", "2", "4", "8", "16", "32", ">=64"]),
        iodepth_submit: shares(&sum.submit, ["0", "4", "8", "16", "32", "64", ">=64"]),
        iodepth_complete: shares(&sum.complete, ["0", "4", "8", "16", "32", "64", ">=64"]),
        latency_ns: classes(&reads_and_writes, 1, 0),
        latency_us: classes(&reads_and_writes, 1_000, 1_000),
        latency_ms: classes(&reads_and_writes, 1_000_000, 1_000_000),
        latency_depth: job.depth,
    }
}

impl Side {
    fn lat_or_clat(&self, job: &Job) -> &Histogram {
        if job.lat_bins { &self.lat_bins } else { &self.clat_bins }
    }
}

fn side_report(sum: &Tally, index: usize, group: &[&Outcome], job: &Job, bins: bool) -> SideReport {
    let side = &sum.sides[index];
    let seconds = sum.seconds();
    let rate = |amount: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
    let ios = side.ios();
    if ios == 0 {
        return SideReport::empty();
    }
    let block = side.bytes as f64 / ios as f64;
    let per_second = samples(group, index);
    let rates = Rates::of(&per_second);
    let bandwidths = Rates::of(&per_second.iter().map(|iops| iops * block / 1024.0).collect::<Vec<_>>());
    SideReport {
        io_bytes: side.bytes,
        io_kbytes: side.bytes >> 10,
        bw_bytes: rate(side.bytes as f64) as u64,
        bw: rate(side.bytes as f64 / 1024.0) as u64,
        iops: rate(ios as f64),
        runtime: libm::round(seconds * 1e3) as u64,
        total_ios: ios,
        short_ios: 0,
        drop_ios: 0,
        slat_ns: latency(&side.slat, None, &[], bins),
        clat_ns: latency(&side.clat, job.clat_bins.then_some(&side.clat_bins), &job.percentiles, bins),
        lat_ns: latency(&side.lat, job.lat_bins.then_some(&side.lat_bins), &job.percentiles, bins),
        bw_min: bandwidths.least as u64,
        bw_max: bandwidths.most as u64,
        bw_agg: 100.0,
        bw_mean: bandwidths.mean,
        bw_dev: bandwidths.deviation,
        bw_samples: per_second.len() as u64,
        iops_min: rates.least as u64,
        iops_max: rates.most as u64,
        iops_mean: rates.mean,
        iops_stddev: rates.deviation,
        iops_samples: per_second.len() as u64,
    }
}

impl SideReport {
    fn empty() -> Self {
        let none = || latency(&Spread::default(), None, &[], false);
        SideReport {
            io_bytes: 0,
            io_kbytes: 0,
            bw_bytes: 0,
            bw: 0,
            iops: 0.0,
            runtime: 0,
            total_ios: 0,
            short_ios: 0,
            drop_ios: 0,
            slat_ns: none(),
            clat_ns: none(),
            lat_ns: none(),
            bw_min: 0,
            bw_max: 0,
            bw_agg: 0.0,
            bw_mean: 0.0,
            bw_dev: 0.0,
            bw_samples: 0,
            iops_min: 0,
            iops_max: 0,
            iops_mean: 0.0,
            iops_stddev: 0.0,
            iops_samples: 0,
        }
    }
}

/// Add windows of several threads side by side: as many as all of them completed.
pub fn side_by_side<'a>(windows: impl Iterator<Item = (&'a Windows, u64)>) -> Vec<Window> {
    let mut sums: Option<Vec<Window>> = None;
    for (windows, end_ns) in windows {
        let complete = windows.complete(end_ns);
        match &mut sums {
            None => sums = Some(complete),
            Some(sums) => {
                sums.truncate(complete.len());
                for (sum, window) in sums.iter_mut().zip(complete) {
                    sum.ios += window.ios;
                    sum.clat_ns += window.clat_ns;
                    sum.lat_ns += window.lat_ns;
                }
            }
        }
    }
    sums.unwrap_or_default()
}

fn samples(group: &[&Outcome], index: usize) -> Vec<f64> {
    let windows = group.iter().map(|outcome| (&outcome.tally.sides[index].samples, outcome.tally.end_ns));
    let length = crate::tally::SAMPLE.as_secs_f64();
    side_by_side(windows).iter().map(|window| window.ios as f64 / length).collect()
}

struct Rates {
    least: f64,
    most: f64,
    mean: f64,
    deviation: f64,
}

impl Rates {
    fn of(values: &[f64]) -> Rates {
        let count = values.len() as f64;
        let mean = if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / count };
        let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
        Rates {
            least: values.iter().copied().reduce(f64::min).unwrap_or(0.0),
            most: values.iter().copied().reduce(f64::max).unwrap_or(0.0),
            mean,
            deviation: if values.len() > 1 { libm::sqrt(squares / (count - 1.0)) } else { 0.0 },
        }
    }
}

fn latency(spread: &Spread, histogram: Option<&Histogram>, percentiles: &[f64], bins: bool) -> Latency {
    let counted = histogram.filter(|_| spread.count() > 0);
    Latency {
        min: spread.least(),
        max: spread.most(),
        mean: spread.mean(),
        stddev: spread.deviation(),
        count: spread.count(),
        percentile: counted.map(|histogram| {
            Ordered(
                percentiles
                    .iter()
                    .map(|&percent| (format!("{percent:.6}"), histogram.percentile(percent).unwrap_or(0)))
                    .collect(),
            )
        }),
        bins: counted
            .filter(|_| bins)
            .map(|histogram| Ordered(histogram.bins().map(|(value, count)| (value.to_string(), count)).collect())),
    }
}

fn shares(counts: &Depths, names: [&str; 7]) -> Ordered<f64> {
    let all = counts.iter().sum::<u64>().max(1) as f64;
    Ordered(names.iter().zip(counts).map(|(name, &count)| ((*name).to_owned(), 100.0 * count as f64 / all)).collect())
}

/// The share of latencies in fio's coarse classes of a unit, from the bins; `from` is where the finer unit ends.
fn classes(histogram: &Histogram, unit: u64, from: u64) -> Ordered<f64> {
    const EDGES: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];
    let all = histogram.count().max(1) as f64;
    let millis = unit == 1_000_000;
    let mut counts = [0u64; 12];
    for (value, count) in histogram.bins() {
        if value < from {
            continue;
        }
        // fio: a class holds what is below its edge
        let place = EDGES.iter().position(|&edge| value < edge * unit);
        match place {
            Some(place) => counts[place] += count,
            None if millis && value < 2_000 * unit => counts[10] += count,
            None if millis => counts[11] += count,
            None => {}
        }
    }
    let names = EDGES.iter().map(u64::to_string).chain(["2000".to_owned(), ">=2000".to_owned()]);
    Ordered(
        names
            .zip(counts)
            .take(if millis { 12 } else { 10 })
            .map(|(name, count)| (name, 100.0 * count as f64 / all))
            .collect(),
    )
}

/// Write a time of the day as C's `ctime` does, in UTC.
fn calendar(seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // counted from 1 March of the year 0, so that the leap day is the last of its year
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = (shifted_month + 2) % 12;
    let year = year_of_era + era * 400 + u64::from(month < 2);
    format!(
        "{} {} {day:2} {:02}:{:02}:{:02} {year}",
        DAYS[(days % 7) as usize],
        MONTHS[month as usize],
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calendar_is_right() {
        assert_eq!(calendar(0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(calendar(951_782_400), "Tue Feb 29 00:00:00 2000");
        assert_eq!(calendar(1_795_298_623), "Sat Nov 21 22:03:43 2026");
    }

    #[test]
    fn cpu_shares_are_of_all_threads_run_time() {
        let options = [("ioengine", "io_uring"), ("filename", "disk"), ("rw", "randread")];
        let job = Job::read("j", &options.map(|(key, value)| (key.to_owned(), value.to_owned()))).unwrap();
        let outcome = |seconds: u64| {
            let mut tally = crate::tally::Tally::new(0, None);
            tally.end_ns = seconds * 1_000_000_000;
            tally.usage.user_seconds = 2.0;
            tally.usage.system_seconds = 0.5;
            Outcome { job: 0, tally, pending: Vec::new(), findings: Vec::new(), bad_blocks: 0 }
        };
        let (short, long) = (outcome(4), outcome(16));
        let report = job_report(&[job], 0, &[&short, &long], 0, false);
        // 2 x 2 s of user time in 4 s + 16 s of threads, although the run was over after 16 s
        assert!((report.usr_cpu - 20.0).abs() < 1e-9, "{}", report.usr_cpu);
        assert!((report.sys_cpu - 5.0).abs() < 1e-9, "{}", report.sys_cpu);
        assert_eq!(report.job_runtime, 20_000);
    }

    #[test]
    fn coarse_classes_are_fios_and_add_up() {
        let mut histogram = Histogram::default();
        for value in [1, 3, 600, 5_000, 30_000, 2_500_000, 3_000_000_000] {
            histogram.record(value);
        }
        let sum: f64 =
            [classes(&histogram, 1, 0), classes(&histogram, 1_000, 1_000), classes(&histogram, 1_000_000, 1_000_000)]
                .iter()
                .flat_map(|ordered| ordered.0.iter().map(|(_, share)| *share))
                .sum();
        assert!((sum - 100.0).abs() < 1e-9, "{sum}");
    }

    #[test]
    fn nothing_counted_is_all_zeros_and_no_bins() {
        let text = serde_json::to_string(&SideReport::empty()).unwrap();
        assert!(text.contains("\"total_ios\":0") && !text.contains("bins"));
    }
}
