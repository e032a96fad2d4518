// SPDX-License-Identifier: Apache-2.0
//! A job: what is asked of the disk, in fio's words.

use crate::failure::Failure;
use crate::histogram::PERCENTILES;
use crate::pacing::Process;
use crate::prelude::*;
use crate::quantity;
use crate::words::{find, unknown};
use core::time::Duration;

/// Which way the data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the disk.
    Read,
    /// To the disk.
    Write,
}

/// fio's `rw`, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Whether places are drawn at random.
    pub random: bool,
    /// Whether it reads.
    pub reads: bool,
    /// Whether it writes.
    pub writes: bool,
}

/// Where random requests go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Every place as often as every other.
    Uniform,
    /// By Zipf's law with this theta.
    Zipf(f64),
}

/// So many requests of a clone can be recorded one by one.
const RECORDED_MAX: u64 = 1_000_000;

/// How we reach the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// As a guest's driver: a virtio-blk queue over a vhost-user socket.
    VhostUser,
    /// As a program on the host: io_uring on a file or block device.
    IoUring,
    /// As a guest itself: the disk of its own machine, on this bus.
    Guest(Bus),
}

/// What kind of disk a guest sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bus {
    /// A virtio-blk device.
    VirtioBlk,
    /// A disk behind a virtio-scsi controller.
    VirtioScsi,
    /// An NVMe controller with one namespace.
    Nvme,
}

impl Bus {
    /// Its name, which is an ioengine too.
    pub fn name(self) -> &'static str {
        match self {
            Bus::VirtioBlk => "virtio-blk",
            Bus::VirtioScsi => "virtio-scsi",
            Bus::Nvme => "nvme",
        }
    }
}

impl Driver {
    /// The driver's name: blkio's, or that of a guest's bus.
    pub fn name(self) -> &'static str {
        match self {
            Driver::VhostUser => "virtio-blk-vhost-user",
            Driver::IoUring => "io_uring",
            Driver::Guest(bus) => bus.name(),
        }
    }
}

/// Where a job's I/O goes; the same for all jobs of a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The driver.
    pub driver: Driver,
    /// The socket, file or device.
    pub path: String,
    /// Whether to go around the host's page cache (io_uring only).
    pub direct: bool,
    /// Whether to poll for completions.
    pub poll: bool,
}

/// What is asked of the disk by one job and its clones.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its name in the result.
    pub name: String,
    /// The options as they were given, for the result.
    pub options: Vec<(String, String)>,
    /// Where the I/O goes.
    pub place: Place,
    /// Sequential or random, reads, writes or both.
    pub pattern: Pattern,
    /// Percentage of reads in a mix.
    pub read_percent: u64,
    /// Bytes of one request.
    pub block: u64,
    /// Requests in flight on each queue.
    pub depth: usize,
    /// Requests handed to the device at once, at most.
    pub batch: usize,
    /// Ended requests looked at together, at most.
    pub batch_ended: usize,
    /// Queues and threads.
    pub clones: usize,
    /// Where the span of the first clone starts.
    pub offset: u64,
    /// How much further each clone's span starts.
    pub offset_increment: u64,
    /// Bytes of the span; None is to the end of the disk.
    pub size: Option<u64>,
    /// Reads and writes after which a clone stops.
    pub ios: Option<u64>,
    /// How long, at most.
    pub runtime: Option<Duration>,
    /// Whether only time ends the job.
    pub time_based: bool,
    /// How long the start is not counted.
    pub ramp: Duration,
    /// Offered reads and writes a second, for each clone.
    pub rates: [Option<u64>; 2],
    /// How offered starts are spread.
    pub process: Process,
    /// Where random requests go.
    pub distribution: Distribution,
    /// The seed that was given.
    pub seed: Option<u64>,
    /// Whether a load without a given seed repeats the last one.
    pub repeat: bool,
    /// Flush after this many writes; 0 is never.
    pub fsync: u64,
    /// Whether a flush follows the last write.
    pub end_fsync: bool,
    /// Whether each write is durable before it counts as done.
    pub sync: bool,
    /// Whether each write gets new contents.
    pub refill: bool,
    /// Whether each write is of zeros.
    pub zeros: bool,
    /// The mark of the pattern that writes hold and reads must find.
    pub mark: Option<[u8; 8]>,
    /// Whether all jobs of a group are reported as one.
    pub grouped: bool,
    /// Whether a new group begins here.
    pub new_group: bool,
    /// Whether the result has percentiles and bins of `clat`.
    pub clat_bins: bool,
    /// Whether the result has percentiles and bins of `lat`.
    pub lat_bins: bool,
    /// The percentiles that are printed, ascending.
    pub percentiles: Vec<f64>,
    /// Prefixes of the logs.
    pub logs: Logs,
}

