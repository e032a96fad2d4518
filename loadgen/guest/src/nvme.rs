// SPDX-License-Identifier: Apache-2.0
//! NVMe: the controller with its first namespace, and pairs of queues for requests.

use crate::clock::Clock;
use crate::memory::{get, memory, put, text};
use crate::pci::Function;
use crate::port::{EIO, Kind, Port, Seen, wait_for};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{Ordering, fence};
use virtune_load_core::failure::Failure;

const CAPABILITIES: u64 = 0x00;
const CONFIGURATION: u64 = 0x14;
const STATUS: u64 = 0x1c;
const ADMIN_SIZES: u64 = 0x24;
const ADMIN_SENT: u64 = 0x28;
const ADMIN_ENDED: u64 = 0x30;
const DOORBELLS: u64 = 0x1000;
/// Enabled; entries of 64 and 16 bytes.
const ENABLE: u32 = 1 | 6 << 16 | 4 << 20;
const READY: u32 = 1;
const FATAL: u32 = 2;

const CREATE_SENT: u8 = 0x01;
const CREATE_ENDED: u8 = 0x05;
const IDENTIFY: u8 = 0x06;
const SET_FEATURES: u8 = 0x09;
const QUEUE_COUNT: u32 = 0x07;
const FLUSH: u8 = 0x00;
const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
/// The only namespace that is driven.
const NAMESPACE: u32 = 1;

const PAGE: u32 = 4096;
/// Entries of a queue of requests, of which one stays free: as many as Linux makes.
const ENTRIES: u16 = 1024;
const ADMIN_ENTRIES: u16 = 16;
/// Pages that a list in one page names, and the first one.
const PAGES_MAX: u32 = PAGE / 8 + 1;
/// More queues than are ever asked for.
const QUEUES_MAX: u32 = 1024;

/// A command's 16 words.
type Command = [u32; 16];

/// A controller that is enabled.
#[derive(Clone, Copy)]
pub struct Controller {
    registers: u64,
    /// How far doorbells lie apart.
    apart: u64,
    entries: u16,
    block: u32,
    /// The most bytes of a request.
    largest: u32,
}

/// Reset the controller, enable it and ask for its namespace.
pub fn look(function: Function, clock: Clock) -> Result<(Controller, Pair, Seen), Failure> {
    let (mut controller, mut admin, page) = enabled(function, clock)?;
    let (most, caches) = (get::<u8>(page + 77), get::<u8>(page + 525) & 1 != 0);
    controller.largest = PAGES_MAX.min(if most == 0 { PAGES_MAX } else { 1 << most.min(16) }) * PAGE;
    admin.run(clock, &about(IDENTIFY, NAMESPACE, page, [0, 0]))?;
    let format = u64::from(get::<u8>(page + 26) & 15);
    controller.block = 1 << get::<u8>(page + 128 + 4 * format + 2).clamp(9, 16);
    let wanted = QUEUES_MAX - 1;
    let granted = admin.run(clock, &about(SET_FEATURES, 0, 0, [QUEUE_COUNT, wanted << 16 | wanted]))?;
    let seen = Seen {
        sectors: get::<u64>(page).saturating_mul(u64::from(controller.block) / 512),
        logical_block_size: controller.block,
        physical_block_size: controller.block,
        queues: (granted & 0xffff).min(granted >> 16).clamp(0, wanted) as u16 + 1,
        queue_size: controller.entries - 1,
        write_cache: if caches { "write back" } else { "write through" },
        flushes: caches,
        read_only: get::<u8>(page + 99) & 1 != 0,
        features: 0,
        offered: 0,
    };
    Ok((controller, admin, seen))
}

/// Reset the controller, enable it and ask for its serial number.
pub fn serial(function: Function, clock: Clock) -> Result<String, Failure> {
    let (controller, _, page) = enabled(function, clock)?;
    controller.reset()?;
    Ok(text(page + 4, 20))
}

