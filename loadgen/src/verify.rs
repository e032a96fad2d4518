// SPDX-License-Identifier: Apache-2.0
//! Verify: read every block of a journal's span back and judge it.

use crate::check::{self, Finding, Verdict};
use crate::driver::{Device, Shape};
use crate::failure::Failure;
use crate::job::Job;
use crate::journal::Journal;
use crate::run::Queue as _;
use crate::signals::Signals;
use crate::system;
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the disk may take to answer a read.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many findings are held before the first of them are chosen: a disk of nothing but bad blocks costs no more.
const FINDINGS_HELD: usize = 4096;
const LOOK: Duration = Duration::from_millis(50);

/// What reading back showed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The program, as in the result of a load.
    #[serde(rename = "fio version")]
    pub version: String,
    /// Whether no block was lost, torn or misplaced.
    pub ok: bool,
    /// Blocks that were read.
    pub blocks: u64,
    /// Blocks that were ever written.
    pub written: u64,
    /// Blocks with a flushed write.
    pub flushed: u64,
    /// Blocks that hold something older than their last flushed write.
    pub lost_flushed: u64,
    /// Blocks of which some sectors are older than the last flushed write, or broken.
    pub torn: u64,
    /// Blocks that hold what was written for another place, or was never written.
    pub misplaced: u64,
    /// Blocks that lost an acknowledged write that was not flushed: allowed.
    pub unflushed_lost: u64,
    /// Blocks of which some sectors lost a write that was not flushed: allowed.
    pub unflushed_torn: u64,
    /// The first bad blocks.
    pub findings: Vec<Finding>,
}

impl Report {
    fn count(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Good => {}
            Verdict::UnflushedLost(_) => self.unflushed_lost += 1,
            Verdict::UnflushedTorn => self.unflushed_torn += 1,
            Verdict::LostFlushed(_) => self.lost_flushed += 1,
            Verdict::Torn => self.torn += 1,
            Verdict::Misplaced(_) | Verdict::Unknown(_) => self.misplaced += 1,
        }
        self.blocks += 1;
    }

    /// Keep the findings that come first on the disk.
    fn keep_first(&mut self) {
        self.findings.sort_by_key(|finding| finding.offset);
        self.findings.truncate(check::FINDINGS_MAX);
    }

    /// One sentence for people.
    pub fn sentence(&self) -> String {
        format!(
            "{} blocks, {} written, {} flushed: {} lost after a flush, {} torn, {} misplaced; not flushed and so allowed: {} lost, {} torn",
            self.blocks,
            self.written,
            self.flushed,
            self.lost_flushed,
            self.torn,
            self.misplaced,
            self.unflushed_lost,
            self.unflushed_torn
        )
    }
}

/// Read back what the journal at `path` is about, from the disk that `job` names, `iodepth` blocks at a time.
pub fn run(job: &Job, path: &Path) -> Result<Report, Failure> {
    let signals = Signals::listen()?;
    let journal = Journal::open(path)?;
    let span = journal.span();
    let mut device = Device::connect(&job.place, false)?;
    let end = span.offset + span.block * span.blocks;
    if end > device.capacity() {
        return Err(Failure::usage(format!(
            "the journal is about a disk of at least {end} bytes, {} has {}",
            job.place.path,
            device.capacity()
        )));
    }
    let shape = Shape { depth: job.depth, block: span.block as usize };
    let mut queue = device.start(&[vec![shape]])?.pop().ok_or_else(|| Failure::run("the disk gave no queue"))?;
    let records = journal.records();
    let mut report = Report {
        version: format!("virtune-load-{}", crate::VERSION),
        written: records.iter().filter(|record| record.sent > 0).count() as u64,
        flushed: records.iter().filter(|record| record.flushed > 0).count() as u64,
        ..Report::default()
    };
    let mut next = 0;
    let mut free: Vec<usize> = (0..job.depth).collect();
    let mut blocks = vec![0u64; job.depth];
    let mut last = Instant::now();
    while report.blocks < span.blocks {
        while let Some(&slot) = free.last().filter(|_| next < span.blocks) {
            free.pop();
            blocks[slot] = next;
            queue.read(slot, span.offset + next * span.block);
            next += 1;
        }
        if queue.wait(1, job.depth, LOOK)? == 0 {
            if !device.alive() {
                return Err(Failure::run("the server closed the connection before everything was read"));
            }
            if last.elapsed() > PATIENCE {
                return Err(Failure::run(format!(
                    "no read ended within {} s: the server is stuck",
                    PATIENCE.as_secs()
                )));
            }
        } else {
            last = Instant::now();
        }
        if let Some(name) = signals.take() {
            return Err(Failure::run(format!("ended by {name} before everything was read")));
        }
        while let Some(done) = queue.next_done() {
            let block = blocks[done.slot];
            let offset = span.offset + block * span.block;
            if done.result != 0 {
                let error = std::io::Error::from_raw_os_error(done.result.checked_neg().unwrap_or(0));
                return Err(system::failure(format!("a read of {} bytes at {offset} failed", span.block), &error));
            }
            let record = records[block as usize];
            let verdict = check::judge(queue.buffer(done.slot), journal.id(), offset, record);
            report.count(verdict);
            if let Some(finding) = verdict.finding(offset, record) {
                report.findings.push(finding);
                if report.findings.len() > FINDINGS_HELD {
                    report.keep_first();
                }
            }
            free.push(done.slot);
        }
    }
    report.keep_first();
    report.ok = report.lost_flushed + report.torn + report.misplaced == 0;
    Ok(report)
}