/// Which logs are written, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logs {
    /// Prefix of the log of I/Os a second.
    pub iops: Option<String>,
    /// Prefix of the log of bandwidth.
    pub bandwidth: Option<String>,
    /// Prefix of the logs of latency.
    pub latency: Option<String>,
    /// How long one line lasts.
    pub every: Duration,
    /// Whether the log of latency has a line for each request.
    pub each: bool,
}

impl Logs {
    /// Whether any log is written.
    pub fn any(&self) -> bool {
        self.iops.is_some() || self.bandwidth.is_some() || self.latency.is_some()
    }
}

impl Job {
    /// Read a job from its options, in order; a later one wins.
    pub fn read(name: &str, options: &[(String, String)]) -> Result<Job, Failure> {
        let mut draft = Draft::new(name);
        for (key, value) in options {
            draft.set(key, value).map_err(|reason| Failure::usage(format!("{key}: {reason}")))?;
        }
        draft.finish(options)
    }

    /// Whether requests start by a timetable instead of when a slot is free.
    pub fn open_loop(&self) -> bool {
        self.rates.iter().any(Option::is_some)
    }
}

/// A job that is being read: what is known so far.
struct Draft {
    job: Job,
    engine: Option<String>,
    blkio_driver: Option<String>,
    filename: Option<String>,
    direct: Option<bool>,
    invalidate: bool,
    fdatasync: u64,
    verify: bool,
    clat_percentiles: Option<bool>,
    lat_percentiles: Option<bool>,
    rates: Vec<Option<u64>>,
}

/// More in flight on one queue than a virtqueue of the largest size (32768 descriptors, three for a request) can hold.
const DEPTH_MAX: u64 = 8192;
/// More queues than any device has.
const CLONES_MAX: u64 = 512;
/// Larger requests than any host takes in one piece.
const BLOCK_MAX: u64 = 64 << 20;
/// As many as fio takes.
const PERCENTILES_MAX: usize = 20;
/// One start every nanosecond is more than a clock can tell apart.
const RATE_MAX: u64 = 100_000_000;

