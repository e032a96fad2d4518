// SPDX-License-Identifier: Apache-2.0
//! A guest that is a load: booted by QEMU through PVH, it drives its disk with what `virtune-load` is made of.
//!
//! There is no operating system: between the load and the disk is a virtio driver and nothing else. What it is to do
//! comes over a virtio console ([`line`]), in the words of virtune-load, and the result goes back in the shape of fio's.
#![no_std]
#![no_main]

extern crate alloc;

mod board;
mod clock;
mod disk;
mod line;
mod machine;
mod memory;
mod pci;
mod virtio;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use board::Board;
use clock::Clock;
use core::fmt::Write as _;
use core::panic::PanicInfo;
use core::time::Duration;
use disk::{Disk, Rings};
use line::Line;
use machine::{Exit, Serial, exit};
use pci::Function;
use serde_json::json;
use virtune_load_core::crew::Crew;
use virtune_load_core::failure::Failure;
use virtune_load_core::job::{Driver, Job};
use virtune_load_core::plan::{SEED, plans, shape, share_out, spans};
use virtune_load_core::report::{Harvest, report};
use virtune_load_core::run::{NoJournal, Run as _, Shape};
use virtune_load_core::worker::Worker;
use virtune_load_core::{VERSION, jobfile, logs};

core::arch::global_asm!(include_str!("start.s"), options(att_syntax));

const DISK: u16 = 2;
const CONSOLE: u16 = 3;

#[panic_handler]
fn panic(info: &PanicInfo) -> ! {
    let _ = writeln!(Serial, "virtune-guest: {info}");
    exit(Exit::Panic)
}

#[unsafe(no_mangle)]
extern "C" fn guest_main(info: u32) -> ! {
    let bytes = memory::find(info);
    let functions = pci::find();
    let console = functions.iter().find(|one| one.kind == CONSOLE).expect("a virtio console to talk by");
    let mut line = Line::open(*console).unwrap_or_else(|failure| panic!("{failure}"));
    let clock = Clock::find();
    let hello = json!({
        "version": VERSION, "clock": clock.source, "tsc_hz": clock.hertz, "memory_bytes": bytes, "up_ns": clock.now(),
    });
    line.send("hello", hello.to_string().as_bytes());
    let disk = functions.iter().find(|one| one.kind == DISK).copied();
    loop {
        let mark = memory::mark();
        let asked = line.receive();
        let kind = asked.as_ref().map_or("", |frame| frame.kind.as_str());
        let answer = match (kind, &asked) {
            ("end", _) => exit(Exit::Asked),
            ("look", _) => look(&mut line, disk),
            ("job", Ok(frame)) => load(&mut line, disk, clock, &frame.body),
            (_, Err(failure)) => Err(failure.clone()),
            (other, _) => Err(Failure::usage(format!("`{other}` is nothing that can be asked for"))),
        };
        if let Err(failure) = answer {
            line.send("failed", failure.to_string().as_bytes());
        }
        drop(asked);
        // SAFETY: all that was made since the mark is dropped; the line keeps nothing of a frame.
        unsafe { memory::forget(mark) };
    }
}

fn look(line: &mut Line, disk: Option<Function>) -> Result<(), Failure> {
    let disk = Disk::new(disk.ok_or_else(|| Failure::run("the guest has no virtio-blk disk"))?)?;
    line.send("seen", json_text(&disk.seen)?.as_bytes());
    Ok(())
}

/// A load that is ready to begin.
struct Ready {
    jobs: Vec<Job>,
    board: Board,
    crew: Crew<Rings, NoJournal, Board>,
    capacity: u64,
    seed: u64,
}

/// Make a load ready, let the host say when it begins, and report the result.
fn load(line: &mut Line, disk: Option<Function>, clock: Clock, text: &[u8]) -> Result<(), Failure> {
    let ready = make(disk, clock, text)?;
    line.send("armed", b"");
    let go = line.receive()?;
    if go.kind != "go" {
        return Err(Failure::usage(format!("`{}` came where the load was to begin", go.kind)));
    }
    let words = String::from_utf8_lossy(&go.body).to_string();
    let number = |index: usize| words.split(' ').nth(index).and_then(|word| word.parse::<u64>().ok());
    let (Some(patience), Some(now)) = (number(0), number(1)) else {
        return Err(Failure::usage(format!("`{words}` does not say how long to wait and what time it is")));
    };
    let Ready { jobs, board, crew, capacity, seed } = ready;
    // the host's word to begin is seen: the next one ends the load
    let begun = board.now();
    line.send("began", b"");
    board.begin(Duration::from_millis(patience), line.word());
    let (outcomes, rings) = crew.run_and_keep();
    line.send("ended", (board.now() - begun).to_string().as_bytes());
    let (queues, kicks, counts) = (rings.count(), rings.kicks(), rings.counts);
    let reset = rings.end();
    let log: String = outcomes.iter().map(|outcome| logs::iops(&jobs[outcome.job], outcome)).collect();
    let harvest = Harvest {
        outcomes,
        medium: None,
        queues,
        ending: board.ending(),
        seed,
        capacity,
        durable_by: "a flush after each write",
    };
    line.send("log", log.as_bytes());
    line.send("counts", json!({ "kicks": kicks, "completed": counts }).to_string().as_bytes());
    let result = report(&jobs, &harvest, Duration::from_millis(now), true);
    line.send("result", json_text(&result)?.as_bytes());
    reset
}

fn make(disk: Option<Function>, clock: Clock, text: &[u8]) -> Result<Ready, Failure> {
    let text = core::str::from_utf8(text).map_err(|_| Failure::usage("a job that is not text"))?;
    let words = [("log_avg_msec", "100"), ("write_iops_log", "load")].map(|(k, v)| (k.to_string(), v.to_string()));
    let jobs = jobfile::jobs_of(text, &words)?;
    let first = &jobs[0];
    if jobs.iter().any(|job| job.place != first.place) || first.place.driver != Driver::VirtioBlk {
        return Err(Failure::usage("all jobs must have ioengine=virtio-blk and the same hipri"));
    }
    let disk = Disk::new(disk.ok_or_else(|| Failure::run("the guest has no virtio-blk disk"))?)?;
    if disk.seen.read_only && jobs.iter().any(|job| job.pattern.writes) {
        return Err(Failure::usage("the disk is read-only, and the load writes"));
    }
    let (seen, polled) = (disk.plan(), first.place.poll);
    let seed = first.seed.unwrap_or(SEED);
    let plans = share_out(plans(&jobs, &spans(&jobs, &seen)?, seed), 1).remove(0);
    let shapes: Vec<Shape> = plans.iter().map(shape).collect();
    let need: usize = shapes.iter().map(|one| one.depth * one.block).sum();
    if need > memory::left() / 2 {
        return Err(Failure::usage(format!("the guest has no memory for {} MiB of buffers", need >> 20)));
    }
    let board = Board::new(clock);
    let mut rings = disk.start(&shapes, board.clone(), polled)?;
    let workers = plans
        .into_iter()
        .map(|plan| {
            let depth = plan.job.depth;
            (Worker::new(plan, &mut rings, None::<NoJournal>, board.clone()), depth)
        })
        .collect();
    let crew = Crew::new(rings, workers, board.clone());
    Ok(Ready { jobs, board, crew, capacity: seen.capacity, seed })
}

fn json_text(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::run(error.to_string()))
}
