// SPDX-License-Identifier: Apache-2.0
//! A guest that is a load: booted by QEMU through PVH, it drives its disk with what `virtune-load` is made of.
//!
//! There is no operating system: between the load and the disk is a virtio driver and nothing else. What it is to do
//! comes over a virtio console ([`line`]), in the words of virtune-load, and the result goes back in the shape of fio's.
#![no_std]
#![no_main]

extern crate alloc;

mod blk;
mod board;
mod chains;
mod clock;
mod cpus;
mod disk;
mod found;
mod line;
mod lock;
mod machine;
mod memory;
mod nvme;
mod pci;
mod port;
mod scsi;
mod virtio;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use board::Board;
use clock::Clock;
use core::fmt::Write as _;
use core::panic::PanicInfo;
use core::time::Duration;
use cpus::Started;
use disk::{Counts, Disk, Ports, Used};
use found::{Found, Kind};
use line::Line;
use machine::{Exit, Serial, exit};
use serde_json::json;
use virtune_load_core::crew::Crew;
use virtune_load_core::failure::Failure;
use virtune_load_core::job::{Driver, Job};
use virtune_load_core::plan::{Plan, SEED, plans, shape, share_out, spans};
use virtune_load_core::report::{Harvest, report};
use virtune_load_core::run::{NoJournal, Run as _, Shape};
use virtune_load_core::worker::{Outcome, Worker};
use virtune_load_core::{VERSION, jobfile, logs};

core::arch::global_asm!(include_str!("start.s"), options(att_syntax));

#[panic_handler]
fn panic(info: &PanicInfo) -> ! {
    let _ = writeln!(Serial, "virtune-guest: {info}");
    exit(Exit::Panic)
}

