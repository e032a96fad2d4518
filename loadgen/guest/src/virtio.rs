// SPDX-License-Identifier: Apache-2.0
//! virtio 1.x over PCI and over memory-mapped registers: a device's features, and split rings.

use crate::found::Place;
use crate::memory::{get, memory, put};
use crate::pci::{Capability, Function};
use alloc::format;
use core::sync::atomic::{Ordering, fence};
use virtune_load_core::failure::Failure;

/// The features that this driver knows besides those of the kind of device.
pub const INDIRECT: u64 = 1 << 28;
/// Both sides say when they want to be told.
pub const EVENT_IDX: u64 = 1 << 29;
/// virtio 1.0 and later.
pub const VERSION_1: u64 = 1 << 32;

const ACKNOWLEDGE: u8 = 1;
const DRIVER: u8 = 2;
const DRIVER_OK: u8 = 4;
const FEATURES_OK: u8 = 8;
const NEEDS_RESET: u8 = 0x40;
const NO_VECTOR: u16 = 0xffff;
/// How often a reset is looked for before the device is given up.
const RESET_LOOKS: u32 = 1_000_000;

/// Where a device has what all of its kind have.
#[derive(Clone, Copy)]
enum Registers {
    /// In a memory of a PCI device: what is common, the doorbells, and how far those lie apart.
    Pci(u64, u64, u32),
    /// At a place of its own.
    Mmio(u64),
}

/// A device that was reset and whose features are settled.
#[derive(Clone, Copy)]
pub struct Device {
    registers: Registers,
    /// Where what is special to the kind of device lies.
    pub own: u64,
    /// The features that both sides have.
    pub features: u64,
    /// What the device offers.
    pub offered: u64,
}

impl Device {
    /// Reset a device and settle its features: those of `wanted` that it offers.
    pub fn new(place: Place, wanted: u64) -> Result<Device, Failure> {
        let (registers, own) = match place {
            Place::Pci(function) => of_pci(function)?,
            Place::Mmio(base, _) => (Registers::Mmio(base), base + 0x100),
        };
        let mut device = Device { registers, own, features: 0, offered: 0 };
        device.reset()?;
        device.set_status(ACKNOWLEDGE);
        device.set_status(ACKNOWLEDGE | DRIVER);
        device.offered = u64::from(device.offers(0)) | u64::from(device.offers(1)) << 32;
        device.features = device.offered & (wanted | VERSION_1);
        device.accept(0, device.features as u32);
        device.accept(1, (device.features >> 32) as u32);
        device.set_status(ACKNOWLEDGE | DRIVER | FEATURES_OK);
        if device.status() & FEATURES_OK == 0 || device.features & VERSION_1 == 0 {
            return Err(Failure::run(format!("a virtio device refused its features {:#x}", device.features)));
        }
        Ok(device)
    }

