// SPDX-License-Identifier: Apache-2.0
//! The engine: it starts one thread for each queue, watches over them, and brings home what they counted.

use crate::chance::mix;
pub use crate::control::Ending;
use crate::control::{Control, State};
use crate::driver::{Device, Shape};
use crate::failure::Failure;
use crate::job::Job;
use crate::journal::{Journal, Span};
use crate::signals::Signals;
pub use crate::worker::{Outcome, Pending};
use crate::worker::{Plan, Worker};
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

/// How often the supervisor looks at the server and for signals.
const WATCH: Duration = Duration::from_millis(50);
/// The seed of loads that give none, so that they repeat.
const SEED: u64 = 0x76_69_72_74_75_6e_65;

/// What a whole run brought home.
pub struct Harvest {
    /// One for each queue, in the order of the jobs and their clones.
    pub outcomes: Vec<Outcome>,
    /// Why it ended.
    pub ending: Ending,
    /// The seed that was used.
    pub seed: u64,
    /// The size of the disk in bytes.
    pub capacity: u64,
    /// How writes with `sync=1` were made durable.
    pub durable_by: &'static str,
}

/// Run the jobs of a load, all at once, each clone on a queue of its own.
pub fn run(jobs: &[Job], journal: Option<&std::path::Path>) -> Result<Harvest, Failure> {
    let signals = Signals::listen()?;
    let writing = jobs.iter().any(|job| job.pattern.writes);
    let mut device = Device::connect(&jobs[0].place, writing)?;
    let spans = spans(jobs, &device)?;
    if journal.is_some() && (jobs[0].clones as u64) > spans[0][0].blocks {
        return Err(Failure::usage(
            "with --journal each of numjobs needs a block of its own: raise size or lower numjobs",
        ));
    }
    let journal = match journal {
        Some(path) => Some(Journal::open_or_create(path, spans[0][0])?),
        None => None,
    };
    let shapes: Vec<Shape> = jobs
        .iter()
        .flat_map(|job| std::iter::repeat_n(Shape { depth: job.depth, block: job.block as usize }, job.clones))
        .collect();
    let seed = seed(&jobs[0]);
    let mut queues = device.start(&shapes)?.into_iter();
    let control = Arc::new(Control::default());
    let ready = Arc::new(Barrier::new(shapes.len() + 1));
    let (sender, receiver) = mpsc::channel();
    let mut stream = 0;
    for (index, job) in jobs.iter().enumerate() {
        for (clone, span) in spans[index].iter().enumerate() {
            let Some(queue) = queues.next() else { break };
            stream += 1;
            let plan = Plan {
                job: job.clone(),
                index,
                clone: clone as u64,
                span: *span,
                seed: job.seed.unwrap_or(seed),
                stream,
            };
            let share = journal.as_ref().map(|journal| journal.share(clone as u64, job.clones as u64));
            let (control, ready, sender) = (Arc::clone(&control), Arc::clone(&ready), sender.clone());
            std::thread::Builder::new()
                .name(format!("load {stream}"))
                .spawn(move || {
                    let worker = Worker::new(plan, queue, share, Arc::clone(&control));
                    ready.wait(); // all have filled their buffers
                    ready.wait(); // the clock has been set
                    let _ = sender.send((stream, worker.run()));
                })
                .map_err(|error| Failure::io("cannot start a thread", &error))?;
        }
    }
    drop(sender);
    ready.wait();
    control.clock.set();
    ready.wait();
    let outcomes = supervise(&device, &signals, &control, &receiver, shapes.len());
    Ok(Harvest {
        outcomes,
        ending: control.ending(),
        seed,
        capacity: device.capacity(),
        durable_by: device.durable_by(),
    })
}

/// Wait for the threads; tell them when to stop, and when there is no server left to wait for.
fn supervise(
    device: &Device,
    signals: &Signals,
    control: &Control,
    receiver: &mpsc::Receiver<(u64, Outcome)>,
    threads: usize,
) -> Vec<Outcome> {
    let mut outcomes = Vec::with_capacity(threads);
    while outcomes.len() < threads {
        match receiver.recv_timeout(WATCH) {
            Ok(outcome) => outcomes.push(outcome),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                control.end(Ending::Failed(Failure::run("a thread of the load died")), State::Abandon);
                break;
            }
        }
        if !device.alive() {
            let message = "the server closed the connection before the load was done";
            control.end(Ending::Failed(Failure::run(message)), State::Abandon);
        }
        if let Some(name) = signals.take() {
            // asked a second time: do not wait for what is in flight
            let state = if control.state() == State::Run { State::Drain } else { State::Abandon };
            control.end(Ending::Signal(name), state);
        }
    }
    outcomes.sort_by_key(|(stream, _)| *stream);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

/// The part of the disk that each clone of each job works on.
fn spans(jobs: &[Job], device: &Device) -> Result<Vec<Vec<Span>>, Failure> {
    jobs.iter().map(|job| (0..job.clones as u64).map(|clone| span(job, clone, device)).collect()).collect()
}

fn span(job: &Job, clone: u64, device: &Device) -> Result<Span, Failure> {
    let (capacity, alignment, block) = (device.capacity(), device.alignment(), job.block);
    if block % alignment != 0 {
        return Err(Failure::usage(format!("bs={block} is not a multiple of the disk's block of {alignment} bytes")));
    }
    let offset = job
        .offset_increment
        .checked_mul(clone)
        .and_then(|further| further.checked_add(job.offset))
        .ok_or_else(|| Failure::usage("offset and offset_increment lead beyond any disk"))?;
    if offset % alignment != 0 {
        return Err(Failure::usage(format!(
            "offset {offset} is not a multiple of the disk's block of {alignment} bytes"
        )));
    }
    let left = capacity.saturating_sub(offset);
    let size = job.size.unwrap_or(left);
    if size > left {
        return Err(Failure::usage(format!(
            "offset {offset} and size {size} reach beyond the end of the disk at {capacity}"
        )));
    }
    if size < block {
        return Err(Failure::usage(format!(
            "there is no room for a block of {block} bytes at offset {offset} of {capacity}"
        )));
    }
    Ok(Span { block, offset, blocks: size / block })
}

fn seed(job: &Job) -> u64 {
    match job.seed {
        Some(seed) => seed,
        None if job.repeat => SEED,
        None => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            mix(now.as_nanos() as u64 ^ (u64::from(std::process::id()) << 32))
        }
    }
}