#[unsafe(no_mangle)]
extern "C" fn guest_main(info: u32) -> ! {
    machine::catch();
    let bytes = memory::find(info);
    let found = found::find();
    let cpus = cpus::count();
    let console = found.iter().find(|one| one.kind == Kind::Console).expect("a virtio console to talk by");
    let mut line = Line::open(*console).unwrap_or_else(|failure| panic!("{failure}"));
    let clock = Clock::find();
    let hello = json!({
        "version": VERSION, "clock": clock.source, "tsc_hz": clock.hertz, "memory_bytes": bytes, "up_ns": clock.now(),
        "cpus": cpus, "exit_ns": cpus::exit_ns(clock),
    });
    line.send("hello", hello.to_string().as_bytes());
    let disk = found.iter().find(|one| one.is_disk()).copied();
    loop {
        let mark = memory::mark();
        let asked = line.receive();
        let kind = asked.as_ref().map_or("", |frame| frame.kind.as_str());
        let answer = match (kind, &asked) {
            ("end", _) => exit(Exit::Asked),
            ("look", _) => look(&mut line, disk, cpus, clock),
            ("job", Ok(frame)) => load(&mut line, disk, cpus, clock, &frame.body),
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

/// Reset the disk, and have every CPU answer.
fn look(line: &mut Line, disk: Option<Found>, cpus: usize, clock: Clock) -> Result<(), Failure> {
    let disk = Disk::new(disk, clock)?;
    for cpu in 1..cpus {
        cpus::start(cpu, clock, Box::new(|| ()))?.finish();
    }
    line.send("seen", json_text(&disk.seen)?.as_bytes());
    Ok(())
}

/// What one CPU does of a load: its clones in the order of its queues, and which of the load's each is.
struct Part {
    crew: Crew<Ports, NoJournal, Board>,
    streams: Vec<u64>,
}

/// What one CPU did: its ports, and of each clone which one it is and what it brought home.
type Done = (Vec<(u64, Outcome)>, Ports);

impl Part {
    /// Wait for the begin, and run to the end.
    fn run(self, board: &Board) -> Done {
        board.wait();
        let (outcomes, ports) = self.crew.run_and_keep();
        (self.streams.into_iter().zip(outcomes).collect(), ports)
    }
}

/// A load that is ready to begin: this CPU's part of it, and the others' that wait for the begin.
struct Ready {
    jobs: Vec<Job>,
    board: Board,
    disk: Used,
    here: Part,
    others: Vec<Started<Done>>,
    capacity: u64,
    seed: u64,
}

/// Make a load ready, let the host say when it begins, and report the result.
fn load(line: &mut Line, disk: Option<Found>, cpus: usize, clock: Clock, text: &[u8]) -> Result<(), Failure> {
    let Ready { jobs, board, disk, here, others, capacity, seed } = make(disk, cpus, clock, text)?;
    line.send("armed", b"");
    let (patience, now) = match told_to_go(line) {
        Ok(numbers) => numbers,
        Err(failure) => {
            board.cancel();
            others.into_iter().for_each(|other| drop(other.finish()));
            return Err(failure);
        }
    };
    // the host's word to begin is seen: the next one ends the load
    let begun = board.now();
    line.send("began", b"");
    board.begin(Duration::from_millis(patience), line.word());
    let mut done = alloc::vec![here.run(&board)];
    done.extend(others.into_iter().map(Started::finish));
    line.send("ended", (board.now() - begun).to_string().as_bytes());
    let (mut queues, mut kicks, mut counts, vcpus) = (0, 0, Counts::default(), done.len());
    let mut outcomes = Vec::new();
    for (of_cpu, ports) in done {
        outcomes.extend(of_cpu);
        (queues, kicks) = (queues + ports.count(), kicks + ports.kicks());
        counts.add(&ports.counts);
    }
    outcomes.sort_by_key(|(stream, _)| *stream);
    let outcomes: Vec<Outcome> = outcomes.into_iter().map(|(_, outcome)| outcome).collect();
    let reset = disk.end();
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
    let each: String = harvest.outcomes.iter().map(|outcome| logs::each(&jobs[outcome.job], outcome, true)).collect();
    if !each.is_empty() {
        line.send("each", each.as_bytes());
    }
    line.send("counts", json!({ "kicks": kicks, "vcpus": vcpus, "completed": counts }).to_string().as_bytes());
    let result = report(&jobs, &harvest, Duration::from_millis(now), true);
    line.send("result", json_text(&result)?.as_bytes());
    reset
}

/// Receive the word to begin: how long the disk may complete nothing, and the time of the day, both in milliseconds.
fn told_to_go(line: &mut Line) -> Result<(u64, u64), Failure> {
    let go = line.receive()?;
    if go.kind != "go" {
        return Err(Failure::usage(format!("`{}` came where the load was to begin", go.kind)));
    }
    let words = String::from_utf8_lossy(&go.body).to_string();
    let number = |index: usize| words.split(' ').nth(index).and_then(|word| word.parse::<u64>().ok());
    number(0)
        .zip(number(1))
        .ok_or_else(|| Failure::usage(format!("`{words}` does not say how long to wait and what time it is")))
}

fn make(disk: Option<Found>, cpus: usize, clock: Clock, text: &[u8]) -> Result<Ready, Failure> {
    let text = core::str::from_utf8(text).map_err(|_| Failure::usage("a job that is not text"))?;
    let words = [("log_avg_msec", "100"), ("write_iops_log", "load")].map(|(k, v)| (k.to_string(), v.to_string()));
    let jobs = jobfile::jobs_of(text, &words)?;
    let first = &jobs[0];
    let disk = Disk::new(disk, clock)?;
    if jobs.iter().any(|job| job.place != first.place) || first.place.driver != Driver::Guest(disk.bus) {
        let engine = disk.bus.name();
        return Err(Failure::usage(format!("all jobs must have ioengine={engine} and the same hipri")));
    }
    if disk.seen.read_only && jobs.iter().any(|job| job.pattern.writes) {
        return Err(Failure::usage("the disk is read-only, and the load writes"));
    }
    let (seen, polled) = (disk.plan(), first.place.poll);
    let seed = first.seed.unwrap_or(SEED);
    let plans = plans(&jobs, &spans(&jobs, &seen)?, seed);
    let queues = plans.len().clamp(1, usize::from(disk.seen.queues));
    let cpus = cpus.min(queues);
    let queues = share_out(plans, queues);
    let shapes: Vec<Vec<Shape>> = queues.iter().map(|plans| plans.iter().map(shape).collect()).collect();
    let need: usize = shapes.iter().flatten().map(|one| one.depth * one.block).sum();
    if need > memory::left() / 2 {
        return Err(Failure::usage(format!("the guest has no memory for {} MiB of buffers", need >> 20)));
    }
    let board = Board::new(clock);
    let (used, ports) = disk.start(&shapes, cpus, &board, polled)?;
    let mut parts: Vec<Part> =
        ports.into_iter().zip(one_by_one(queues, cpus)).map(|(ports, plans)| part(plans, ports, &board)).collect();
    let here = parts.remove(0);
    here.crew.queue().settle_here();
    let mut others = Vec::new();
    for (cpu, part) in (1..).zip(parts) {
        let own = board.clone();
        let work = Box::new(move || {
            part.crew.queue().settle_here();
            part.run(&own)
        });
        match cpus::start(cpu, clock, work) {
            Ok(started) => others.push(started),
            Err(failure) => {
                board.cancel();
                others.into_iter().for_each(|other: Started<Done>| drop(other.finish()));
                return Err(failure);
            }
        }
    }
    Ok(Ready { jobs, board, disk: used, here, others, capacity: seen.capacity, seed })
}

/// Give each CPU its queues in turn: the plans of all of them, with their slots one after the other.
fn one_by_one(queues: Vec<Vec<Plan>>, cpus: usize) -> Vec<Vec<Plan>> {
    let mut found: Vec<Vec<Plan>> = (0..cpus).map(|_| Vec::new()).collect();
    for (number, plans) in queues.into_iter().enumerate() {
        let own = &mut found[number % cpus];
        for mut plan in plans {
            plan.first = own.iter().map(|other| other.job.depth).sum();
            own.push(plan);
        }
    }
    for own in &mut found {
        let size = own.len();
        own.iter_mut().for_each(|plan| plan.crew = size);
    }
    found
}

fn part(plans: Vec<Plan>, mut ports: Ports, board: &Board) -> Part {
    let streams = plans.iter().map(|plan| plan.stream).collect();
    let workers = plans
        .into_iter()
        .map(|plan| {
            let depth = plan.job.depth;
            (Worker::new(plan, &mut ports, None::<NoJournal>, board.clone()), depth)
        })
        .collect();
    Part { crew: Crew::new(ports, workers, board.clone()), streams }
}

fn json_text(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::run(error.to_string()))
}
