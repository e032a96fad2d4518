// SPDX-License-Identifier: Apache-2.0
//! The plan of a load: which part of the disk each clone works on, and which queue it goes to.

use crate::failure::Failure;
use crate::job::Job;
use crate::prelude::*;
use crate::run::Shape;

/// The seed of loads that give none, so that they repeat.
pub const SEED: u64 = 0x76_69_72_74_75_6e_65;

/// What a plan needs to know of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Its size in bytes.
    pub capacity: u64,
    /// What offsets and lengths must be a multiple of.
    pub alignment: u64,
}

/// The part of the disk that a clone works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Bytes of a block.
    pub block: u64,
    /// Where the span starts.
    pub offset: u64,
    /// How many blocks it has.
    pub blocks: u64,
}

/// What one clone is to do.
pub struct Plan {
    /// The job.
    pub job: Job,
    /// Which of the jobs it is.
    pub index: usize,
    /// Which of its clones.
    pub clone: u64,
    /// The part of the disk it works on.
    pub span: Span,
    /// The seed of everything random.
    pub seed: u64,
    /// Its stream of random numbers, its own in the whole load.
    pub stream: u64,
    /// Its first slot in the queue.
    pub first: usize,
    /// How many clones its thread drives, each of which counts its part of what the thread uses.
    pub crew: usize,
}

/// What each clone of each job is to do.
pub fn plans(jobs: &[Job], spans: &[Vec<Span>], seed: u64) -> Vec<Plan> {
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
pub fn share_out(plans: Vec<Plan>, queues: usize) -> Vec<Vec<Plan>> {
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

/// What one clone needs of its queue.
pub fn shape(plan: &Plan) -> Shape {
    Shape { depth: plan.job.depth, block: plan.job.block as usize }
}

/// The part of the disk that each clone of each job works on.
pub fn spans(jobs: &[Job], disk: &Disk) -> Result<Vec<Vec<Span>>, Failure> {
    jobs.iter().map(|job| (0..job.clones as u64).map(|clone| span(job, clone, disk)).collect()).collect()
}

fn span(job: &Job, clone: u64, disk: &Disk) -> Result<Span, Failure> {
    let (capacity, alignment, block) = (disk.capacity, disk.alignment, job.block);
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