impl Draft {
    fn new(name: &str) -> Self {
        Draft {
            job: Job {
                name: name.to_owned(),
                options: Vec::new(),
                place: Place { driver: Driver::IoUring, path: String::new(), direct: true, poll: false },
                pattern: Pattern { random: false, reads: true, writes: false },
                read_percent: 50,
                block: 4096,
                depth: 1,
                batch: 1,
                batch_ended: 1,
                clones: 1,
                offset: 0,
                offset_increment: 0,
                size: None,
                ios: None,
                runtime: None,
                time_based: false,
                ramp: Duration::ZERO,
                rates: [None, None],
                process: Process::Linear,
                distribution: Distribution::Uniform,
                seed: None,
                repeat: true,
                fsync: 0,
                end_fsync: false,
                sync: false,
                refill: false,
                zeros: false,
                mark: None,
                grouped: false,
                new_group: false,
                clat_bins: true,
                lat_bins: false,
                percentiles: PERCENTILES.to_vec(),
                logs: Logs { iops: None, bandwidth: None, latency: None, every: Duration::from_secs(1), each: false },
            },
            engine: None,
            blkio_driver: None,
            filename: None,
            direct: None,
            invalidate: false,
            fdatasync: 0,
            verify: false,
            clat_percentiles: None,
            lat_percentiles: None,
            rates: Vec::new(),
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let job = &mut self.job;
        let word = find(key).ok_or_else(|| unknown(key))?;
        match word.name {
            "name" => job.name = text(value)?,
            "ioengine" => self.engine = Some(text(value)?),
            "filename" | "libblkio_path" => self.filename = Some(text(value)?),
            "libblkio_driver" => self.blkio_driver = Some(text(value)?),
            "direct" => self.direct = Some(switch(value)?),
            "hipri" => job.place.poll = switch(value)?,
            "rw" => job.pattern = pattern(value)?,
            "rwmixread" => job.read_percent = number(value, 0, 100)?,
            "rwmixwrite" => job.read_percent = 100 - number(value, 0, 100)?,
            "bs" => job.block = block(value)?,
            "iodepth" => job.depth = number(value, 1, DEPTH_MAX)? as usize,
            "iodepth_batch" => job.batch = number(value, 1, DEPTH_MAX)? as usize,
            "iodepth_batch_complete_max" => job.batch_ended = number(value, 1, DEPTH_MAX)? as usize,
            "numjobs" => job.clones = number(value, 1, CLONES_MAX)? as usize,
            "offset" => job.offset = quantity::size(value)?,
            "offset_increment" => job.offset_increment = quantity::size(value)?,
            "size" => job.size = Some(positive(quantity::size(value)?)?),
            "number_ios" => job.ios = Some(positive(number(value, 0, u64::MAX)?)?),
            "runtime" => job.runtime = Some(long_enough(quantity::time(value)?)?),
            "time_based" => job.time_based = switch(value)?,
            "ramp_time" => job.ramp = quantity::time(value)?,
            "rate_iops" => self.rates = rates(value)?,
            "rate_process" => job.process = process(value)?,
            "random_distribution" => job.distribution = distribution(value)?,
            "norandommap" => must_be_on(value, "places are drawn anew each time, as with norandommap=1")?,
            "description" => {}
            "thread" => must_be_on(value, "clones are threads here")?,
            "allow_file_create" if switch(value)? => return Err("no file is created here; make it first".to_owned()),
            "allow_file_create" => {}
            "invalidate" => self.invalidate = switch(value)?,
            "fdatasync" => self.fdatasync = number(value, 0, u64::MAX)?,
            "zero_buffers" => job.zeros = switch(value)?,
            "verify" if value == "pattern" => self.verify = true,
            "verify" => return Err("here is only verify=pattern".to_owned()),
            "verify_pattern" => job.mark = Some(mark(value)?),
            "new_group" => job.new_group = switch(value)?,
            "clat_percentiles" => self.clat_percentiles = Some(switch(value)?),
            "lat_percentiles" => self.lat_percentiles = Some(switch(value)?),
            "percentile_list" => job.percentiles = percentiles(value)?,
            "randseed" => job.seed = Some(number(value, 0, u64::MAX)?),
            "randrepeat" => job.repeat = switch(value)?,
            "fsync" => job.fsync = number(value, 0, u64::MAX)?,
            "end_fsync" => job.end_fsync = switch(value)?,
            "sync" => job.sync = durable(value)?,
            "refill_buffers" => job.refill = switch(value)?,
            "group_reporting" => job.grouped = switch(value)?,
            "write_iops_log" => job.logs.iops = Some(text(value)?),
            "write_bw_log" => job.logs.bandwidth = Some(text(value)?),
            "write_lat_log" => job.logs.latency = Some(text(value)?),
            "log_avg_msec" if value == "0" => job.logs.each = true,
            "log_offset" => must_be_on(value, "a line of one request has its offset")?,
            "log_avg_msec" => job.logs.every = Duration::from_millis(number(value, 10, 3_600_000)?),
            _ => return Err(unknown(key)),
        }
        Ok(())
    }

    fn finish(mut self, options: &[(String, String)]) -> Result<Job, Failure> {
        self.job.options = options.to_vec();
        self.reach()?;
        self.offer()?;
        if self.invalidate && !self.job.place.direct {
            return Err(Failure::usage("invalidate=1 is not done here: use direct=1, or drop the page cache first"));
        }
        if self.fdatasync > 0 && self.job.fsync > 0 {
            return Err(Failure::usage("fsync and fdatasync are the same flush here: give one of them"));
        }
        let mut job = self.job;
        job.fsync = job.fsync.max(self.fdatasync);
        // as in fio the percentiles of lat replace those of clat, unless both are asked for
        job.lat_bins = self.lat_percentiles.unwrap_or(job.open_loop());
        job.clat_bins = self.clat_percentiles.unwrap_or(!job.lat_bins);
        if job.time_based && job.runtime.is_none() {
            return Err(Failure::usage("time_based needs a runtime"));
        }
        if job.size.is_some_and(|size| size < job.block) {
            return Err(Failure::usage(format!("size is smaller than one block of {} bytes", job.block)));
        }
        if (job.fsync > 0 || job.end_fsync || job.sync) && !job.pattern.writes {
            return Err(Failure::usage("fsync, end_fsync and sync need a load that writes"));
        }
        if job.logs.each && job.ios.is_none_or(|ios| ios > RECORDED_MAX) {
            return Err(Failure::usage(format!("log_avg_msec=0 needs a number_ios of at most {RECORDED_MAX}")));
        }
        if job.mark.is_some() != self.verify {
            return Err(Failure::usage("verify=pattern and verify_pattern belong together"));
        }
        if job.mark.is_some() && !job.block.is_multiple_of(16) {
            return Err(Failure::usage("verify_pattern needs blocks of a multiple of 16 bytes"));
        }
        if job.distribution != Distribution::Uniform && !job.pattern.random {
            return Err(Failure::usage("random_distribution needs a random rw"));
        }
        Ok(job)
    }

    /// Settle which driver goes where.
    fn reach(&mut self) -> Result<(), Failure> {
        let engine = match (self.engine.as_deref(), self.blkio_driver.as_deref()) {
            (Some("libblkio"), Some(driver)) => driver,
            (Some("libblkio"), None) => return Err(Failure::usage("ioengine=libblkio needs libblkio_driver")),
            (Some(_), Some(_)) => return Err(Failure::usage("libblkio_driver needs ioengine=libblkio")),
            (Some(engine), None) => engine,
            (None, _) => {
                return Err(Failure::usage(
                    "ioengine is missing: write ioengine=virtio-blk-vhost-user or ioengine=io_uring",
                ));
            }
        };
        self.job.place.driver = match engine {
            "virtio-blk-vhost-user" => Driver::VhostUser,
            "io_uring" => Driver::IoUring,
            "virtio-blk" => Driver::Guest(Bus::VirtioBlk),
            "virtio-scsi" => Driver::Guest(Bus::VirtioScsi),
            "nvme" => Driver::Guest(Bus::Nvme),
            _ => {
                return Err(Failure::usage(format!(
                    "`{engine}` is no driver we have (virtio-blk-vhost-user, io_uring)"
                )));
            }
        };
        self.job.place.path = self
            .filename
            .take()
            .ok_or_else(|| Failure::usage("filename is missing: the vhost-user socket, or the file or block device"))?;
        match (self.job.place.driver, self.direct) {
            (Driver::VhostUser, Some(false)) => Err(Failure::usage(
                "direct=0 has no meaning for vhost-user: set cache.direct in the daemon that serves the disk",
            )),
            (Driver::Guest(_), Some(false)) => {
                Err(Failure::usage("direct=0 has no meaning for a guest's own driver: there is no page cache"))
            }
            (driver, direct) => {
                self.job.place.direct = direct.unwrap_or(true);
                if driver == Driver::IoUring && direct.is_none() {
                    // not fio's default, so it is said in the result
                    self.job.options.push(("direct".to_owned(), "1".to_owned()));
                }
                Ok(())
            }
        }
    }

    /// Settle the offered rates: one for all directions the job has, or one for each, as in fio.
    fn offer(&mut self) -> Result<(), Failure> {
        let pattern = self.job.pattern;
        let (read, write) = match self.rates.as_slice() {
            [] => (None, None),
            [both] => (*both, *both),
            [read, write] => (*read, *write),
            _ => return Err(Failure::usage("rate_iops: at most two rates, READ,WRITE")),
        };
        self.job.rates = [read.filter(|_| pattern.reads), write.filter(|_| pattern.writes)];
        let asked = self.rates.iter().any(Option::is_some);
        let missing = (pattern.reads && self.job.rates[0].is_none()) || (pattern.writes && self.job.rates[1].is_none());
        if asked && missing {
            return Err(Failure::usage("rate_iops: a mix needs a rate for reads and one for writes"));
        }
        Ok(())
    }
}

fn text(value: &str) -> Result<String, String> {
    if value.is_empty() {
        return Err("the value is missing".to_owned());
    }
    if value.contains('\0') {
        return Err("the value contains a NUL".to_owned());
    }
    Ok(value.to_owned())
}

fn switch(value: &str) -> Result<bool, String> {
    match value {
        "1" => Ok(true),
        "0" => Ok(false),
        _ => Err(format!("`{value}` is neither 0 nor 1")),
    }
}

fn must_be_on(value: &str, why: &str) -> Result<(), String> {
    if switch(value)? { Ok(()) } else { Err(format!("cannot be switched off: {why}")) }
}

/// The mark in `"MARK"%o`: eight letters or digits.
fn mark(value: &str) -> Result<[u8; 8], String> {
    value
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix("\"%o"))
        .filter(|mark| mark.bytes().all(|byte| byte.is_ascii_alphanumeric()))
        .and_then(|mark| mark.as_bytes().try_into().ok())
        .ok_or_else(|| "it is \"MARK\"%o, with a mark of eight letters or digits".to_owned())
}

