// SPDX-License-Identifier: Apache-2.0
//! The ports that one CPU drives, of one disk or of several, as one queue of the load.

use crate::board::Board;
use crate::machine::{Apic, TICK, WAKE, halt, relax};
use crate::nvme::Controller;
use crate::port::{Kind, Port};
use crate::virtio::Device;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;
use serde::Serialize;
use virtune_load_core::failure::Failure;
use virtune_load_core::run::{Done, Queue, Run as _, Shape};

/// What is behind the ports: the device of a virtio disk, or the controller of an NVMe disk.
#[derive(Clone, Copy)]
pub enum Behind {
    /// virtio-blk.
    Blk(Device),
    /// virtio-scsi.
    Scsi(Device),
    /// NVMe.
    Nvme(Controller),
}

impl Behind {
    /// What the disk says of itself that keeps it from going on, while it should.
    pub fn trouble(&self) -> Option<&'static str> {
        match self {
            Behind::Blk(device) | Behind::Scsi(device) => device.trouble(),
            Behind::Nvme(controller) => controller.trouble(),
        }
    }

    /// Take note of an interrupt, where the disk holds it until that is done.
    pub fn acknowledge(&self) {
        match self {
            Behind::Blk(device) | Behind::Scsi(device) => device.acknowledge(),
            Behind::Nvme(_) => {}
        }
    }

    /// Take everything back from the disk.
    pub fn reset(&self) -> Result<(), Failure> {
        match self {
            Behind::Blk(device) | Behind::Scsi(device) => device.reset(),
            Behind::Nvme(controller) => controller.reset(),
        }
    }
}

struct Slot {
    lane: usize,
    tag: u32,
    block: u32,
    place: u64,
    busy: bool,
    kind: Kind,
    /// Whether a flush is to follow before it counts as done.
    flushes: bool,
}

/// A port, and the disk that it belongs to.
pub struct Lane {
    port: Box<dyn Port + Send>,
    /// Which of the load's disks it is.
    disk: usize,
    /// What a failure calls the disk, where there are several.
    name: Option<String>,
    behind: Behind,
    /// Whether the disk takes flushes.
    flushes: bool,
    /// Whose request has a tag.
    owners: Vec<u32>,
    in_flight: usize,
    /// Whether a request ended since the clock was last read.
    moved: bool,
    /// When a request last ended, or was sent to a port that had none.
    moved_ns: u64,
    /// When the disk was last asked whether it can go on.
    asked_ns: u64,
    counts: Counts,
}

impl Lane {
    /// A port without slots.
    pub fn new(port: Box<dyn Port + Send>, disk: usize, name: Option<String>, behind: Behind, flushes: bool) -> Lane {
        Lane {
            port,
            disk,
            name,
            behind,
            flushes,
            owners: Vec::new(),
            in_flight: 0,
            moved: false,
            moved_ns: 0,
            asked_ns: 0,
            counts: Counts::default(),
        }
    }

    /// Fail with what is to be said of a disk that ended nothing for a while: it says itself that it cannot go on, or
    /// the while was longer than it may be.
    fn require_alive(&mut self, now: u64, patience: Duration) -> Result<(), Failure> {
        let since = |then: u64| Duration::from_nanos(now.saturating_sub(then));
        if since(self.moved_ns.max(self.asked_ns)) > TICK {
            self.asked_ns = now; // an exit
            if let Some(trouble) = self.behind.trouble() {
                return Err(self.named(Failure::run(format!("the disk {trouble}"))));
            }
        }
        if since(self.moved_ns) > patience {
            let seconds = patience.as_secs_f64();
            let message = format!("the disk completed nothing for {seconds} s: it is stuck");
            return Err(self.named(Failure::run(message)));
        }
        Ok(())
    }

    /// The failure, with the disk's name where there are several.
    fn named(&self, failure: Failure) -> Failure {
        match &self.name {
            Some(name) => failure.of(name),
            None => failure,
        }
    }
}

/// The ports that one CPU drives.
pub struct Ports {
    lanes: Vec<Lane>,
    slots: Vec<Slot>,
    polled: bool,
    in_flight: usize,
    ended: Vec<Done>,
    /// Flushes of a disk without a write cache: they are done as they are sent.
    empty: Vec<usize>,
    /// The lane that is looked at first.
    turn: usize,
    /// When all disks were last held to their patience.
    looked_ns: u64,
    board: Board,
}

