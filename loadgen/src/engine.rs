// SPDX-License-Identifier: Apache-2.0
//! The engine: it starts one thread for each queue, watches over them, and brings home what they counted.

use crate::chance::mix;
pub use crate::control::Ending;
use crate::control::{Control, State};
use crate::crew::Crew;
use crate::driver::{Device, Shape};
use crate::failure::Failure;
use crate::job::{Driver, Job};
use crate::journal::{Journal, Span};
use crate::medium::{self, Medium, Meter};
use crate::signals::Signals;
pub use crate::worker::{Outcome, Pending};
use crate::worker::{Plan, Worker};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

/// How often the supervisor looks at the server and for signals.
const WATCH: Duration = Duration::from_millis(50);
/// The seed of loads that give none, so that they repeat.
const SEED: u64 = 0x76_69_72_74_75_6e_65;

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
    pub medium: Option<medium::Use>,
    /// How writes with `sync=1` were made durable.
    pub durable_by: &'static str,
}

/// Run the jobs of a load, all at once: each clone on a queue of its own, or, where the disk offers fewer queues, clone
/// n on queue n modulo their number.
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
    let seed = seed(&jobs[0]);
    let clones = jobs.iter().map(|job| job.clones).sum();
    let crews = share_out(plans(jobs, &spans, seed), device.queues_for(clones)?);
    let shapes: Vec<Vec<Shape>> = crews.iter().map(|crew| crew.iter().map(shape).collect()).collect();
    let queues = device.start(&shapes)?;
    let control = Arc::new(Control::default());
    let ready = Arc::new(Barrier::new(crews.len() + 1));
    let (sender, receiver) = mpsc::channel();
    for (number, (crew, mut queue)) in crews.into_iter().zip(queues).enumerate() {
        let shares: Vec<_> = crew
            .iter()
            .map(|plan| journal.as_ref().map(|journal| journal.share(plan.clone, plan.job.clones as u64)))
            .collect();
        let (control, ready, sender) = (Arc::clone(&control), Arc::clone(&ready), sender.clone());
        std::thread::Builder::new()
            .name(format!("load {}", number + 1))
            .spawn(move || {
                let streams: Vec<u64> = crew.iter().map(|plan| plan.stream).collect();
                let workers = crew
                    .into_iter()
                    .zip(shares)
                    .map(|(plan, share)| {
                        let depth = plan.job.depth;
                        (Worker::new(plan, &mut queue, share, Arc::clone(&control)), depth)
                    })
                    .collect();
                let crew = Crew::new(queue, workers, control);
                ready.wait(); // all have filled their buffers
                ready.wait(); // the clock has been set
                for outcome in streams.into_iter().zip(crew.run()) {
                    let _ = sender.send(outcome);
                }
            })
            .map_err(|error| Failure::io("cannot start a thread", &error))?;
    }
    drop(sender);
    ready.wait();
    control.clock.set();
    let mut meter = meter(jobs, &control);
    meter.look(control.clock.now());
    ready.wait();
    let outcomes = supervise(&device, &signals, &control, &receiver, &mut meter, clones);
    Ok(Harvest {
        outcomes,
        medium: meter.used(control.clock.now()),
        queues: shapes.len(),
        ending: control.ending(),
        seed,
        capacity: device.capacity(),
        durable_by: device.durable_by(),
    })
}

/// What looks at the medium of a file once the first job counts; an export hides what is below it.
fn meter(jobs: &[Job], control: &Control) -> Meter {
    let place = &jobs[0].place;
    let medium = (place.driver == Driver::IoUring).then(|| Medium::of(place.path.as_ref())).flatten();
    let ramp = jobs.iter().map(|job| job.ramp).min().unwrap_or_default();
    Meter::new(medium, control.clock.start_ns.load(Ordering::Relaxed) + ramp.as_nanos() as u64)
}

/// What each clone of each job is to do.
fn plans(jobs: &[Job], spans: &[Vec<Span>], seed: u64) -> Vec<Plan> {
    let clones = jobs.iter().enumerate().flat_map(|(index, job)| {
        spans[index].iter().enumerate().map(move |(clone, span)| (index, job, clone as u64, *span))
    });
    clones
        .zip(1..)
        .map(|((index, job, clone, span), stream)| Plan {
            job: job.clone(),
            index,
            clone,
            span,
            seed: job.seed.unwrap_or(seed),
            stream,
            first: 0,
            crew: 1,
        })
        .collect()
}

/// Deal the clones out to so many queues in turn, and give each its slots.
fn share_out(plans: Vec<Plan>, queues: usize) -> Vec<Vec<Plan>> {
    let mut crews: Vec<Vec<Plan>> = (0..queues).map(|_| Vec::new()).collect();
    for (number, mut plan) in plans.into_iter().enumerate() {
        let crew = &mut crews[number % queues];
        plan.first = crew.iter().map(|other| other.job.depth).sum();
        crew.push(plan);
    }
    for crew in &mut crews {
        let size = crew.len();
        crew.iter_mut().for_each(|plan| plan.crew = size);
    }
    crews
}

fn shape(plan: &Plan) -> Shape {
    Shape { depth: plan.job.depth, block: plan.job.block as usize }
}

/// Wait for the threads; tell them when to stop, and when there is no server left to wait for.
fn supervise(
    device: &Device,
    signals: &Signals,
    control: &Control,
    receiver: &mpsc::Receiver<(u64, Outcome)>,
    meter: &mut Meter,
    clones: usize,
) -> Vec<Outcome> {
    let mut outcomes = Vec::with_capacity(clones);
    while outcomes.len() < clones {
        let due = meter.due_in(control.clock.now()).map_or(WATCH, Duration::from_nanos);
        let answer = receiver.recv_timeout(WATCH.min(due));
        meter.look(control.clock.now());
        match answer {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn job(words: &[(&str, &str)]) -> Job {
        let words: Vec<_> = [("ioengine", "io_uring"), ("filename", "x"), ("rw", "read")]
            .iter()
            .chain(words)
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        Job::read("j", &words).unwrap()
    }

    #[test]
    fn clones_are_dealt_out_to_the_queues_in_turn_and_none_shares_a_slot() {
        let jobs = [job(&[("numjobs", "3"), ("iodepth", "4")]), job(&[("iodepth", "16"), ("bs", "64k")])];
        let span = Span { block: 4096, offset: 0, blocks: 8 };
        let spans = [vec![span; 3], vec![span]];
        let seen = |queues: usize| -> Vec<Vec<(u64, usize, usize)>> {
            let crews = share_out(plans(&jobs, &spans, 1), queues);
            crews.iter().map(|crew| crew.iter().map(|plan| (plan.stream, plan.first, plan.crew)).collect()).collect()
        };
        assert_eq!(seen(4), [[(1, 0, 1)], [(2, 0, 1)], [(3, 0, 1)], [(4, 0, 1)]]);
        assert_eq!(seen(2), [[(1, 0, 2), (3, 4, 2)], [(2, 0, 2), (4, 4, 2)]]);
        assert_eq!(seen(1), [[(1, 0, 4), (2, 4, 4), (3, 8, 4), (4, 12, 4)]]);
    }
}