fn durable(value: &str) -> Result<bool, String> {
    match value {
        "0" | "none" => Ok(false),
        "1" | "sync" | "dsync" => Ok(true),
        _ => Err(format!("`{value}` is not one of 0, 1, none, sync, dsync")),
    }
}

fn number(value: &str, low: u64, high: u64) -> Result<u64, String> {
    let number = quantity::whole(value.trim()).ok_or_else(|| format!("`{value}` is not a whole number"))?;
    if number < low || number > high {
        return Err(format!("{number} is not in {low}..{high}"));
    }
    Ok(number)
}

fn positive(value: u64) -> Result<u64, String> {
    if value == 0 { Err("must not be zero".to_owned()) } else { Ok(value) }
}

fn long_enough(time: Duration) -> Result<Duration, String> {
    if time.is_zero() { Err("must not be zero".to_owned()) } else { Ok(time) }
}

fn block(value: &str) -> Result<u64, String> {
    if value.contains([',', '-', ':', '/']) {
        return Err("one block size only; ranges and lists are fio's".to_owned());
    }
    let bytes = quantity::size(value)?;
    if bytes == 0 || bytes % 512 != 0 {
        return Err(format!("{bytes} is not a multiple of 512"));
    }
    if bytes > BLOCK_MAX {
        return Err(format!("{bytes} is more than {BLOCK_MAX}"));
    }
    Ok(bytes)
}

