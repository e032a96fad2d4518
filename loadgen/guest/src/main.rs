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
mod disks;
mod found;
mod line;
mod lock;
mod machine;
mod memory;
mod nvme;
mod pci;
mod port;
mod ports;
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
use disk::Used;
use disks::{Chosen, Disks};
use found::Kind;
use line::Line;
use machine::{Exit, Serial, exit};
use ports::{Counts, Ports};
use serde_json::{Map, json};
use virtune_load_core::crew::Crew;
use virtune_load_core::failure::Failure;
use virtune_load_core::job::Job;
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
    let disks = Disks::of(&found, clock);
    let hello = json!({
        "version": VERSION, "clock": clock.source, "tsc_hz": clock.hertz, "memory_bytes": bytes, "up_ns": clock.now(),
        "cpus": cpus, "exit_ns": cpus::exit_ns(clock), "disks": disks.names(),
    });
    line.send("hello", hello.to_string().as_bytes());
    loop {
        let mark = memory::mark();
        let asked = line.receive();
        let kind = asked.as_ref().map_or("", |frame| frame.kind.as_str());
        let answer = match (kind, &asked) {
            ("end", _) => exit(Exit::Asked),
            ("look", Ok(frame)) => look(&mut line, &disks, cpus, clock, &frame.body),
            ("job", Ok(frame)) => load(&mut line, &disks, cpus, clock, &frame.body),
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

/// Reset a disk, and have every CPU answer.
fn look(line: &mut Line, disks: &Disks, cpus: usize, clock: Clock, name: &[u8]) -> Result<(), Failure> {
    let disk = disks.open(&String::from_utf8_lossy(name))?;
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
    /// Each disk by its name.
    disks: Vec<(String, Used)>,
    here: Part,
    others: Vec<Started<Done>>,
    capacity: u64,
    seed: u64,
}

/// Make a load ready, let the host say when it begins, and report the result.
fn load(line: &mut Line, disks: &Disks, cpus: usize, clock: Clock, text: &[u8]) -> Result<(), Failure> {
    let Ready { jobs, board, disks, here, others, capacity, seed } = make(disks, cpus, clock, text)?;
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
    let (mut queues, mut kicks, vcpus) = (0, 0, done.len());
    let mut counts = alloc::vec![Counts::default(); disks.len()];
    let mut outcomes = Vec::new();
    for (of_cpu, ports) in done {
        outcomes.extend(of_cpu);
        (queues, kicks) = (queues + ports.count(), kicks + ports.kicks());
        ports.count_up(&mut counts);
    }
    outcomes.sort_by_key(|(stream, _)| *stream);
    let outcomes: Vec<Outcome> = outcomes.into_iter().map(|(_, outcome)| outcome).collect();
    let (names, used): (Vec<String>, Vec<Used>) = disks.into_iter().unzip();
    let reset = used.into_iter().map(Used::end).fold(Ok(()), Result::and);
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
    let mut completed = Counts::default();
    counts.iter().for_each(|one| completed.add(one));
    let each: Map<_, _> = names.into_iter().zip(counts.iter().map(|one| json!(one))).collect();
    let counted = json!({ "kicks": kicks, "vcpus": vcpus, "completed": completed, "disks": each });
    line.send("counts", counted.to_string().as_bytes());
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

fn make(disks: &Disks, cpus: usize, clock: Clock, text: &[u8]) -> Result<Ready, Failure> {
    let text = core::str::from_utf8(text).map_err(|_| Failure::usage("a job that is not text"))?;
    let words = [("log_avg_msec", "100"), ("write_iops_log", "load")].map(|(k, v)| (k.to_string(), v.to_string()));
    let jobs = jobfile::jobs_of(text, &words)?;
    let chosen = disks.of_jobs(&jobs)?;
    let (capacity, polled) = (chosen.disks[0].1.plan().capacity, jobs[0].place.poll);
    let seed = jobs[0].seed.unwrap_or(SEED);
    let mut queues = queues_of(&jobs, &chosen, seed)?;
    let cpus = cpus.min(queues.len());
    (0..).zip(&mut queues).for_each(|(number, queue): (usize, _)| queue.cpu = number % cpus);
    let need: usize = queues.iter().flat_map(Driven::shapes).map(|one| one.depth * one.block).sum();
    if need > memory::left() / 2 {
        return Err(Failure::usage(format!("the guest has no memory for {} MiB of buffers", need >> 20)));
    }
    let board = Board::new(clock);
    let mut ports: Vec<Ports> = (0..cpus).map(|_| Ports::none(board.clone(), polled)).collect();
    let (mut used, several) = (Vec::new(), chosen.disks.len() > 1);
    for (number, (name, disk)) in chosen.disks.into_iter().enumerate() {
        let own = queues.iter().filter(|queue| queue.disk == number);
        let own: Vec<_> = own.map(|queue| (queue.cpu, queue.shapes().collect())).collect();
        let begun = disk.start(number, several.then_some(name.as_str()), &own, &mut ports)?;
        used.push((name, begun));
    }
    let mut parts: Vec<Part> =
        ports.into_iter().zip(by_cpu(queues, cpus)).map(|(ports, plans)| part(plans, ports, &board)).collect();
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
    Ok(Ready { jobs, board, disks: used, here, others, capacity, seed })
}

/// A queue of a disk, and the CPU that drives it with these clones.
struct Driven {
    disk: usize,
    cpu: usize,
    plans: Vec<Plan>,
}

impl Driven {
    fn shapes(&self) -> impl Iterator<Item = Shape> {
        self.plans.iter().map(shape)
    }
}

/// Share the clones of each disk out to its queues: the queues of all disks, one disk after the other.
fn queues_of(jobs: &[Job], chosen: &Chosen, seed: u64) -> Result<Vec<Driven>, Failure> {
    let mut all = Vec::new();
    for (job, number) in jobs.iter().zip(&chosen.of_job) {
        all.extend(spans(core::slice::from_ref(job), &chosen.disks[*number].1.plan())?);
    }
    let mut of_disk: Vec<Vec<Plan>> = chosen.disks.iter().map(|_| Vec::new()).collect();
    for plan in plans(jobs, &all, seed) {
        of_disk[chosen.of_job[plan.index]].push(plan);
    }
    let mut found = Vec::new();
    for (disk, (plans, (_, seen))) in of_disk.into_iter().zip(&chosen.disks).enumerate() {
        let queues = plans.len().clamp(1, usize::from(seen.seen.queues));
        found.extend(share_out(plans, queues).into_iter().map(|plans| Driven { disk, cpu: 0, plans }));
    }
    Ok(found)
}

/// The plans of each CPU's queues, with their slots one after the other.
fn by_cpu(queues: Vec<Driven>, cpus: usize) -> Vec<Vec<Plan>> {
    let mut found: Vec<Vec<Plan>> = (0..cpus).map(|_| Vec::new()).collect();
    for queue in queues {
        let own = &mut found[queue.cpu];
        for mut plan in queue.plans {
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