/// Reset the controller, enable it and ask what it is: with its queue of orders, and the page of its answer.
fn enabled(function: Function, clock: Clock) -> Result<(Controller, Pair, u64), Failure> {
    let registers = u64::from(function.memory(0).ok_or_else(|| Failure::run("the NVMe disk has no registers"))?);
    let capabilities: u64 = get(registers + CAPABILITIES);
    let controller = Controller {
        registers,
        apart: 4 << (capabilities >> 32 & 15),
        entries: ENTRIES.min((capabilities as u16).saturating_add(1)),
        block: 512,
        largest: 0,
    };
    controller.reset_within(clock)?;
    let mut admin = Pair::new(&controller, 0, ADMIN_ENTRIES)?;
    put(registers + ADMIN_SIZES, u32::from(ADMIN_ENTRIES - 1) << 16 | u32::from(ADMIN_ENTRIES - 1));
    put(registers + ADMIN_SENT, admin.sent);
    put(registers + ADMIN_ENDED, admin.ended);
    put(registers + CONFIGURATION, ENABLE);
    controller.wait(clock, READY)?;
    let page = memory(PAGE as usize, PAGE as usize)?;
    admin.run(clock, &about(IDENTIFY, 0, page, [1, 0]))?;
    Ok((controller, admin, page))
}

impl Controller {
    /// Take everything back from the disk.
    pub fn reset(&self) -> Result<(), Failure> {
        put(self.registers + CONFIGURATION, 0u32);
        for _ in 0..1_000_000 {
            if get::<u32>(self.registers + STATUS) & READY == 0 {
                return Ok(());
            }
        }
        Err(Failure::run("the NVMe disk did not come back from its reset"))
    }

    fn reset_within(&self, clock: Clock) -> Result<(), Failure> {
        put(self.registers + CONFIGURATION, 0u32);
        self.wait(clock, 0)
    }

    fn wait(&self, clock: Clock, ready: u32) -> Result<(), Failure> {
        let status = || get::<u32>(self.registers + STATUS);
        wait_for(clock, "the NVMe disk was not ready", || (status() & (READY | FATAL) == ready).then_some(()))
    }

    /// What the disk says of itself that keeps it from going on, while it should.
    pub fn trouble(&self) -> Option<&'static str> {
        match get::<u32>(self.registers + STATUS) {
            status if status & FATAL != 0 => Some("says that it cannot go on"),
            status if status & READY == 0 => Some("was reset while it had requests"),
            _ => None,
        }
    }

    /// Make a pair of queues; with `vector` it interrupts by that row of its table.
    pub fn pair(&self, admin: &mut Pair, clock: Clock, number: u16, vector: Option<u16>) -> Result<Pair, Failure> {
        let pair = Pair::new(self, number, self.entries)?;
        let sizes = u32::from(self.entries - 1) << 16 | u32::from(number);
        let interrupts = vector.map_or(0, |vector| u32::from(vector) << 16 | 2);
        admin.run(clock, &about(CREATE_ENDED, 0, pair.ended, [sizes, interrupts | 1]))?;
        admin.run(clock, &about(CREATE_SENT, 0, pair.sent, [sizes, u32::from(number) << 16 | 1]))?;
        Ok(pair)
    }
}

fn about(what: u8, namespace: u32, place: u64, more: [u32; 2]) -> Command {
    let mut command = [0; 16];
    (command[0], command[1]) = (u32::from(what), namespace);
    (command[6], command[7]) = (place as u32, (place >> 32) as u32);
    (command[10], command[11]) = (more[0], more[1]);
    command
}

struct Request {
    data: u64,
    /// The second page of the data, or the list of all but the first; zero where there is one page.
    more: u64,
    bytes: u32,
}

/// A queue of commands, and the queue of their ends.
pub struct Pair {
    number: u16,
    entries: u16,
    sent: u64,
    ended: u64,
    doorbell: u64,
    apart: u64,
    block: u32,
    largest: u32,
    requests: Vec<Request>,
    tail: u16,
    told_tail: u16,
    head: u16,
    told_head: u16,
    /// The mark of an entry that is new: it changes with each turn.
    phase: u32,
    kicks: u64,
}

impl Pair {
    fn new(controller: &Controller, number: u16, entries: u16) -> Result<Pair, Failure> {
        Ok(Pair {
            number,
            entries,
            sent: memory(64 * usize::from(entries), PAGE as usize)?,
            ended: memory(16 * usize::from(entries), PAGE as usize)?,
            doorbell: controller.registers + DOORBELLS + 2 * u64::from(number) * controller.apart,
            apart: controller.apart,
            block: controller.block,
            largest: controller.largest,
            requests: Vec::new(),
            tail: 0,
            told_tail: 0,
            head: 0,
            told_head: 0,
            phase: 1,
            kicks: 0,
        })
    }