fn pattern(value: &str) -> Result<Pattern, String> {
    let (random, reads, writes) = match value {
        "read" => (false, true, false),
        "write" => (false, false, true),
        "rw" | "readwrite" => (false, true, true),
        "randread" => (true, true, false),
        "randwrite" => (true, false, true),
        "randrw" => (true, true, true),
        _ => return Err(format!("`{value}` is not one of read, write, rw, randread, randwrite, randrw")),
    };
    Ok(Pattern { random, reads, writes })
}

fn process(value: &str) -> Result<Process, String> {
    match value {
        "linear" => Ok(Process::Linear),
        "poisson" => Ok(Process::Poisson),
        _ => Err(format!("`{value}` is neither linear nor poisson")),
    }
}

fn distribution(value: &str) -> Result<Distribution, String> {
    let wrong = || format!("`{value}` is neither random nor zipf:THETA with THETA above 0");
    match value.split_once(':') {
        None if value == "random" => Ok(Distribution::Uniform),
        Some(("zipf", theta)) => match theta.parse::<f64>() {
            Ok(theta) if theta > 0.0 && theta <= 20.0 => Ok(Distribution::Zipf(theta)),
            _ => Err(wrong()),
        },
        _ => Err(wrong()),
    }
}

fn percentiles(value: &str) -> Result<Vec<f64>, String> {
    let wrong = || format!("`{value}` is not a list such as 50:99:99.9");
    let mut list: Vec<f64> = value
        .split(':')
        .map(|text| text.parse().ok().filter(|percent| (0.0..=100.0).contains(percent)).ok_or_else(wrong))
        .collect::<Result<_, _>>()?;
    list.sort_by(f64::total_cmp);
    list.dedup();
    if list.len() > PERCENTILES_MAX { Err(format!("more than {PERCENTILES_MAX} percentiles")) } else { Ok(list) }
}

