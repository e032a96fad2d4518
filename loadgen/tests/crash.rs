// SPDX-License-Identifier: Apache-2.0
//! Crash: the daemon is killed again and again under a mixed load with flushes, and every block is read back.
//!
//! Three stacks: a file whose daemon is killed (nothing flushed may be lost); a disk that loses at a power cut all
//! that was not flushed (nothing flushed may be lost, other writes are); and that disk under a node that ignores
//! flushes (losses must be reported: the check can fail).
//!
//! The power cut is made with QEMU's `blklogwrites`: it logs every write and every flush, and after the kill only the
//! log up to its last flush is replayed. `cache.no-flush=on` on that node keeps flushes out of the log.
//!
//! VIRTUNE_CRASH_KILLS and VIRTUNE_CRASH_SECONDS make it longer (see benchmarks/loadgen.md).

mod common;

use common::{Daemon, disk, folder, generator, has, result, run};
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};
use virtune_load::record::{RECORD, Record};

const MEBIBYTES: usize = 32;
const SECTOR: u64 = 512;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn kills() -> u64 {
    setting("VIRTUNE_CRASH_KILLS", 4)
}

/// How long the load runs before each kill: not always the same, so that kills find it in different states.
fn life(number: u64) -> Duration {
    let whole = Duration::from_secs(setting("VIRTUNE_CRASH_SECONDS", 4));
    whole / kills() as u32 * (3 + (number % 3) as u32) / 4
}

/// How far all blocks of a journal are flushed, together; zero where there is none yet.
fn flushed(journal: &Path) -> u64 {
    let bytes = fs::read(journal).unwrap_or_default();
    bytes.chunks_exact(RECORD).filter_map(Record::from_bytes).map(|record| u64::from(record.flushed)).sum()
}

/// Run the load for so long after its first flush, which a busy host makes late, and kill the daemon; return what the
/// generator said.
fn load_until_killed(daemon: &mut Daemon, journal: &Path, more: &str, life: Duration) -> Value {
    let (before, begun) = (flushed(journal), Instant::now());
    let child = generator()
        .args(daemon.words())
        .arg(format!("--journal={}", journal.display()))
        .args(["--allow-write", "rw=randrw", "rwmixread=30", "runtime=1h", "time_based", "group_reporting"])
        .args(more.split_whitespace())
        .spawn()
        .unwrap();
    while flushed(journal) == before {
        assert!(begun.elapsed() < Duration::from_secs(60), "the load flushes nothing");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(life);
    daemon.kill();
    let output = child.wait_with_output().unwrap();
    let result = result(&output);
    // reads of blocks that an earlier crash took away are seen by the load itself
    let code = if count(&result["virtune-load"], "bad_blocks") == 0 { 1 } else { 4 };
    assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(result["jobs"][0]["sync"]["total_ios"].as_u64().unwrap() > 0, "flushes were sent");
    result
}

/// Read everything back; return the report and whether the exit code agrees with it.
fn verify(daemon: &Daemon, journal: &Path) -> Value {
    let mut words = vec!["verify".to_owned(), format!("--journal={}", journal.display()), "iodepth=16".to_owned()];
    words.extend(daemon.words());
    let output = run(&words, "");
    let report = result(&output);
    let code = if report["ok"] == true { 0 } else { 4 };
    assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
    report
}

fn count(report: &Value, what: &str) -> u64 {
    report[what].as_u64().unwrap()
}

#[test]
fn nothing_flushed_is_lost_when_the_daemon_is_killed() {
    if !has("qemu-storage-daemon") {
        return;
    }
    let folder = folder();
    let (disk, journal) = (disk(folder.path(), MEBIBYTES), folder.path().join("journal"));
    let (mut writes, mut flushes, mut in_flight) = (0, 0, 0);
    for number in 0..kills() {
        // the page cache or the disk itself, threads or io_uring
        let cache = if number % 2 == 0 { "aio=io_uring,cache.direct=on" } else { "aio=threads,cache.direct=off" };
        let node = format!("driver=file,node-name=top,filename={},{cache}", disk.display());
        let mut daemon = Daemon::start(&["--blockdev", &node], 2);
        let load = format!("numjobs=2 iodepth=16 fsync=64 randseed={number}");
        let result = load_until_killed(&mut daemon, &journal, &load, life(number));
        assert_eq!(result["virtune-load"]["bad_blocks"], 0, "{result:#}");
        writes += result["jobs"][0]["write"]["total_ios"].as_u64().unwrap();
        flushes += result["jobs"][0]["sync"]["total_ios"].as_u64().unwrap();
        in_flight += result["virtune-load"]["in_flight"].as_array().unwrap().len();
        let report = verify(&Daemon::start(&["--blockdev", &node], 1), &journal);
        assert_eq!(report["ok"], true, "{report:#}");
        assert!(count(&report, "flushed") > 0);
    }
    println!("{} kills, {writes} writes, {flushes} flushes, {in_flight} in flight at the kills: nothing lost", kills());
    assert!(in_flight > 0, "kills hit requests in flight");
}

/// A disk that forgets at a power cut what was not flushed.
struct Forgetful<'a> {
    folder: &'a Path,
    options: &'a str,
}

