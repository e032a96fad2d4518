// SPDX-License-Identifier: Apache-2.0
//! A worker: it keeps the slots of one clone full, counts what ends and notes it in the journal.

use crate::chance::Chance;
use crate::check::{self, Finding};
use crate::failure::Failure;
use crate::job::Direction;
use crate::pacing::Pacer;
use crate::pattern;
use crate::places::Places;
use crate::plan::Plan;
use crate::prelude::*;
use crate::record::Record;
use crate::run::{Done, Ending, Queue, Run, Share, State};
use crate::tally::{Each, Ended, Tally, Usage, batch_class};
use core::time::Duration;

/// How long requests in flight may take to end after the load did.
const DRAIN_LIMIT: Duration = Duration::from_secs(30);

/// A request that was in flight when the run ended without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// `read`, `write` or `flush`.
    pub kind: &'static str,
    /// Where.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u64,
    /// The generation that a write carried, with a journal.
    pub generation: Option<u32>,
}

/// What one clone brought home.
pub struct Outcome {
    /// Which job it ran.
    pub job: usize,
    /// What it counted.
    pub tally: Tally,
    /// What never ended.
    pub pending: Vec<Pending>,
    /// What reading back stamped blocks showed, the first few.
    pub findings: Vec<Finding>,
    /// How many blocks did not hold what they should.
    pub bad_blocks: u64,
}

/// What is in a slot.
#[derive(Clone, Debug)]
enum Task {
    Idle,
    Move { direction: Direction, block: u64, expect: Record },
    Flush { vouched: Vec<(u64, u32)> },
}

struct Slot {
    task: Task,
    ready_ns: u64,
    sent_ns: u64,
}

/// Everything that is needed to keep the slots of one clone full.
pub struct Worker<S, R> {
    plan: Plan,
    share: Option<S>,
    run: R,
    slots: Vec<Slot>,
    free: Vec<usize>,
    batch: Vec<usize>,
    places: Places,
    chance: Chance,
    contents: Vec<u8>,
    pacers: [Option<Pacer>; 2],
    open_loop: bool,
    next_direction: Option<Direction>,
    sent: u64,
    limit: u64,
    writes_since_flush: u64,
    flush_due: bool,
    last_flush: bool,
    sending: bool,
    over: bool,
    give_up_ns: u64,
    counting: bool,
    count_from_ns: u64,
    end_ns: u64,
    tally: Tally,
    ended_together: usize,
    usage: Usage,
    used: Option<Usage>,
    findings: Vec<Finding>,
    bad_blocks: u64,
}

impl<S: Share, R: Run> Worker<S, R> {
    /// Make ready what the clone needs, its buffers filled.
    pub fn new(plan: Plan, queue: &mut impl Queue, share: Option<S>, run: R) -> Self {
        let job = &plan.job;
        let mut chance = Chance::new(plan.seed, plan.stream);
        if job.pattern.writes && share.is_none() && !job.zeros && job.mark.is_none() {
            for slot in 0..job.depth {
                chance.fill(queue.buffer(plan.first + slot));
            }
        }
        let mut contents = vec![0; if job.pattern.reads && job.pattern.writes { job.block as usize } else { 0 }];
        chance.fill(&mut contents);
        let (first, stride) = if share.is_some() { (plan.clone, job.clones as u64) } else { (0, 1) };
        let random = job.pattern.random.then_some(job.distribution);
        let places = Places::new(plan.span.blocks, first, stride, random, plan.seed);
        let by_size = if job.time_based { u64::MAX } else { places.owned() };
        Worker {
            slots: (0..job.depth).map(|_| Slot { task: Task::Idle, ready_ns: 0, sent_ns: 0 }).collect(),
            free: (0..job.depth).rev().collect(),
            batch: Vec::with_capacity(job.depth),
            places,
            chance,
            contents,
            pacers: [None, None],
            open_loop: job.open_loop(),
            next_direction: None,
            sent: 0,
            limit: job.ios.unwrap_or(u64::MAX).min(by_size),
            writes_since_flush: 0,
            flush_due: false,
            last_flush: job.end_fsync,
            sending: false,
            over: false,
            give_up_ns: u64::MAX,
            counting: false,
            count_from_ns: 0,
            end_ns: u64::MAX,
            tally: Tally::new(0, None),
            ended_together: 0,
            usage: Usage::default(),
            used: None,
            findings: Vec::new(),
            bad_blocks: 0,
            plan,
            share,
            run,
        }
    }