fn rates(value: &str) -> Result<Vec<Option<u64>>, String> {
    value
        .split(',')
        .map(|rate| match rate.trim() {
            "" => Ok(None),
            rate => {
                let (digits, factor) = match rate.strip_suffix(['k', 'K']) {
                    Some(digits) => (digits, 1024), // as in fio, for which every k is 1024
                    None => (rate, 1),
                };
                Ok(Some(number(digits, 1, RATE_MAX / factor)? * factor))
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::WORDS;
    use proptest::prelude::*;

    fn read(words: &str) -> Result<Job, String> {
        let options: Vec<(String, String)> = words
            .split_whitespace()
            .map(|word| word.split_once('=').unwrap_or((word, "1")))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        Job::read("load", &options).map_err(|failure| {
            assert_eq!(failure.code(), 2);
            failure.to_string()
        })
    }

    const BASE: &str = "ioengine=io_uring filename=disk ";

    #[test]
    fn words_of_fio_become_a_job() {
        let job = read(&format!(
            "{BASE} rw=randrw rwmixread=70 bs=16k iodepth=8 numjobs=2 runtime=2s time_based ramp_time=500ms rate_iops=100,200 \
             random_distribution=zipf:1.1 fsync=32 randseed=9"
        ))
        .unwrap();
        assert_eq!((job.pattern.random, job.pattern.reads, job.pattern.writes), (true, true, true));
        assert_eq!((job.read_percent, job.block, job.depth, job.clones), (70, 16384, 8, 2));
        assert_eq!(job.rates, [Some(100), Some(200)]);
        assert_eq!(job.distribution, Distribution::Zipf(1.1));
        assert!(job.open_loop());
    }

    #[test]
    fn the_words_of_fios_libblkio_engine_are_understood() {
        let job = read("ioengine=libblkio libblkio_driver=virtio-blk-vhost-user libblkio_path=s rw=read").unwrap();
        assert_eq!((job.place.driver, job.place.path.as_str()), (Driver::VhostUser, "s"));
    }

    #[test]
    fn one_rate_counts_for_the_directions_the_job_has() {
        assert_eq!(read(&format!("{BASE} rw=randread rate_iops=1k")).unwrap().rates, [Some(1024), None]);
        assert_eq!(read(&format!("{BASE} rw=randrw rate_iops=5")).unwrap().rates, [Some(5), Some(5)]);
    }

    #[test]
    fn mistakes_are_told_in_one_sentence() {
        for (words, sentence) in [
            ("rw=read", "ioengine is missing: write ioengine=virtio-blk-vhost-user or ioengine=io_uring"),
            ("ioengine=io_uring", "filename is missing: the vhost-user socket, or the file or block device"),
            ("ioengine=libaio filename=x", "`libaio` is no driver we have (virtio-blk-vhost-user, io_uring)"),
            ("ioengine=io_uring filename=x iodepht=3", "iodepht: no such option here; did you mean `iodepth`?"),
            ("ioengine=io_uring filename=x zonemode=zbd", "zonemode: no such option here (see --help)"),
            ("ioengine=io_uring filename=x bs=1000", "bs: 1000 is not a multiple of 512"),
            ("ioengine=io_uring filename=x bs=4k-8k", "bs: one block size only; ranges and lists are fio's"),
            ("ioengine=io_uring filename=x iodepth=0", "iodepth: 0 is not in 1..8192"),
            ("ioengine=io_uring filename=x iodepth=-1", "iodepth: `-1` is not a whole number"),
            ("ioengine=io_uring filename=x time_based", "time_based needs a runtime"),
            ("ioengine=io_uring filename=x fsync=1", "fsync, end_fsync and sync need a load that writes"),
            (
                "ioengine=io_uring filename=x rw=randrw rate_iops=,5",
                "rate_iops: a mix needs a rate for reads and one for writes",
            ),
            (
                "ioengine=io_uring filename=x direct=0 invalidate",
                "invalidate=1 is not done here: use direct=1, or drop the page cache first",
            ),
            (
                "ioengine=io_uring filename=x percentile_list=50:x",
                "percentile_list: `50:x` is not a list such as 50:99:99.9",
            ),
            (
                "ioengine=virtio-blk-vhost-user filename=x direct=0",
                "direct=0 has no meaning for vhost-user: set cache.direct in the daemon that serves the disk",
            ),
            (
                "ioengine=io_uring filename=x rw=randread random_distribution=zipf:nan",
                "random_distribution: `zipf:nan` is neither random nor zipf:THETA with THETA above 0",
            ),
        ] {
            assert_eq!(read(words).unwrap_err(), sentence);
        }
    }

    #[test]
    fn every_row_of_the_table_is_understood() {
        for word in WORDS {
            let told = Draft::new("x").set(word.name, "\u{1}").err().unwrap_or_default();
            assert!(!told.contains("no such option"), "{} is listed but not read", word.name);
        }
    }

    proptest! {
        #[test]
        fn no_value_of_any_option_makes_it_panic(row in 0..WORDS.len(), value in "\\PC{0,24}") {
            let _ = Job::read("x", &[(WORDS[row].name.to_owned(), value)]);
        }

        #[test]
        fn number_like_values_do_not_panic_either(row in 0..WORDS.len(), value in "-?[0-9]{1,22}[kmgtb%,:.s]{0,3}") {
            let options = [("ioengine", "io_uring"), ("filename", "x"), (WORDS[row].name, value.as_str())];
            let options: Vec<_> = options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
            let _ = Job::read("x", &options);
        }

        #[test]
        fn no_option_name_makes_it_panic(name in "\\PC{0,40}", value in "\\PC{0,10}") {
            let _ = Job::read("x", &[(name, value)]);
        }
    }
}