impl Forgetful<'_> {
    fn daemon(&self) -> Daemon {
        let file = |name: &str| self.folder.join(name).display().to_string();
        let data = format!("driver=file,node-name=data,filename={},cache.direct=off", file("disk.raw"));
        let log = format!("driver=file,node-name=log,filename={},cache.direct=off", file("log.raw"));
        let top = format!("driver=blklogwrites,node-name=top,file=data,log=log,log-sector-size=512{}", self.options);
        fs::write(file("log.raw"), b"").unwrap();
        Daemon::start(&["--blockdev", &data, "--blockdev", &log, "--blockdev", &top], 1)
    }

    /// Make the disk what it durably is: the one before, and the log up to its last flush. Return the flushes seen.
    fn cut_power(&self) -> u64 {
        let [disk, durable, log] = ["disk.raw", "durable.raw", "log.raw"].map(|name| self.folder.join(name));
        let target = OpenOptions::new().write(true).open(&durable).unwrap();
        let entries = entries(&fs::read(log).unwrap());
        let last = entries.iter().rposition(|entry| entry.flush).map_or(0, |index| index + 1);
        for entry in &entries[..last] {
            target.write_all_at(&entry.data, entry.offset).unwrap();
        }
        fs::copy(&durable, &disk).unwrap();
        entries.iter().filter(|entry| entry.flush).count() as u64
    }
}

struct Entry {
    offset: u64,
    flush: bool,
    data: Vec<u8>,
}

/// Read a log of `blklogwrites` (the format of Linux' dm-log-writes): a super block, then for each request a sector
/// with its place, length and flags, and its data. What a killed daemon had not logged yet is a hole of zeros.
fn entries(log: &[u8]) -> Vec<Entry> {
    let word = |at: usize| log.get(at..at + 8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap())).unwrap_or(0);
    let mut entries = Vec::new();
    let mut at = SECTOR as usize;
    while at + SECTOR as usize <= log.len() {
        let (sector, sectors, flags) = (word(at), word(at + 8), word(at + 16));
        at += SECTOR as usize;
        if sectors == 0 && flags == 0 {
            continue;
        }
        let length = (sectors * SECTOR) as usize;
        assert!(flags < 16 && length <= 1 << 20, "not a log entry at {at}");
        let Some(data) = log.get(at..at + length) else { break };
        entries.push(Entry { offset: sector * SECTOR, flush: flags & 1 == 1, data: data.to_vec() });
        at += length;
    }
    entries
}

/// Cut the power again and again; return the reports of the checks.
fn power_cuts(options: &str) -> Vec<Value> {
    let folder = folder();
    let stack = Forgetful { folder: folder.path(), options };
    let first = disk(folder.path(), MEBIBYTES);
    fs::copy(&first, folder.path().join("durable.raw")).unwrap();
    let journal = folder.path().join("journal");
    let cuts = kills().min(20);
    let honest = !options.contains("no-flush");
    let mut reports = Vec::new();
    for number in 0..cuts {
        // the log holds every byte that is written: some 20 MiB a second
        let load = format!("iodepth=16 fsync=64 rate_iops=5000 randseed={number}");
        let life = life(number).min(Duration::from_secs(10));
        let result = load_until_killed(&mut stack.daemon(), &journal, &load, life);
        let seen = count(&result["virtune-load"], "bad_blocks");
        assert_eq!(seen > 0, number > 0 && !honest, "{seen} bad reads");
        let flushes = stack.cut_power();
        let report = verify(&stack.daemon(), &journal);
        println!("{flushes} flushes reached the disk: {report}");
        assert_eq!(flushes > 0, honest);
        reports.push(report);
    }
    reports
}

#[test]
fn a_power_cut_loses_only_what_was_not_flushed() {
    if !has("qemu-storage-daemon") {
        return;
    }
    let reports = power_cuts("");
    assert!(reports.iter().all(|report| report["ok"] == true), "{reports:#?}");
    let lost: u64 = reports.iter().map(|report| count(report, "unflushed_lost")).sum();
    assert!(lost > 0, "the power cut did take something");
}

#[test]
fn a_stack_that_ignores_flushes_is_found_out() {
    if !has("qemu-storage-daemon") {
        return;
    }
    let reports = power_cuts(",cache.no-flush=on");
    let lost: u64 = reports.iter().map(|report| count(report, "lost_flushed")).sum();
    assert!(lost > 100, "a busy host may give one of the loads few turns, and not all of them: {reports:#?}");
    for report in &reports {
        assert_eq!(report["ok"], false);
        assert!(count(report, "lost_flushed") > 0, "{report:#}");
        let finding = &report["findings"][0];
        assert_eq!(finding["what"], "lost_flushed");
        assert!(
            finding["flushed"].as_u64()
                > finding["found"].as_str().and_then(|text| text.rsplit(' ').next()?.parse().ok())
        );
    }
}

#[test]
fn the_journal_is_right_when_the_generator_itself_is_killed() {
    if !has("qemu-storage-daemon") {
        return;
    }
    let folder = folder();
    let (disk, journal) = (disk(folder.path(), 8), folder.path().join("journal"));
    let node = format!("driver=file,node-name=top,filename={},aio=io_uring,cache.direct=on", disk.display());
    let daemon = Daemon::start(&["--blockdev", &node], 2);
    for _ in 0..3 {
        let mut child = generator()
            .args(daemon.words())
            .arg(format!("--journal={}", journal.display()))
            .args("--allow-write rw=randwrite iodepth=16 numjobs=2 fsync=16 runtime=1h time_based".split(' '))
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while !journal.exists() {
            assert!(begun.elapsed() < Duration::from_secs(20), "the load began no journal");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(400));
        child.kill().unwrap();
        child.wait().unwrap();
        let report = verify(&daemon, &journal);
        assert_eq!(report["ok"], true, "{report:#}");
        assert!(count(&report, "flushed") > 0);
    }
}
