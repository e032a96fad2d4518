// SPDX-License-Identifier: Apache-2.0
//! The disk: a virtio-blk device, and the queue of the load on its rings.

use crate::board::Board;
use crate::machine::{Apic, TICK, WAKE, halt, relax};
use crate::pci::Function;
use crate::virtio::{Device, EVENT_IDX, INDIRECT, Piece, Ring, memory};
use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;
use serde::Serialize;
use virtune_load_core::failure::Failure;
use virtune_load_core::plan;
use virtune_load_core::run::{Done, Queue, Run as _, Shape};

const BLOCK_SIZE: u64 = 1 << 6;
const FLUSH: u64 = 1 << 9;
const TOPOLOGY: u64 = 1 << 10;
const CONFIG_WCE: u64 = 1 << 11;
const QUEUES: u64 = 1 << 12;
const READ_ONLY: u64 = 1 << 5;
const SECTOR: u64 = 512;
/// Bytes of a request's header; its status is one byte more.
const HEADER: u32 = 16;
/// What a status is before the device writes it: none that a device may write.
const UNWRITTEN: u8 = 0xff;
/// What is asked of the disk: to read, to write, to flush.
const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSHED: u32 = 4;

const EIO: i32 = -5;
const ENOTSUP: i32 = -95;

/// What the guest sees of its disk.
#[derive(Clone, Debug, Serialize)]
pub struct Seen {
    /// Its size.
    pub sectors: u64,
    /// What requests must be multiples of, in bytes.
    pub logical_block_size: u32,
    /// What the medium writes at once, in bytes.
    pub physical_block_size: u32,
    /// How many queues it offers.
    pub queues: u16,
    /// How many descriptors a queue has.
    pub queue_size: u16,
    /// Whether it has a write cache: `write back` or `write through`.
    pub write_cache: &'static str,
    /// Whether it may not be written.
    pub read_only: bool,
    /// The features that both sides have.
    pub features: u64,
    /// What the device offers.
    pub offered: u64,
}

/// The disk, reset and ready for rings.
pub struct Disk {
    function: Function,
    /// The device itself.
    pub device: Device,
    /// What was seen of it.
    pub seen: Seen,
}

impl Disk {
    /// Reset the disk and look at it.
    pub fn new(function: Function) -> Result<Disk, Failure> {
        let wanted = BLOCK_SIZE | FLUSH | TOPOLOGY | CONFIG_WCE | QUEUES | READ_ONLY | INDIRECT | EVENT_IDX;
        let device = Device::new(function, wanted)?;
        let own = device.own;
        // SAFETY: the device's own registers, in memory that was dealt out to it.
        let (word, half, byte) = unsafe {
            let word = |at: u64| ((own + at) as *const u32).read_volatile();
            let half = |at: u64| ((own + at) as *const u16).read_volatile();
            let byte = |at: u64| ((own + at) as *const u8).read_volatile();
            ((word(0), word(4), word(20)), half(34), (byte(24), byte(32)))
        };
        let logical = if device.has(BLOCK_SIZE) { word.2.max(512) } else { 512 };
        let caches = if device.has(CONFIG_WCE) { byte.1 != 0 } else { device.has(FLUSH) };
        let seen = Seen {
            sectors: u64::from(word.0) | u64::from(word.1) << 32,
            logical_block_size: logical,
            physical_block_size: if device.has(TOPOLOGY) { logical << byte.0.min(16) } else { logical },
            queues: if device.has(QUEUES) { half.max(1) } else { 1 },
            queue_size: device.ring_size(0),
            write_cache: if caches { "write back" } else { "write through" },
            read_only: device.has(READ_ONLY),
            features: device.features,
            offered: device.offered,
        };
        Ok(Disk { function, device, seen })
    }

    /// What a plan needs to know of it.
    pub fn plan(&self) -> plan::Disk {
        plan::Disk { capacity: self.seen.sectors * SECTOR, alignment: u64::from(self.seen.logical_block_size) }
    }

