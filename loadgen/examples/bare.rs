// SPDX-License-Identifier: Apache-2.0
//! The barest client of the same driver: it keeps a queue full and counts, nothing else.
//!
//! It prints the nanoseconds for one request, 1e9 / rate. benchmarks/loadgen.py holds them against ours.
//! usage: bare SOCKET DEPTH SECONDS

use std::time::{Duration, Instant};
use virtune_load::chance::Chance;
use virtune_load::driver::{Device, Shape};
use virtune_load::failure::Failure;
use virtune_load::job::{Driver, Place};
use virtune_load::run::Queue as _;

/// Not counted, as in the runs of ours that it is compared with.
const RAMP: Duration = Duration::from_millis(500);

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().collect();
    let usage = || Failure::usage("usage: bare SOCKET DEPTH SECONDS");
    let [_, path, depth, seconds] = words.as_slice() else { return Err(usage()) };
    let depth = depth.parse().map_err(|_| usage())?;
    let limit = Duration::from_secs_f64(seconds.parse().map_err(|_| usage())?);
    let place = Place { driver: Driver::VhostUser, path: path.clone(), direct: true, poll: true };
    let mut device = Device::connect(&place, false)?;
    let blocks = device.capacity() / 4096;
    let mut queue = device.start(&[vec![Shape { depth, block: 4096 }]])?.remove(0);
    let mut chance = Chance::new(1, 1);
    for slot in 0..depth {
        queue.read(slot, chance.below(blocks) * 4096);
    }
    let mut start = Instant::now();
    let (mut ended, mut warm) = (0u64, false);
    while !warm || start.elapsed() < limit {
        if !warm && start.elapsed() >= RAMP {
            (start, ended, warm) = (Instant::now(), 0, true);
        }
        queue.wait(1, 1, Duration::from_millis(100))?;
        while let Some(done) = queue.next_done() {
            ended += 1;
            queue.read(done.slot, chance.below(blocks) * 4096);
            queue.submit()?;
        }
    }
    println!("{}", start.elapsed().as_nanos() as f64 / ended as f64);
    Ok(())
}
