// SPDX-License-Identifier: Apache-2.0
//! The disk: what the guest sees of it, and the queue of the load on its ports.

use crate::blk::{self, Blk};
use crate::board::Board;
use crate::chains::Chains;
use crate::clock::Clock;
use crate::found::{Found, Kind as Thing, Place};
use crate::machine::{Apic, TICK, WAKE, halt, relax};
use crate::nvme;
use crate::port::{Kind, Port};
use crate::scsi::{self, Scsi};
use crate::virtio::Device;
use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;
use serde::Serialize;
use virtune_load_core::failure::Failure;
use virtune_load_core::job::Bus;
use virtune_load_core::plan;
use virtune_load_core::run::{Done, Queue, Run as _, Shape};

/// What the guest sees of its disk.
#[derive(Clone, Debug, Serialize)]
pub struct Seen {
    /// Its size, in units of 512 bytes.
    pub sectors: u64,
    /// What requests must be multiples of, in bytes.
    pub logical_block_size: u32,
    /// What the medium writes at once, in bytes.
    pub physical_block_size: u32,
    /// How many queues it offers.
    pub queues: u16,
    /// How many requests fit into a queue, as the disk counts them: descriptors, or commands.
    pub queue_size: u16,
    /// Whether it has a write cache: `write back` or `write through`.
    pub write_cache: &'static str,
    /// Whether it may not be written.
    pub read_only: bool,
    /// The features of virtio that both sides have.
    pub features: u64,
    /// What the device offers of them.
    pub offered: u64,
    /// Whether a flush is sent to it.
    #[serde(skip)]
    pub flushes: bool,
}

/// What is behind the ports: the device of a virtio disk, or the controller of an NVMe disk.
#[derive(Clone, Copy)]
enum Behind {
    Blk(Device),
    Scsi(Device),
    Nvme(nvme::Controller),
}

impl Behind {
    fn trouble(&self) -> Option<&'static str> {
        match self {
            Behind::Blk(device) | Behind::Scsi(device) => device.trouble(),
            Behind::Nvme(controller) => controller.trouble(),
        }
    }

    fn acknowledge(&self) {
        match self {
            Behind::Blk(device) | Behind::Scsi(device) => device.acknowledge(),
            Behind::Nvme(_) => {}
        }
    }

    fn reset(&self) -> Result<(), Failure> {
        match self {
            Behind::Blk(device) | Behind::Scsi(device) => device.reset(),
            Behind::Nvme(controller) => controller.reset(),
        }
    }
}

/// The disk, reset and ready for ports.
pub struct Disk {
    place: Place,
    clock: Clock,
    behind: Behind,
    /// NVMe's queue of orders to the controller.
    admin: Option<nvme::Pair>,
    /// On which bus it is.
    pub bus: Bus,
    /// What was seen of it.
    pub seen: Seen,
}

/// A disk that a load has had: it takes nothing more.
pub struct Used(Behind);

impl Used {
    /// Take everything back from the disk.
    pub fn end(self) -> Result<(), Failure> {
        self.0.reset()
    }
}

impl Disk {
    /// Reset the disk and look at it.
    pub fn new(found: Option<Found>, clock: Clock) -> Result<Disk, Failure> {
        let none = || Failure::run("the guest has no disk on virtio-blk, virtio-scsi or NVMe");
        let Found { kind, place } = found.ok_or_else(none)?;
        let mut admin = None;
        let (bus, behind, seen) = match (kind, place) {
            (Thing::Disk(Bus::VirtioBlk), _) => {
                let (device, seen) = blk::look(place)?;
                (Bus::VirtioBlk, Behind::Blk(device), seen)
            }
            (Thing::Disk(Bus::VirtioScsi), _) => {
                let (device, seen) = scsi::look(place, clock)?;
                (Bus::VirtioScsi, Behind::Scsi(device), seen)
            }
            (Thing::Disk(Bus::Nvme), Place::Pci(function)) => {
                let (controller, orders, seen) = nvme::look(function, clock)?;
                admin = Some(orders);
                (Bus::Nvme, Behind::Nvme(controller), seen)
            }
            _ => return Err(none()),
        };
        Ok(Disk { place, clock, behind, admin, bus, seen })
    }

    /// What a plan needs to know of it.
    pub fn plan(&self) -> plan::Disk {
        plan::Disk { capacity: self.seen.sectors * 512, alignment: u64::from(self.seen.logical_block_size) }
    }