    /// Start it with the clones of a load: `queues` has the shapes of those on each ring. Each CPU gets its rings in
    /// turn; they come back in the order of the CPUs.
    pub fn start(self, queues: &[Vec<Shape>], cpus: usize, board: &Board, polled: bool) -> Result<Vec<Rings>, Failure> {
        if !polled && !self.function.interrupts(WAKE, cpus) {
            return Err(Failure::run("the disk has no MSI-X for every CPU: it can only be polled"));
        }
        let mut found: Vec<Rings> = (0..cpus).map(|_| Rings::none(self.device, board.clone(), polled)).collect();
        for (number, shapes) in queues.iter().enumerate() {
            let cpu = number % cpus;
            let ring = self.device.ring(number as u16, (!polled).then_some(cpu as u16))?;
            found[cpu].add(ring, shapes)?;
        }
        self.device.begin();
        Ok(found)
    }

    /// Take the disk back from its rings.
    pub fn end(device: Device) -> Result<(), Failure> {
        device.reset()
    }
}

struct Slot {
    ring: usize,
    head: u16,
    block: u32,
    place: u64,
    header: u64,
    busy: bool,
    kind: u32,
    expected: u32,
    /// Whether a flush is to follow before it counts as done.
    flushes: bool,
}

impl Slot {
    fn status(&self) -> u64 {
        self.header + u64::from(HEADER)
    }
}

/// The rings of the disk that one CPU drives, as one queue of the load.
pub struct Rings {
    device: Device,
    rings: Vec<Ring>,
    slots: Vec<Slot>,
    /// Whose chain begins with a descriptor, for each ring.
    owners: Vec<Vec<u32>>,
    indirect: bool,
    polled: bool,
    in_flight: usize,
    ended: Vec<Done>,
    /// Flushes of a disk without a write cache: they are done as they are sent.
    empty: Vec<usize>,
    /// When a request last ended, or was sent to a disk that had none.
    moved_ns: u64,
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

impl Rings {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.rings.len()
    }

    fn none(device: Device, board: Board, polled: bool) -> Rings {
        Rings {
            device,
            rings: Vec::new(),
            slots: Vec::new(),
            owners: Vec::new(),
            indirect: device.has(INDIRECT),
            polled,
            in_flight: 0,
            ended: Vec::new(),
            empty: Vec::new(),
            moved_ns: 0,
            board,
            counts: Counts::default(),
        }
    }

    /// Add a ring with its slots.
    fn add(&mut self, mut ring: Ring, shapes: &[Shape]) -> Result<(), Failure> {
        let each = if self.indirect { 1 } else { 3 };
        let mut owners = alloc::vec![u32::MAX; usize::from(ring.size)];
        let mut head = 0;
        for shape in shapes {
            for _ in 0..shape.depth {
                if usize::from(head) + each > usize::from(ring.size) {
                    return Err(Failure::usage(format!(
                        "a queue of the disk has {} descriptors, too few for what is to be in flight on it",
                        ring.size
                    )));
                }
                owners[usize::from(head)] = self.slots.len() as u32;
                self.slots.push(Slot {
                    ring: self.rings.len(),
                    head,
                    block: shape.block as u32,
                    place: memory(shape.block, 4096)?,
                    header: memory(HEADER as usize + 1 + 15 + 48, 64)?,
                    busy: false,
                    kind: IN,
                    expected: 0,
                    flushes: false,
                });
                head += each as u16;
            }
        }
        ring.listen(false);
        self.ended.reserve(self.slots.len());
        self.rings.push(ring);
        self.owners.push(owners);
        Ok(())
    }

    /// Make the CPU that drives them ready: a clock wakes it where it halts.
    pub fn settle_here(&self) {
        Apic.tick(if self.polled { None } else { Some(WAKE) });
    }

