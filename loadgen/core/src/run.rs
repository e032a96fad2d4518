// SPDX-License-Identifier: Apache-2.0
//! A run, as a load sees it: the queue that takes its requests, the clock and the end, the journal of its writes.

use crate::failure::Failure;
use crate::prelude::*;
use crate::record::Record;
use crate::tally::Usage;
use core::time::Duration;

/// Why the load ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All that was asked for was done.
    Complete,
    /// A signal asked for it.
    Signal(&'static str),
    /// It could not go on.
    Failed(Failure),
}

/// How far the load may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
#[repr(u8)]
pub enum State {
    /// Send requests.
    Run = 0,
    /// Send no more, wait for those in flight.
    Drain = 1,
    /// Do not even wait.
    Abandon = 2,
}

/// What all queues of a run share: its clock and its end. Cloning gives another handle on the same run.
pub trait Run: Clone {
    /// Nanoseconds since the run was made; the same for all threads, never going back.
    fn now(&self) -> u64;
    /// When the load began, by the same clock.
    fn start_ns(&self) -> u64;
    /// How far the load may go on.
    fn state(&self) -> State;
    /// End the run; the first reason given is the one that counts, but a failure outdoes a signal.
    fn end(&self, ending: Ending, state: State);
    /// What this thread has used up to now.
    fn usage(&self) -> Usage;
    /// Do nothing for so long.
    fn sleep(&self, limit: Duration);
    /// Ask for sleeps that end in time.
    fn punctual(&self);
    /// Say what an errno means.
    fn explain(&self, errno: i32) -> String;
}

/// Requests in flight on a queue, and the bytes of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Requests in flight.
    pub depth: usize,
    /// Bytes of a request.
    pub block: usize,
}

/// A request that ended: its slot, and zero or a negative errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The slot it was sent from.
    pub slot: usize,
    /// Zero, or a negative errno.
    pub result: i32,
}

/// One queue of a disk, with a buffer for each slot. A buffer is given out only while its slot is idle.
pub trait Queue {
    /// How many requests are with the device.
    fn in_flight(&self) -> usize;
    /// Return the buffer of an idle slot; panics when the slot is in flight.
    fn buffer(&mut self, slot: usize) -> &mut [u8];
    /// Send a read into the slot's buffer.
    fn read(&mut self, slot: usize, offset: u64);
    /// Send a write from the slot's buffer; with `durable` it completes only when it is on the medium.
    fn write(&mut self, slot: usize, offset: u64, durable: bool);
    /// Send a flush: what completed before it is on the medium when it completes.
    fn flush(&mut self, slot: usize);
    /// Tell the device of what was sent, without waiting.
    fn submit(&mut self) -> Result<(), Failure>;
    /// Tell the device of what was sent, and wait until `least` requests ended, or the time is over; see at most
    /// `most`. Return how many ended; [`Queue::next_done`] gives them out. Zero when the time was over first.
    fn wait(&mut self, least: usize, most: usize, limit: Duration) -> Result<usize, Failure>;
    /// Take one of the requests that the last [`Queue::wait`] saw end, and give its slot back.
    fn next_done(&mut self) -> Option<Done>;
}

/// The part of a journal that belongs to one clone: what was sent, acknowledged and flushed of its blocks.
pub trait Share {
    /// The number that ties stamps on the disk to the journal.
    fn id(&self) -> u64;
    /// Whether a block has a request in flight; such a block takes no other.
    fn busy(&self, block: u64) -> bool;
    /// Note that a block is going to be written, and return the generation to stamp it with.
    fn send(&mut self, block: u64) -> Result<u32, Failure>;
    /// Note that a block is going to be read, and return the generations that may be found, first and last.
    fn look(&mut self, block: u64) -> Record;
    /// Note that a read ended.
    fn looked(&mut self, block: u64);
    /// Note that a write was acknowledged; with `durable` it is on the medium as well.
    fn acknowledge(&mut self, block: u64, generation: u32, durable: bool) -> Result<(), Failure>;
    /// Return what a flush that starts now will vouch for.
    fn flush_starts(&mut self) -> Vec<(u64, u32)>;
    /// Note that a flush completed.
    fn flush_ends(&mut self, vouched: &[(u64, u32)]) -> Result<(), Failure>;
}

/// The journal of a load that keeps none.
pub enum NoJournal {}

impl Share for NoJournal {
    fn id(&self) -> u64 {
        match *self {}
    }
    fn busy(&self, _: u64) -> bool {
        match *self {}
    }
    fn send(&mut self, _: u64) -> Result<u32, Failure> {
        match *self {}
    }
    fn look(&mut self, _: u64) -> Record {
        match *self {}
    }
    fn looked(&mut self, _: u64) {
        match *self {}
    }
    fn acknowledge(&mut self, _: u64, _: u32, _: bool) -> Result<(), Failure> {
        match *self {}
    }
    fn flush_starts(&mut self) -> Vec<(u64, u32)> {
        match *self {}
    }
    fn flush_ends(&mut self, _: &[(u64, u32)]) -> Result<(), Failure> {
        match *self {}
    }
}