    /// The run begins: the clock has been set.
    pub(crate) fn begin(&mut self) {
        let job = &self.plan.job;
        let start = self.run.start_ns();
        self.count_from_ns = start + job.ramp.as_nanos() as u64;
        if let Some(runtime) = job.runtime {
            self.end_ns = self.count_from_ns + runtime.as_nanos() as u64;
        }
        let phase = self.plan.clone as f64 / job.clones as f64;
        for (side, rate) in job.rates.iter().enumerate() {
            self.pacers[side] = rate.map(|rate| {
                let chance = Chance::new(self.plan.seed ^ 0x5041_4345, self.plan.stream * 2 + side as u64);
                Pacer::new(rate, job.process, start, phase, chance)
            });
        }
        if job.ramp.is_zero() {
            self.start_counting();
        }
    }

    /// Whether requests start by a timetable.
    pub(crate) fn open_loop(&self) -> bool {
        self.open_loop
    }

    /// How many requests are to start in a second, all together; zero without a timetable.
    pub(crate) fn starts_per_second(&self) -> u64 {
        self.plan.job.rates.iter().flatten().sum()
    }

    /// How many requests may be seen to end together.
    pub(crate) fn batch_ended(&self) -> usize {
        self.plan.job.batch_ended
    }

    /// Whether nothing is left to do.
    pub(crate) fn over(&self) -> bool {
        self.over
    }

    /// Send what may be sent now, or see whether anything is left to do; return the time.
    pub(crate) fn step(&mut self, queue: &mut impl Queue, now: u64) -> Result<u64, Failure> {
        self.count_when_due(now);
        let state = self.run.state();
        self.sending = state == State::Run && now < self.end_ns && self.sent < self.limit;
        if self.sending {
            return self.send(queue, now);
        }
        if self.flush_due && state == State::Run && self.sent >= self.limit && !self.free.is_empty() {
            self.flush_due = false;
            self.send_flush(queue, now);
            return self.hand_over(queue);
        }
        if self.in_flight() == 0 {
            if self.last_flush && state == State::Run {
                self.last_flush = false;
                self.send_flush(queue, now);
                return self.hand_over(queue);
            }
            self.over = true;
            self.used = Some(self.used_now());
        } else if self.give_up_ns == u64::MAX {
            self.give_up_ns = now + DRAIN_LIMIT.as_nanos() as u64;
        } else if now >= self.give_up_ns {
            let failure = Failure::run(format!(
                "{} requests did not end within {} s after the load: the server is stuck",
                self.in_flight(),
                DRAIN_LIMIT.as_secs()
            ));
            self.run.end(Ending::Failed(failure), State::Abandon);
        }
        Ok(now)
    }

    /// How many nanoseconds are left until there is something to send; None when only a request that ends brings work.
    pub(crate) fn due_in(&self, now: u64) -> Option<u64> {
        let due = self.next_due().filter(|_| self.sending && !self.free.is_empty())?;
        Some(due.min(self.end_ns).saturating_sub(now))
    }

    fn in_flight(&self) -> usize {
        self.plan.job.depth - self.free.len()
    }

    fn next_due(&self) -> Option<u64> {
        self.pacers.iter().flatten().map(Pacer::due).min()
    }

    /// Send whatever may be sent now; return the time.
    fn send(&mut self, queue: &mut impl Queue, freed_ns: u64) -> Result<u64, Failure> {
        let mut now = freed_ns;
        while let Some(&slot) = self.free.last() {
            if self.batch.len() >= self.plan.job.batch {
                now = self.hand_over(queue)?;
            }
            if self.flush_due {
                self.flush_due = false;
                self.send_flush(queue, now);
                continue;
            }
            if self.sent >= self.limit {
                break;
            }
            let Some((direction, ready_ns)) = self.draw_direction(freed_ns, now) else {
                break;
            };
            let Some(block) = self.draw_block(direction) else {
                break;
            };
            if let Some(pacer) = &mut self.pacers[direction as usize] {
                pacer.take();
            }
            let expect = self.prepare(queue, slot, direction, block)?;
            self.free.pop();
            self.slots[slot] = Slot { task: Task::Move { direction, block, expect }, ready_ns, sent_ns: ready_ns };
            let offset = self.plan.span.offset + block * self.plan.span.block;
            match direction {
                Direction::Read => queue.read(self.plan.first + slot, offset),
                Direction::Write => queue.write(self.plan.first + slot, offset, self.plan.job.sync),
            }
            self.sent += 1;
            self.batch.push(slot);
            self.tally.mark_depth(self.in_flight());
            if direction == Direction::Write && self.plan.job.fsync > 0 {
                self.writes_since_flush += 1;
                if self.writes_since_flush == self.plan.job.fsync {
                    self.writes_since_flush = 0;
                    self.flush_due = true;
                }
            }
        }
        if self.batch.is_empty() { Ok(now) } else { self.hand_over(queue) }
    }

