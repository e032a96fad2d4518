// SPDX-License-Identifier: Apache-2.0
//! The engine: it starts one thread for each queue, watches over them, and brings home what they counted.

use crate::chance::mix;
use crate::control::{Control, Handle};
use crate::crew::Crew;
use crate::driver::Device;
use crate::failure::Failure;
use crate::job::{Driver, Job};
use crate::journal::Journal;
use crate::medium::{Medium, Meter};
use crate::plan::{SEED, plans, shape, share_out, spans};
pub use crate::report::Harvest;
pub use crate::run::Ending;
use crate::run::{Shape, State};
use crate::signals::Signals;
use crate::system;
use crate::worker::Worker;
pub use crate::worker::{Outcome, Pending};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

/// How often the supervisor looks at the server and for signals.
const WATCH: Duration = Duration::from_millis(50);

/// Run the jobs of a load, all at once: each clone on a queue of its own, or, where the disk offers fewer queues, clone
/// n on queue n modulo their number.
pub fn run(jobs: &[Job], journal: Option<&std::path::Path>) -> Result<Harvest, Failure> {
    let signals = Signals::listen()?;
    let writing = jobs.iter().any(|job| job.pattern.writes);
    let mut device = Device::connect(&jobs[0].place, writing)?;
    let spans = spans(jobs, &device.disk())?;
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
                        (Worker::new(plan, &mut queue, share, Handle(Arc::clone(&control))), depth)
                    })
                    .collect();
                let crew = Crew::new(queue, workers, Handle(control));
                ready.wait(); // all have filled their buffers
                ready.wait(); // the clock has been set
                for outcome in streams.into_iter().zip(crew.run()) {
                    let _ = sender.send(outcome);
                }
            })
            .map_err(|error| system::failure("cannot start a thread", &error))?;
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