/// Requests that a disk completed, those of the ramp too.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Counts {
    reads: u64,
    writes: u64,
    flushes: u64,
    read_bytes: u64,
    written_bytes: u64,
}

impl Counts {
    /// Add those of other ports.
    pub fn add(&mut self, other: &Counts) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.flushes += other.flushes;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
    }
}

impl Ports {
    /// None yet.
    pub fn none(board: Board, polled: bool) -> Ports {
        Ports {
            lanes: Vec::new(),
            slots: Vec::new(),
            polled,
            in_flight: 0,
            ended: Vec::new(),
            empty: Vec::new(),
            turn: 0,
            looked_ns: 0,
            board,
        }
    }

    /// Whether completions are looked for; else interrupts tell of them.
    pub fn polled(&self) -> bool {
        self.polled
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.lanes.len()
    }

    /// Add a port with its slots.
    pub fn add(&mut self, mut lane: Lane, shapes: &[Shape]) -> Result<(), Failure> {
        for shape in shapes {
            for _ in 0..shape.depth {
                let (tag, place) = lane.port.room(shape.block as u32)?;
                lane.owners.resize(tag as usize, u32::MAX);
                lane.owners.push(self.slots.len() as u32);
                self.slots.push(Slot {
                    lane: self.lanes.len(),
                    tag,
                    block: shape.block as u32,
                    place,
                    busy: false,
                    kind: Kind::Read,
                    flushes: false,
                });
            }
        }
        lane.port.listen(false);
        self.ended.reserve(self.slots.len());
        self.lanes.push(lane);
        Ok(())
    }

    /// The first port of a disk.
    pub fn first_of(&mut self, disk: usize) -> Option<&mut (dyn Port + Send + 'static)> {
        self.lanes.iter_mut().find(|lane| lane.disk == disk).map(|lane| &mut *lane.port)
    }

    /// Make the CPU that drives them ready: a clock wakes it where it halts.
    pub fn settle_here(&self) {
        Apic.tick(if self.polled { None } else { Some(WAKE) });
    }

    /// How often doorbells were rung.
    pub fn kicks(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.port.kicks()).sum()
    }

    /// Add what each disk completed to its counts in `all`.
    pub fn count_up(&self, all: &mut [Counts]) {
        self.lanes.iter().for_each(|lane| all[lane.disk].add(&lane.counts));
    }

    fn claim(&mut self, number: usize, flushes: bool) {
        let slot = &mut self.slots[number];
        assert!(!slot.busy, "slot {number} is in flight");
        (slot.busy, slot.flushes) = (true, flushes);
        let lane = &mut self.lanes[slot.lane];
        if lane.in_flight == 0 {
            lane.moved_ns = self.board.now();
        }
        lane.in_flight += 1;
        self.in_flight += 1;
    }

    fn send(&mut self, number: usize, kind: Kind, offset: u64) {
        let slot = &mut self.slots[number];
        slot.kind = kind;
        self.lanes[slot.lane].port.send(slot.tag, kind, offset);
    }

    /// Count a request that came to a good end; whether it is done, or a flush follows it.
    fn well(&mut self, number: usize) -> bool {
        let slot = &mut self.slots[number];
        let lane = &mut self.lanes[slot.lane];
        let (counts, bytes) = (&mut lane.counts, u64::from(slot.block));
        match slot.kind {
            Kind::Read => (counts.reads, counts.read_bytes) = (counts.reads + 1, counts.read_bytes + bytes),
            Kind::Write => (counts.writes, counts.written_bytes) = (counts.writes + 1, counts.written_bytes + bytes),
            Kind::Flush => counts.flushes += 1,
        }
        let done = !core::mem::take(&mut slot.flushes) || !lane.flushes;
        if !done {
            self.send(number, Kind::Flush, 0);
        }
        done
    }

    /// Take what the disks gave back, at most so many; a disk that gives back what it never had is a failure.
    fn reap(&mut self, most: usize) -> Result<(), Failure> {
        while self.ended.len() < most
            && let Some(slot) = self.empty.pop()
        {
            self.settle(slot, 0);
        }
        // each begins with the lane after the last one's, or a quick disk would keep the others waiting
        for _ in 0..self.lanes.len() {
            if self.ended.len() >= most {
                break;
            }
            let index = self.turn;
            self.turn = if index + 1 == self.lanes.len() { 0 } else { index + 1 };
            while self.ended.len() < most {
                let lane = &mut self.lanes[index];
                let Some((tag, said)) = lane.port.take() else { break };
                let owner = lane.owners.get(tag as usize).copied().unwrap_or(u32::MAX) as usize;
                if !self.slots.get(owner).is_some_and(|slot| slot.busy) {
                    return Err(lane.named(Failure::run(format!(
                        "the disk gave request {tag} of queue {} back, which it did not have",
                        lane.port.number()
                    ))));
                }
                match lane.port.judge(tag, said).map_err(|failure| lane.named(failure))? {
                    0 if self.well(owner) => self.settle(owner, 0),
                    0 => {}
                    errno => self.settle(owner, errno),
                }
            }
        }
        Ok(())
    }

    fn settle(&mut self, slot: usize, result: i32) {
        let lane = &mut self.lanes[self.slots[slot].lane];
        (lane.in_flight, lane.moved) = (lane.in_flight - 1, true);
        self.slots[slot].busy = false;
        self.in_flight -= 1;
        self.ended.push(Done { slot, result });
    }

    /// Note the time for the lanes on which something ended.
    fn note(&mut self, now: u64) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.moved) {
            (lane.moved, lane.moved_ns) = (false, now);
        }
    }

    /// Fail where a disk that has requests ended none for too long, or cannot go on.
    fn require_alive(&mut self, now: u64) -> Result<(), Failure> {
        let patience = Duration::from_nanos(self.board.patience_ns());
        self.lanes.iter_mut().filter(|lane| lane.in_flight > 0).try_for_each(|lane| lane.require_alive(now, patience))
    }

    /// Halt until an interrupt comes; several may be seen by one look, and one may come for nothing.
    fn sleep(&mut self) {
        let mut waits = false;
        for lane in &mut self.lanes {
            lane.behind.acknowledge();
            waits |= lane.port.listen(true);
        }
        if !waits {
            halt();
        }
        for lane in &mut self.lanes {
            lane.port.listen(false);
        }
    }
}