    /// Tell the device of the requests in the batch, and note the time after it: as in fio, what the hand-over itself
    /// takes is `slat`, and `clat` begins when the device knows.
    fn hand_over(&mut self, queue: &mut impl Queue) -> Result<u64, Failure> {
        queue.submit()?;
        let now = self.run.now();
        self.tally.submit[batch_class(self.batch.len())] += 1;
        for slot in self.batch.drain(..) {
            self.slots[slot].sent_ns = now;
        }
        Ok(now)
    }

    /// The direction of the next request and when it could start; None when nothing is due.
    fn draw_direction(&mut self, freed_ns: u64, now: u64) -> Option<(Direction, u64)> {
        if self.open_loop {
            let due = |side: usize| self.pacers[side].as_ref().map_or(u64::MAX, Pacer::due);
            let (read, write) = (due(0), due(1));
            let (direction, due) = if read <= write { (Direction::Read, read) } else { (Direction::Write, write) };
            return (due <= now && due < self.end_ns).then_some((direction, due));
        }
        let pattern = self.plan.job.pattern;
        let direction = match (pattern.reads, pattern.writes) {
            (true, false) => Direction::Read,
            (false, true) => Direction::Write,
            _ => match self.next_direction.take() {
                Some(direction) => direction,
                None if self.chance.below(100) < self.plan.job.read_percent => Direction::Read,
                None => Direction::Write,
            },
        };
        Some((direction, freed_ns))
    }

    /// The next block; None when every block that was drawn has a request in flight (only with a journal).
    fn draw_block(&mut self, direction: Direction) -> Option<u64> {
        let Some(share) = &self.share else {
            return Some(self.places.next(direction, &mut self.chance));
        };
        let block = self.places.next_idle(direction, &mut self.chance, |block| share.busy(block));
        if block.is_none() && !self.plan.job.pattern.random {
            self.next_direction = Some(direction);
        }
        block
    }

    /// Fill the buffer of a write, and note it in the journal.
    fn prepare(
        &mut self,
        queue: &mut impl Queue,
        slot: usize,
        direction: Direction,
        block: u64,
    ) -> Result<Record, Failure> {
        let offset = self.plan.span.offset + block * self.plan.span.block;
        let reads = self.plan.job.pattern.reads;
        match (direction, &mut self.share) {
            (Direction::Read, None) => {}
            (Direction::Read, Some(share)) => return Ok(share.look(block)),
            (Direction::Write, Some(share)) => {
                let generation = share.send(block)?;
                crate::stamp::write(queue.buffer(self.plan.first + slot), share.id(), offset, generation);
                return Ok(Record { sent: generation, ..Record::default() });
            }
            (Direction::Write, None) if self.plan.job.mark.is_some() => {
                if let Some(mark) = self.plan.job.mark {
                    pattern::write(queue.buffer(self.plan.first + slot), mark, offset);
                }
            }
            (Direction::Write, None) if self.plan.job.zeros => {
                if reads {
                    queue.buffer(self.plan.first + slot).fill(0);
                }
            }
            (Direction::Write, None) if self.plan.job.refill => self.chance.fill(queue.buffer(self.plan.first + slot)),
            (Direction::Write, None) => {
                if reads {
                    // a read has left other contents in the buffer
                    queue.buffer(self.plan.first + slot).copy_from_slice(&self.contents);
                }
                // two words for each sector, so that nothing on the way can deduplicate
                let buffer = queue.buffer(self.plan.first + slot);
                for sector in buffer.chunks_exact_mut(512) {
                    sector[..8].copy_from_slice(&offset.to_le_bytes());
                    sector[8..16].copy_from_slice(&self.sent.to_le_bytes());
                }
            }
        }
        Ok(Record::default())
    }

    fn send_flush(&mut self, queue: &mut impl Queue, ready_ns: u64) {
        let Some(slot) = self.free.pop() else { return };
        let vouched = self.share.as_mut().map(S::flush_starts).unwrap_or_default();
        self.slots[slot] = Slot { task: Task::Flush { vouched }, ready_ns, sent_ns: ready_ns };
        queue.flush(self.plan.first + slot);
        self.batch.push(slot);
    }

    /// Note that all requests that were seen to end together have been settled.
    pub(crate) fn settled_all(&mut self) {
        if self.ended_together > 0 {
            self.tally.complete[batch_class(self.ended_together)] += 1;
            self.ended_together = 0;
        }
    }