    /// Whether both sides have a feature.
    pub fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }

    /// Begin: the device may look at its queues.
    pub fn begin(&self) {
        self.set_status(ACKNOWLEDGE | DRIVER | FEATURES_OK | DRIVER_OK);
    }

    /// What the device says of itself that keeps it from going on, while it should.
    pub fn trouble(&self) -> Option<&'static str> {
        match self.status() {
            status if status & NEEDS_RESET != 0 => Some("says that it needs a reset"),
            status if status & DRIVER_OK == 0 => Some("was reset while it had requests"),
            _ => None,
        }
    }

    /// Take note of an interrupt, where a device holds it until that is done.
    pub fn acknowledge(&self) {
        if let Registers::Mmio(base) = self.registers {
            put::<u32>(base + 0x64, get(base + 0x60));
        }
    }

    /// Take everything back from the device.
    pub fn reset(&self) -> Result<(), Failure> {
        self.set_status(0);
        for _ in 0..RESET_LOOKS {
            if self.status() == 0 {
                return Ok(());
            }
        }
        Err(Failure::run("a virtio device did not come back from its reset"))
    }

    /// How many descriptors a queue has.
    pub fn ring_size(&self, number: u16) -> u16 {
        match self.registers {
            Registers::Pci(common, ..) => {
                put::<u16>(common + 22, number);
                get(common + 24)
            }
            Registers::Mmio(base) => {
                put::<u32>(base + 0x30, u32::from(number));
                get::<u32>(base + 0x34).min(1 << 15) as u16
            }
        }
    }

    /// Make a queue; with `vector` it interrupts, on PCI by that row of its table.
    pub fn ring(&self, number: u16, vector: Option<u16>) -> Result<Ring, Failure> {
        let size = self.ring_size(number);
        if size == 0 || !size.is_power_of_two() {
            return Err(Failure::run(format!("a virtio device has no queue {number}")));
        }
        let mut ring = Ring::new(number, size, self.has(EVENT_IDX));
        let places = [ring.descriptors, ring.available, ring.used];
        match self.registers {
            Registers::Pci(common, doorbells, apart) => {
                put::<u16>(common + 26, vector.unwrap_or(NO_VECTOR));
                if vector.is_some_and(|vector| get::<u16>(common + 26) != vector) {
                    return Err(Failure::run("a virtio device has no interrupt for its queue"));
                }
                ring.doorbell = doorbells + u64::from(get::<u16>(common + 30)) * u64::from(apart);
                (0..).zip(places).for_each(|(index, place)| put::<u64>(common + 32 + 8 * index, place));
                put::<u16>(common + 28, 1);
            }
            Registers::Mmio(base) => {
                (ring.doorbell, ring.whole_word) = (base + 0x50, true);
                put::<u32>(base + 0x38, u32::from(size));
                for (index, place) in (0..).zip(places) {
                    put::<u32>(base + 0x80 + 16 * index, place as u32);
                    put::<u32>(base + 0x84 + 16 * index, (place >> 32) as u32);
                }
                put::<u32>(base + 0x44, 1);
            }
        }
        Ok(ring)
    }

    fn offers(&self, word: u32) -> u32 {
        let (select, value) = match self.registers {
            Registers::Pci(common, ..) => (common, common + 4),
            Registers::Mmio(base) => (base + 0x14, base + 0x10),
        };
        put::<u32>(select, word);
        get(value)
    }

    fn accept(&self, word: u32, features: u32) {
        let (select, value) = match self.registers {
            Registers::Pci(common, ..) => (common + 8, common + 12),
            Registers::Mmio(base) => (base + 0x24, base + 0x20),
        };
        put::<u32>(select, word);
        put::<u32>(value, features);
    }

    fn status(&self) -> u8 {
        match self.registers {
            Registers::Pci(common, ..) => get(common + 20),
            Registers::Mmio(base) => get::<u32>(base + 0x70) as u8,
        }
    }

    fn set_status(&self, status: u8) {
        match self.registers {
            Registers::Pci(common, ..) => put(common + 20, status),
            Registers::Mmio(base) => put(base + 0x70, u32::from(status)),
        }
    }
}

/// Where a PCI device has its registers, and those of its kind.
fn of_pci(function: Function) -> Result<(Registers, u64), Failure> {
    let (mut common, mut doorbells, mut apart, mut own) = (0, 0, 0, 0);
    for capability in function.capabilities() {
        match capability.kind {
            Capability::COMMON if common == 0 => common = capability.address,
            Capability::NOTIFY if doorbells == 0 => (doorbells, apart) = (capability.address, capability.more),
            Capability::DEVICE if own == 0 => own = capability.address,
            _ => {}
        }
    }
    if common == 0 || doorbells == 0 {
        return Err(Failure::run("a virtio device has no registers of virtio 1.0"));
    }
    Ok((Registers::Pci(common, doorbells, apart), own))
}

/// A piece of memory in a request; `write`: the device writes it.
#[derive(Clone, Copy)]
pub struct Piece {
    /// Where.
    pub address: u64,
    /// How long.
    pub bytes: u32,
    /// Whether the device writes it.
    pub write: bool,
}

/// A split ring. Requests are chains of descriptors that their maker numbers.
pub struct Ring {
    /// Which of the device's it is.
    pub number: u16,
    /// How many descriptors it has.
    pub size: u16,
    doorbell: u64,
    /// Whether the doorbell takes four bytes, and not two.
    whole_word: bool,
    descriptors: u64,
    available: u64,
    used: u64,
    event_idx: bool,
    sent: u16,
    told: u16,
    seen: u16,
    /// How often the doorbell was rung.
    pub kicks: u64,
}

const NEXT: u16 = 1;
const DEVICE_WRITES: u16 = 2;
const IS_TABLE: u16 = 4;