    /// Run one command to its end; returns what it gives back.
    fn run(&mut self, clock: Clock, command: &Command) -> Result<u32, Failure> {
        let head = self.head;
        self.put_in(command);
        self.kick();
        let (_, status) = wait_for(clock, "the NVMe disk did not answer", || self.take())?;
        if status != 0 {
            return Err(Failure::run(format!("the NVMe disk refused command {:#x}: status {status:#x}", command[0])));
        }
        Ok(get(self.ended + 16 * u64::from(head)))
    }

    fn put_in(&mut self, command: &Command) {
        put(self.sent + 64 * u64::from(self.tail), *command);
        self.tail = (self.tail + 1) % self.entries;
    }

    fn next(&self) -> u32 {
        get(self.ended + 16 * u64::from(self.head) + 12)
    }
}

impl Port for Pair {
    fn number(&self) -> u16 {
        self.number
    }

    fn room(&mut self, bytes: u32) -> Result<(u32, u64), Failure> {
        let tag = self.requests.len() as u32;
        if tag + 1 >= u32::from(self.entries) {
            let room = self.entries - 1;
            return Err(Failure::usage(format!(
                "a queue of the disk takes {room} requests, and more are to be in flight"
            )));
        }
        if bytes > self.largest {
            return Err(Failure::usage(format!("the disk takes {} bytes at once, and bs is {bytes}", self.largest)));
        }
        let data = memory(bytes as usize, PAGE as usize)?;
        let second = data + u64::from(PAGE);
        let more = match bytes.div_ceil(PAGE) {
            0 | 1 => 0,
            2 => second,
            pages => {
                let list = memory(PAGE as usize, PAGE as usize)?;
                (0..u64::from(pages) - 1).for_each(|page| put(list + 8 * page, second + page * u64::from(PAGE)));
                list
            }
        };
        self.requests.push(Request { data, more, bytes });
        Ok((tag, data))
    }

    fn send(&mut self, tag: u32, kind: Kind, offset: u64) {
        let request = &self.requests[tag as usize];
        let mut command: Command = [0; 16];
        let word = match kind {
            Kind::Read => READ,
            Kind::Write => WRITE,
            Kind::Flush => FLUSH,
        };
        (command[0], command[1]) = (u32::from(word) | tag << 16, NAMESPACE);
        if kind != Kind::Flush {
            let block = offset / u64::from(self.block);
            (command[6], command[7]) = (request.data as u32, (request.data >> 32) as u32);
            (command[8], command[9]) = (request.more as u32, (request.more >> 32) as u32);
            (command[10], command[11]) = (block as u32, (block >> 32) as u32);
            command[12] = request.bytes / self.block - 1;
        }
        self.put_in(&command);
    }

    fn kick(&mut self) {
        fence(Ordering::SeqCst); // entries before the doorbells that name them
        if self.head != self.told_head {
            self.told_head = self.head;
            self.kicks += 1;
            put(self.doorbell + self.apart, u32::from(self.head));
        }
        if self.tail != self.told_tail {
            self.told_tail = self.tail;
            self.kicks += 1;
            put(self.doorbell, u32::from(self.tail));
        }
    }

    fn take(&mut self) -> Option<(u32, u32)> {
        let word = self.next();
        if word >> 16 & 1 != self.phase {
            return None;
        }
        fence(Ordering::Acquire); // the mark before what it vouches for
        self.head = (self.head + 1) % self.entries;
        if self.head == 0 {
            self.phase ^= 1;
        }
        Some((word & 0xffff, word >> 17))
    }

    /// Errors of the medium are the request's; all others are the controller's or ours, and end the load.
    fn judge(&self, _tag: u32, said: u32) -> Result<i32, Failure> {
        match (said >> 8 & 7, said & 0xff) {
            (0, 0) => Ok(0),
            (2, _) => Ok(EIO),
            _ => Err(Failure::run(format!("the disk ended a request with status {said:#x}"))),
        }
    }

    fn listen(&mut self, _on: bool) -> bool {
        // it always interrupts, and one that comes while nobody waits ends the next wait
        self.next() >> 16 & 1 == self.phase
    }

    fn kicks(&self) -> u64 {
        self.kicks
    }
}
