// SPDX-License-Identifier: Apache-2.0
//! A crew: the thread that drives one queue for all clones that share it.
//!
//! A queue belongs to one thread, so no two of them ever touch it at once. Where the disk offers fewer queues than the
//! load has clones, a thread has several clones, and what is in flight on its queue is the sum of their depths.

use crate::failure::Failure;
use crate::prelude::*;
use crate::run::{Ending, Queue, Run, Share, State};
use crate::spin::Spin;
use crate::worker::{Outcome, Worker};
use core::time::Duration;

/// How often a thread with nothing to do looks whether it should end.
const LOOK: Duration = Duration::from_millis(100);

/// One queue, and the clones that share it.
pub struct Crew<Q, S, R> {
    queue: Q,
    workers: Vec<Worker<S, R>>,
    /// Whose slot it is, for each slot of the queue.
    owners: Vec<usize>,
    batch_ended: usize,
    spin: Option<Spin>,
    run: R,
}

impl<Q: Queue, S: Share, R: Run> Crew<Q, S, R> {
    /// `workers` come with how many slots each of them has, in the order of their slots.
    pub fn new(queue: Q, workers: Vec<(Worker<S, R>, usize)>, run: R) -> Self {
        let owners =
            workers.iter().enumerate().flat_map(|(owner, (_, depth))| core::iter::repeat_n(owner, *depth)).collect();
        let workers: Vec<Worker<S, R>> = workers.into_iter().map(|(worker, _)| worker).collect();
        let open_loop = workers.iter().any(Worker::open_loop);
        let starts = workers.iter().map(Worker::starts_per_second).sum();
        Crew {
            queue,
            owners,
            // together they see no more end at once than each of them wants to
            batch_ended: workers.iter().map(Worker::batch_ended).min().unwrap_or(1),
            spin: open_loop.then(|| Spin::new(starts)),
            workers,
            run,
        }
    }

    /// The queue.
    pub fn queue(&self) -> &Q {
        &self.queue
    }

    /// Run until nothing is left to do, and return what each clone brought home, in their order.
    pub fn run(self) -> Vec<Outcome> {
        self.run_and_keep().0
    }

    /// The same, and give the queue back.
    pub fn run_and_keep(mut self) -> (Vec<Outcome>, Q) {
        for worker in &mut self.workers {
            worker.begin();
        }
        if self.spin.is_some() {
            self.run.punctual();
        }
        if let Err(failure) = self.work() {
            self.run.end(Ending::Failed(failure), State::Drain);
            // what is in flight may still end; the first failure is the one to tell
            let _ = self.work();
        }
        if self.run.state() == State::Abandon {
            // what ended before the server went is still in our memory
            while matches!(self.reap(0, Duration::ZERO), Ok(1..)) {}
        }
        (self.workers.into_iter().map(Worker::finish).collect(), self.queue)
    }

    fn work(&mut self) -> Result<(), Failure> {
        let mut now = self.run.now();
        loop {
            // all begin at the time when the last request ended: who waits for another of the crew has that in `slat`
            let mut after = now;
            for worker in self.workers.iter_mut().filter(|worker| !worker.over()) {
                after = worker.step(&mut self.queue, now)?;
            }
            now = after;
            if self.run.state() == State::Abandon || self.workers.iter().all(Worker::over) {
                return Ok(());
            }
            let (least, limit) = self.patience(now);
            let ended = if self.queue.in_flight() > 0 || limit.is_zero() {
                self.reap(least, limit)?
            } else {
                self.run.sleep(limit);
                0
            };
            let before = now;
            now = self.run.now();
            if let (Some(spin), 0) = (&mut self.spin, ended) {
                spin.slept(limit, now - before);
            }
        }
    }

    /// How many completions to wait for, and how long: until the next intended start, when a slot is free for it.
    fn patience(&self, now: u64) -> (usize, Duration) {
        let Some(left) = self.workers.iter().filter_map(|worker| worker.due_in(now)).min() else {
            return (1, LOOK);
        };
        let spin = self.spin.as_ref().map_or(0, Spin::nanos);
        if left <= spin {
            return (0, Duration::ZERO);
        }
        let limit = Duration::from_nanos(left - spin).min(LOOK);
        (usize::from(self.queue.in_flight() > 0), limit)
    }

    /// Wait for requests to end, and return how many did.
    fn reap(&mut self, least: usize, limit: Duration) -> Result<usize, Failure> {
        let ended = self.queue.wait(least, self.batch_ended, limit)?;
        if ended == 0 {
            return Ok(0);
        }
        let now = self.run.now();
        let mut result = Ok(ended);
        while let Some(done) = self.queue.next_done() {
            let owner = &mut self.workers[self.owners[done.slot]];
            let settled = owner.settle(&mut self.queue, done, now);
            if result.is_ok() {
                result = settled.map(|()| ended);
            }
        }
        for worker in &mut self.workers {
            worker.settled_all();
        }
        result
    }
}