impl Ring {
    fn new(number: u16, size: u16, event_idx: bool) -> Ring {
        let entries = usize::from(size);
        let place = |bytes| memory(bytes, 4096).unwrap_or_else(|failure| panic!("{failure}"));
        Ring {
            number,
            size,
            doorbell: 0,
            whole_word: false,
            descriptors: place(16 * entries),
            available: place(6 + 2 * entries),
            used: place(6 + 8 * entries),
            event_idx,
            sent: 0,
            told: 0,
            seen: 0,
            kicks: 0,
        }
    }

    /// Write a chain of descriptors from number `first` on.
    pub fn chain(&self, first: u16, pieces: &[Piece]) {
        write_chain(self.descriptors + 16 * u64::from(first), first, pieces);
    }

    /// Write one descriptor that stands for a table of them, at `table`.
    pub fn indirect(&self, first: u16, table: u64, pieces: &[Piece]) {
        write_chain(table, 0, pieces);
        let at = self.descriptors + 16 * u64::from(first);
        put::<u64>(at, table);
        put::<u32>(at + 8, 16 * pieces.len() as u32);
        put::<u32>(at + 12, u32::from(IS_TABLE));
    }

    /// Hand over the chain that begins with a descriptor.
    #[inline]
    pub fn send(&mut self, head: u16) {
        put::<u16>(self.available + 4 + 2 * u64::from(self.sent % self.size), head);
        self.sent = self.sent.wrapping_add(1);
    }

    /// Show the device what was handed over, and ring its doorbell where it wants that.
    #[inline]
    pub fn kick(&mut self) {
        if self.sent == self.told {
            return;
        }
        fence(Ordering::Release); // chains before the index that names them
        put::<u16>(self.available + 2, self.sent);
        fence(Ordering::SeqCst); // the index before the device's word on doorbells
        let wanted = if self.event_idx {
            let event = get::<u16>(self.used + 4 + 8 * u64::from(self.size));
            self.sent.wrapping_sub(event).wrapping_sub(1) < self.sent.wrapping_sub(self.told)
        } else {
            get::<u16>(self.used) & 1 == 0
        };
        self.told = self.sent;
        if wanted {
            self.kicks += 1;
            if self.whole_word {
                put::<u32>(self.doorbell, u32::from(self.number));
            } else {
                put::<u16>(self.doorbell, self.number);
            }
        }
    }

    /// Take the next chain that the device gave back: its head, and how much the device says it wrote.
    #[inline]
    pub fn take(&mut self) -> Option<(u32, u32)> {
        if get::<u16>(self.used + 2) == self.seen {
            return None;
        }
        fence(Ordering::Acquire); // the index before what it names
        let at = self.used + 4 + 8 * u64::from(self.seen % self.size);
        self.seen = self.seen.wrapping_add(1);
        Some((get(at), get(at + 4)))
    }

    /// How many chains the device has given back that were not taken: more than were sent is a device that lies.
    pub fn waiting(&self) -> u16 {
        get::<u16>(self.used + 2).wrapping_sub(self.seen)
    }

    /// The index by which the device gives chains back, and where it stood when the last was taken.
    pub fn word(&self) -> (u64, u16) {
        (self.used + 2, self.seen)
    }

    /// Ask for an interrupt with the next chain that comes back, or for none; whether one waits already.
    pub fn listen(&mut self, on: bool) -> bool {
        if self.event_idx {
            let event = if on { self.seen } else { self.seen.wrapping_sub(1) };
            put::<u16>(self.available + 4 + 2 * u64::from(self.size), event);
        } else {
            put::<u16>(self.available, u16::from(!on));
        }
        fence(Ordering::SeqCst);
        self.waiting() > 0
    }
}

fn write_chain(place: u64, first: u16, pieces: &[Piece]) {
    for (index, piece) in pieces.iter().enumerate() {
        let at = place + 16 * index as u64;
        let last = index + 1 == pieces.len();
        let flags = if piece.write { DEVICE_WRITES } else { 0 } | if last { 0 } else { NEXT };
        let next = if last { 0 } else { first + index as u16 + 1 };
        put::<u64>(at, piece.address);
        put::<u32>(at + 8, piece.bytes);
        put::<u32>(at + 12, u32::from(flags) | u32::from(next) << 16);
    }
}
