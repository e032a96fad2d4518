// SPDX-License-Identifier: Apache-2.0
//! Agreement: fio and we measure the same device and must say the same.
//!
//! The device answers each read after 10 ms, whatever the machine, so a difference would be one between the programs.
//! It is a FUSE file, because fio without libblkio cannot drive a vhost-user socket.

mod common;

use common::{has, load};
use serde_json::Value;
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// A FUSE file over a device with a latency, for as long as it lives.
struct SlowFile {
    daemon: Child,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl SlowFile {
    fn new() -> SlowFile {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("slow");
        std::fs::write(&path, b"").unwrap();
        let node = "driver=null-co,node-name=top,size=1073741824,read-zeroes=off,latency-ns=10000000";
        let export = format!("type=fuse,id=e,node-name=top,mountpoint={}", path.display());
        let daemon =
            Command::new("qemu-storage-daemon").args(["--blockdev", node, "--export", &export]).spawn().unwrap();
        let start = Instant::now();
        while std::fs::metadata(&path).unwrap().len() == 0 {
            assert!(start.elapsed() < Duration::from_secs(20), "the daemon mounted nothing");
            std::thread::sleep(Duration::from_millis(5));
        }
        SlowFile { daemon, path, _folder: folder }
    }
}

impl Drop for SlowFile {
    fn drop(&mut self) {
        // asked to end it unmounts; killed it would leave a dead mount
        let _ = Command::new("kill").arg(self.daemon.id().to_string()).status();
        let start = Instant::now();
        while matches!(self.daemon.try_wait(), Ok(None)) && start.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(10));
        }
        if matches!(self.daemon.try_wait(), Ok(None)) {
            let _ = self.daemon.kill();
            let _ = self.daemon.wait();
            let _ = Command::new("umount").arg("-l").arg(&self.path).status();
        }
    }
}

/// IOPS, p50 and p99 of reads.
fn numbers(result: &Value) -> [f64; 3] {
    let read = &result["jobs"][0]["read"];
    let percentile = |name: &str| read["clat_ns"]["percentile"][name].as_f64().unwrap();
    [read["iops"].as_f64().unwrap(), percentile("50.000000"), percentile("99.000000")]
}

fn fio(words: &str) -> Value {
    let output =
        Command::new("fio").args(["--name=t", "--output-format=json+"]).args(words.split(' ')).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap()
}

#[test]
fn fio_and_we_say_the_same_of_the_same_device() {
    if !has("qemu-storage-daemon") || !has("fio") {
        return;
    }
    if OpenOptions::new().read(true).write(true).open("/dev/fuse").is_err() {
        eprintln!("skipped: /dev/fuse cannot be opened (needs root)");
        return;
    }
    let file = SlowFile::new();
    let words = format!("--filename={} --ioengine=io_uring --direct=1 --rw=randread --bs=4k", file.path.display());
    let words = format!("{words} --ramp_time=200ms --runtime=1s --time_based --norandommap");
    for depth in [4, 16] {
        let words = format!("{words} --iodepth={depth}");
        let mut ratios: Vec<[f64; 3]> = Vec::new();
        // a busy machine disturbs one of a pair; a difference between the programs would be there in every round
        while ratios.len() < ROUNDS_MAX && (ratios.len() < ROUNDS_MIN || !agree(&ratios)) {
            let [ours, theirs] = [numbers(&load(&[""; 0], &words)), numbers(&fio(&words))];
            ratios.push(std::array::from_fn(|index| ours[index] / theirs[index]));
        }
        println!("QD{depth}: ours / fio, IOPS p50 p99: {ratios:.3?}");
        assert!(agree(&ratios), "QD{depth}: {ratios:.3?}");
    }
}

/// Rounds of which the medians are taken, and how many more there may be until these agree.
const ROUNDS_MIN: usize = 3;
const ROUNDS_MAX: usize = 15;

/// Whether the medians of IOPS, p50 and p99 agree to 3, 5 and 5 %.
fn agree(ratios: &[[f64; 3]]) -> bool {
    [0.03, 0.05, 0.05].iter().enumerate().all(|(index, limit)| {
        let mut values: Vec<f64> = ratios.iter().map(|ratio| ratio[index]).collect();
        values.sort_by(f64::total_cmp);
        (values[values.len() / 2] - 1.0).abs() <= *limit
    })
}