    /// How often doorbells were rung.
    pub fn kicks(&self) -> u64 {
        self.rings.iter().map(|ring| ring.kicks).sum()
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

    fn send(&mut self, number: usize, kind: u32, offset: u64) {
        let slot = &mut self.slots[number];
        let header = slot.header;
        // SAFETY: the slot's own header, which no request in flight has.
        unsafe {
            (header as *mut u32).write_volatile(kind);
            ((header + 4) as *mut u32).write_volatile(0);
            ((header + 8) as *mut u64).write_volatile(offset / SECTOR);
            (slot.status() as *mut u8).write_volatile(UNWRITTEN);
        }
        let status = Piece { address: slot.status(), bytes: 1, write: true };
        let head = Piece { address: header, bytes: HEADER, write: false };
        let data = Piece { address: slot.place, bytes: slot.block, write: kind == IN };
        slot.kind = kind;
        slot.expected = if kind == IN { slot.block + 1 } else { 1 };
        let whole = [head, data, status];
        let pieces: &[Piece] = if kind == FLUSHED { &[head, status] } else { &whole };
        let ring = &mut self.rings[slot.ring];
        if self.indirect {
            ring.indirect(slot.head, header + 32, pieces);
        } else {
            ring.chain(slot.head, pieces);
        }
        ring.send(slot.head);
    }

    /// Count a request that came to a good end; whether it is done, or a flush follows it.
    fn well(&mut self, number: usize) -> bool {
        let slot = &mut self.slots[number];
        let bytes = u64::from(slot.block);
        match slot.kind {
            IN => (self.counts.reads, self.counts.read_bytes) = (self.counts.reads + 1, self.counts.read_bytes + bytes),
            OUT => {
                (self.counts.writes, self.counts.written_bytes) =
                    (self.counts.writes + 1, self.counts.written_bytes + bytes);
            }
            _ => self.counts.flushes += 1,
        }
        let done = !core::mem::take(&mut slot.flushes) || !self.device.has(FLUSH);
        if !done {
            self.send(number, FLUSHED, 0);
        }
        done
    }

    /// Take what the device gave back, at most so many; a device that gives back what it never had is a failure.
    fn reap(&mut self, most: usize) -> Result<(), Failure> {
        while self.ended.len() < most
            && let Some(slot) = self.empty.pop()
        {
            self.settle(slot, 0);
        }
        for index in 0..self.rings.len() {
            while self.ended.len() < most {
                let Some((head, wrote)) = self.rings[index].take() else { break };
                let owner = self.owners[index].get(head as usize).copied().unwrap_or(u32::MAX) as usize;
                let Some(slot) = self.slots.get(owner).filter(|slot| slot.busy) else {
                    return Err(Failure::run(format!(
                        "the disk gave request {head} of queue {} back, which it did not have",
                        self.rings[index].number
                    )));
                };
                // SAFETY: the slot's own status, which the device gave back.
                let status = unsafe { (slot.status() as *const u8).read_volatile() };
                match status {
                    0 if wrote < slot.expected => {
                        return Err(Failure::run(format!(
                            "the disk wrote {wrote} bytes for a request that needs {}",
                            slot.expected
                        )));
                    }
                    0 if self.well(owner) => self.settle(owner, 0),
                    0 => {}
                    1 => self.settle(owner, EIO),
                    2 => self.settle(owner, ENOTSUP),
                    other => return Err(Failure::run(format!("the disk ended a request with status {other}"))),
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

    /// What is to be said of a disk that ends nothing for longer than it may.
    fn stuck(&self, now: u64) -> Result<(), Failure> {
        if now.saturating_sub(self.moved_ns) > self.board.patience_ns() {
            let broken = if self.device.broken() { ", and it says that it needs a reset" } else { "" };
            return Err(Failure::run(format!(
                "the disk completed nothing for {} s: it is stuck{broken}",
                self.board.patience_ns() as f64 / 1e9
            )));
        }
        Ok(())
    }

    /// Halt until an interrupt comes; several may be seen by one look, and one may come for nothing.
    fn sleep(&mut self) {
        let mut waits = false;
        for ring in &mut self.rings {
            waits |= ring.listen(true);
        }
        if !waits {
            halt();
        }
        for ring in &mut self.rings {
            ring.listen(false);
        }
    }
}

impl Queue for Rings {
    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn buffer(&mut self, number: usize) -> &mut [u8] {
        let slot = &self.slots[number];
        assert!(!slot.busy, "slot {number} is in flight");
        // SAFETY: the slot's own buffer; it is idle, so the device has given it back, and `&mut self` keeps every
        // other reference away.
        unsafe { core::slice::from_raw_parts_mut(slot.place as *mut u8, slot.block as usize) }
    }

    #[inline]
    fn read(&mut self, slot: usize, offset: u64) {
        self.claim(slot, false);
        self.send(slot, IN, offset);
    }

    #[inline]
    fn write(&mut self, slot: usize, offset: u64, durable: bool) {
        self.claim(slot, durable);
        self.send(slot, OUT, offset);
    }

    fn flush(&mut self, slot: usize) {
        self.claim(slot, false);
        if self.device.has(FLUSH) {
            self.send(slot, FLUSHED, 0);
        } else {
            self.empty.push(slot);
        }
    }

    #[inline]
    fn submit(&mut self) -> Result<(), Failure> {
        for ring in &mut self.rings {
            ring.kick();
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
            self.stuck(now)?;
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