    /// Start it with the clones of a load: `queues` has the shapes of those on each port. Each CPU gets its ports in
    /// turn; they come back in the order of the CPUs.
    pub fn start(
        mut self,
        queues: &[Vec<Shape>],
        cpus: usize,
        board: &Board,
        polled: bool,
    ) -> Result<(Used, Vec<Ports>), Failure> {
        if !polled && !self.place.interrupts(WAKE, cpus) {
            return Err(Failure::run("the disk has no MSI-X for every CPU: it can only be polled"));
        }
        let mut found: Vec<Ports> = (0..cpus).map(|_| Ports::none(&self, board.clone(), polled)).collect();
        for (number, shapes) in queues.iter().enumerate() {
            let cpu = number % cpus;
            let port = self.port(number as u16, (!polled).then_some(cpu as u16))?;
            found[cpu].add(port, shapes)?;
        }
        if let Behind::Blk(device) | Behind::Scsi(device) = self.behind {
            device.begin();
        }
        found[0].ports[0].ready(self.clock)?;
        Ok((Used(self.behind), found))
    }

    /// Make a queue of the load's; the first has number 0.
    fn port(&mut self, number: u16, vector: Option<u16>) -> Result<Box<dyn Port + Send>, Failure> {
        Ok(match (self.behind, &mut self.admin) {
            (Behind::Scsi(device), _) => {
                let words = Scsi { block: self.seen.logical_block_size };
                Box::new(Chains::new(device, number + scsi::QUEUES_BEFORE, vector, words)?)
            }
            // the controller's queue of orders is number 0
            (Behind::Nvme(controller), Some(admin)) => {
                Box::new(controller.pair(admin, self.clock, number + 1, vector)?)
            }
            (Behind::Blk(device), _) => Box::new(Chains::new(device, number, vector, Blk)?),
            (Behind::Nvme(_), None) => return Err(Failure::run("the NVMe disk takes no orders")),
        })
    }
}

struct Slot {
    port: usize,
    tag: u32,
    block: u32,
    place: u64,
    busy: bool,
    kind: Kind,
    /// Whether a flush is to follow before it counts as done.
    flushes: bool,
}

/// The ports of the disk that one CPU drives, as one queue of the load.
pub struct Ports {
    behind: Behind,
    ports: Vec<Box<dyn Port + Send>>,
    slots: Vec<Slot>,
    /// Whose request has a tag, for each port.
    owners: Vec<Vec<u32>>,
    /// Whether the disk takes flushes.
    flushes: bool,
    polled: bool,
    in_flight: usize,
    ended: Vec<Done>,
    /// Flushes of a disk without a write cache: they are done as they are sent.
    empty: Vec<usize>,
    /// When a request last ended, or was sent to a disk that had none.
    moved_ns: u64,
    /// When the disk was last asked whether it can go on.
    asked_ns: u64,
    board: Board,
    /// What the disk completed.
    pub counts: Counts,
}

/// Requests that the disk completed, those of the ramp too.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Counts {
    reads: u64,
    writes: u64,
    flushes: u64,
    read_bytes: u64,
    written_bytes: u64,
}

impl Counts {
    /// Add those of other rings.
    pub fn add(&mut self, other: &Counts) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.flushes += other.flushes;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
    }
}