impl Queue for Ports {
    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn buffer(&mut self, number: usize) -> &mut [u8] {
        let slot = &self.slots[number];
        assert!(!slot.busy, "slot {number} is in flight");
        // SAFETY: the slot's own buffer; it is idle, so the disk has given it back, and `&mut self` keeps every
        // other reference away.
        unsafe { core::slice::from_raw_parts_mut(slot.place as *mut u8, slot.block as usize) }
    }

    #[inline]
    fn read(&mut self, slot: usize, offset: u64) {
        self.claim(slot, false);
        self.send(slot, Kind::Read, offset);
    }

    #[inline]
    fn write(&mut self, slot: usize, offset: u64, durable: bool) {
        self.claim(slot, durable);
        self.send(slot, Kind::Write, offset);
    }

    fn flush(&mut self, slot: usize) {
        self.claim(slot, false);
        if self.lanes[self.slots[slot].lane].flushes {
            self.send(slot, Kind::Flush, 0);
        } else {
            self.empty.push(slot);
        }
    }

    #[inline]
    fn submit(&mut self) -> Result<(), Failure> {
        for lane in &mut self.lanes {
            lane.port.kick();
        }
        Ok(())
    }

    #[inline]
    fn wait(&mut self, least: usize, most: usize, limit: Duration) -> Result<usize, Failure> {
        self.submit()?;
        self.ended.clear();
        let least = least.min(self.in_flight);
        let begun = self.board.now();
        if begun - self.looked_ns > TICK.as_nanos() as u64 {
            // a disk may stand still while the others keep this from ever waiting for long
            self.looked_ns = begun;
            self.require_alive(begun)?;
        }
        loop {
            self.reap(most)?;
            let now = self.board.now();
            if !self.ended.is_empty() {
                self.note(now);
            }
            self.submit()?; // of flushes that follow writes
            if self.ended.len() >= least || now - begun >= limit.as_nanos() as u64 {
                break;
            }
            self.require_alive(now)?;
            // a timetable is kept by looking: what wakes from a halt wakes late
            if self.polled || limit < TICK { relax() } else { self.sleep() }
        }
        self.ended.reverse(); // the first that ended is given out first, from the end
        Ok(self.ended.len())
    }

    #[inline]
    fn next_done(&mut self) -> Option<Done> {
        self.ended.pop()
    }
}