    /// Count a request that ended, and note it in the journal.
    pub(crate) fn settle(&mut self, queue: &mut impl Queue, done: Done, now: u64) -> Result<(), Failure> {
        self.count_when_due(now);
        self.ended_together += 1;
        let number = done.slot - self.plan.first;
        let slot = &mut self.slots[number];
        let task = core::mem::replace(&mut slot.task, Task::Idle);
        let ended = Ended { ready_ns: slot.ready_ns, sent_ns: slot.sent_ns, ended_ns: now };
        self.free.push(number);
        self.tally.end_ns = now;
        match task {
            Task::Idle => Ok(()),
            Task::Flush { vouched } => {
                if done.result != 0 {
                    return Err(self.failed("a flush", done.result));
                }
                let latency = now - ended.ready_ns;
                self.tally.sync.record(latency);
                self.tally.sync_bins.record(latency);
                match &mut self.share {
                    Some(share) => share.flush_ends(&vouched),
                    None => Ok(()),
                }
            }
            Task::Move { direction, block, expect } => {
                if done.result != 0 {
                    let offset = self.plan.span.offset + block * self.plan.span.block;
                    let kind = if direction == Direction::Read { "a read" } else { "a write" };
                    let what = format!("{kind} of {} bytes at {offset}", self.plan.span.block);
                    return Err(self.failed(&what, done.result));
                }
                let (lat_bins, bytes) = (self.plan.job.lat_bins, self.plan.span.block);
                self.tally.side(direction).record(ended, bytes, lat_bins);
                if let Some(each) = &mut self.tally.each {
                    each.push(Each { times: ended, direction, offset: self.plan.span.offset + block * bytes });
                }
                match direction {
                    Direction::Read => self.check(queue, number, block, expect),
                    Direction::Write => match &mut self.share {
                        Some(share) => share.acknowledge(block, expect.sent, self.plan.job.sync),
                        None => Ok(()),
                    },
                }
            }
        }
    }

    fn failed(&self, what: &str, result: i32) -> Failure {
        let errno = result.checked_neg().unwrap_or(0);
        Failure::Run { message: format!("{what} failed: {}", self.run.explain(errno)), errno }
    }

    /// With a journal or a pattern, every read is looked at; one without the pattern ends the run.
    fn check(&mut self, queue: &mut impl Queue, slot: usize, block: u64, expect: Record) -> Result<(), Failure> {
        let offset = self.plan.span.offset + block * self.plan.span.block;
        let Some(share) = &mut self.share else {
            let read = self.plan.job.mark.map(|mark| (mark, queue.buffer(self.plan.first + slot)));
            return match read.and_then(|(mark, buffer)| pattern::first_other(buffer, mark, offset)) {
                Some(at) => Err(Failure::Data(format!("pattern: verify failed at offset {at}"))),
                None => Ok(()),
            };
        };
        share.looked(block);
        let verdict = check::judge(queue.buffer(self.plan.first + slot), share.id(), offset, expect);
        if let Some(finding) = verdict.finding(offset, expect) {
            self.bad_blocks += 1;
            if self.findings.len() < check::FINDINGS_MAX {
                self.findings.push(finding);
            }
        }
        Ok(())
    }

    fn count_when_due(&mut self, now: u64) {
        if !self.counting && now >= self.count_from_ns {
            self.start_counting();
        }
    }

    fn start_counting(&mut self) {
        let start = self.count_from_ns;
        let logs = &self.plan.job.logs;
        self.tally = Tally::new(start, logs.any().then_some(logs.every));
        // made at once, since a guest has no memory to grow in
        let most = self.plan.job.ios.unwrap_or(0) as usize;
        self.tally.each = logs.each.then(|| Vec::with_capacity(most));
        self.usage = self.run.usage();
        self.counting = true;
    }

    /// This clone's part of what its thread has used since it counts.
    fn used_now(&self) -> Usage {
        self.run.usage().since(self.usage).part_of(self.plan.crew)
    }

    /// The run is over: bring home what was counted.
    pub(crate) fn finish(mut self) -> Outcome {
        if !self.counting {
            self.start_counting();
        }
        self.tally.usage = self.used.unwrap_or_else(|| self.used_now());
        let until = self.end_ns.min(self.run.now());
        if self.sent < self.limit {
            // time went on after the last request that ended, so it belongs to the rate
            self.tally.end_ns = self.tally.end_ns.max(until);
            if self.open_loop {
                self.tally.unsent = self.pacers.iter_mut().flatten().map(|pacer| pacer.left_before(until)).sum();
            }
        }
        let span = self.plan.span;
        let pending = self
            .slots
            .iter()
            .filter_map(|slot| match &slot.task {
                Task::Idle => None,
                Task::Flush { .. } => Some(Pending { kind: "flush", offset: 0, bytes: 0, generation: None }),
                Task::Move { direction, block, expect } => Some(Pending {
                    kind: if *direction == Direction::Read { "read" } else { "write" },
                    offset: span.offset + block * span.block,
                    bytes: span.block,
                    generation: (*direction == Direction::Write && self.share.is_some()).then_some(expect.sent),
                }),
            })
            .collect();
        Outcome {
            job: self.plan.index,
            tally: self.tally,
            pending,
            findings: self.findings,
            bad_blocks: self.bad_blocks,
        }
    }
}