impl Ports {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.ports.len()
    }

    fn none(disk: &Disk, board: Board, polled: bool) -> Ports {
        Ports {
            behind: disk.behind,
            ports: Vec::new(),
            slots: Vec::new(),
            owners: Vec::new(),
            flushes: disk.seen.flushes,
            polled,
            in_flight: 0,
            ended: Vec::new(),
            empty: Vec::new(),
            moved_ns: 0,
            asked_ns: 0,
            board,
            counts: Counts::default(),
        }
    }

    /// Add a port with its slots.
    fn add(&mut self, mut port: Box<dyn Port + Send>, shapes: &[Shape]) -> Result<(), Failure> {
        let mut owners = Vec::new();
        for shape in shapes {
            for _ in 0..shape.depth {
                let (tag, place) = port.room(shape.block as u32)?;
                owners.resize(tag as usize, u32::MAX);
                owners.push(self.slots.len() as u32);
                self.slots.push(Slot {
                    port: self.ports.len(),
                    tag,
                    block: shape.block as u32,
                    place,
                    busy: false,
                    kind: Kind::Read,
                    flushes: false,
                });
            }
        }
        port.listen(false);
        self.ended.reserve(self.slots.len());
        self.ports.push(port);
        self.owners.push(owners);
        Ok(())
    }

    /// Make the CPU that drives them ready: a clock wakes it where it halts.
    pub fn settle_here(&self) {
        Apic.tick(if self.polled { None } else { Some(WAKE) });
    }

    /// How often doorbells were rung.
    pub fn kicks(&self) -> u64 {
        self.ports.iter().map(|port| port.kicks()).sum()
    }

    fn claim(&mut self, number: usize, flushes: bool) {
        let slot = &mut self.slots[number];
        assert!(!slot.busy, "slot {number} is in flight");
        (slot.busy, slot.flushes) = (true, flushes);
        if self.in_flight == 0 {
            self.moved_ns = self.board.now();
        }
        self.in_flight += 1;
    }

    fn send(&mut self, number: usize, kind: Kind, offset: u64) {
        let slot = &mut self.slots[number];
        slot.kind = kind;
        self.ports[slot.port].send(slot.tag, kind, offset);
    }

    /// Count a request that came to a good end; whether it is done, or a flush follows it.
    fn well(&mut self, number: usize) -> bool {
        let slot = &mut self.slots[number];
        let bytes = u64::from(slot.block);
        match slot.kind {
            Kind::Read => {
                (self.counts.reads, self.counts.read_bytes) = (self.counts.reads + 1, self.counts.read_bytes + bytes);
            }
            Kind::Write => {
                (self.counts.writes, self.counts.written_bytes) =
                    (self.counts.writes + 1, self.counts.written_bytes + bytes);
            }
            Kind::Flush => self.counts.flushes += 1,
        }
        let done = !core::mem::take(&mut slot.flushes) || !self.flushes;
        if !done {
            self.send(number, Kind::Flush, 0);
        }
        done
    }

    /// Take what the disk gave back, at most so many; a disk that gives back what it never had is a failure.
    fn reap(&mut self, most: usize) -> Result<(), Failure> {
        while self.ended.len() < most
            && let Some(slot) = self.empty.pop()
        {
            self.settle(slot, 0);
        }
        for index in 0..self.ports.len() {
            while self.ended.len() < most {
                let Some((tag, said)) = self.ports[index].take() else { break };
                let owner = self.owners[index].get(tag as usize).copied().unwrap_or(u32::MAX) as usize;
                if !self.slots.get(owner).is_some_and(|slot| slot.busy) {
                    return Err(Failure::run(format!(
                        "the disk gave request {tag} of queue {} back, which it did not have",
                        self.ports[index].number()
                    )));
                }
                match self.ports[index].judge(tag, said)? {
                    0 if self.well(owner) => self.settle(owner, 0),
                    0 => {}
                    errno => self.settle(owner, errno),
                }
            }
        }
        Ok(())
    }

    fn settle(&mut self, slot: usize, result: i32) {
        self.slots[slot].busy = false;
        self.in_flight -= 1;
        self.ended.push(Done { slot, result });
    }

    /// Fail with what is to be said of a disk that ended nothing for a while: it says itself that it cannot go on, or
    /// the while was longer than it may be.
    fn require_alive(&mut self, now: u64) -> Result<(), Failure> {
        let since = |then: u64| Duration::from_nanos(now.saturating_sub(then));
        if since(self.moved_ns.max(self.asked_ns)) > TICK {
            self.asked_ns = now; // an exit
            if let Some(trouble) = self.behind.trouble() {
                return Err(Failure::run(format!("the disk {trouble}")));
            }
        }
        let patience = Duration::from_nanos(self.board.patience_ns());
        if since(self.moved_ns) > patience {
            let seconds = patience.as_secs_f64();
            return Err(Failure::run(format!("the disk completed nothing for {seconds} s: it is stuck")));
        }
        Ok(())
    }

    /// Halt until an interrupt comes; several may be seen by one look, and one may come for nothing.
    fn sleep(&mut self) {
        self.behind.acknowledge();
        let mut waits = false;
        for port in &mut self.ports {
            waits |= port.listen(true);
        }
        if !waits {
            halt();
        }
        for port in &mut self.ports {
            port.listen(false);
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
        if self.flushes {
            self.send(slot, Kind::Flush, 0);
        } else {
            self.empty.push(slot);
        }
    }

    #[inline]
    fn submit(&mut self) -> Result<(), Failure> {
        for port in &mut self.ports {
            port.kick();
        }
        Ok(())
    }

    #[inline]
    fn wait(&mut self, least: usize, most: usize, limit: Duration) -> Result<usize, Failure> {
        self.submit()?;
        self.ended.clear();
        let least = least.min(self.in_flight);
        let begun = self.board.now();
        loop {
            self.reap(most)?;
            let now = self.board.now();
            if !self.ended.is_empty() {
                self.moved_ns = now;
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
