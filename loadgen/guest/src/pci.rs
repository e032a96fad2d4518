// SPDX-License-Identifier: Apache-2.0
//! PCI: where the virtio devices are. Buses and addresses are dealt out here, since a small firmware leaves them alone.

use crate::machine::{in32, out32};
use alloc::vec::Vec;

/// Where memory of devices begins: above all memory of q35 and i440fx, below what every board has at its end.
const WINDOW: u32 = 0xe000_0000;
/// What a bridge passes on, at least.
const BRIDGE_UNIT: u32 = 0x10_0000;
const VIRTIO: u16 = 0x1af4;
const MSI_X: u8 = 0x11;
const VENDOR_SPECIFIC: u8 = 0x09;
/// Where a function says what its configuration looks like: as a bridge's, and whether it has others beside it.
const HEADER: u8 = 0x0e;
const BRIDGE: u8 = 1;
const SEVERAL: u8 = 0x80;
/// Where a bridge has the numbers of the buses at both its ends.
const BUSES: u8 = 0x18;
/// The class of an NVMe controller: storage, non-volatile memory, NVM Express.
const NVME_CLASS: u32 = 0x01_0802;

/// A device, by its place.
#[derive(Clone, Copy)]
pub struct Function {
    address: u32,
}

impl Function {
    fn at(bus: u8, slot: u8, number: u8) -> Function {
        let place = u32::from(bus) << 16 | u32::from(slot) << 11 | u32::from(number) << 8;
        Function { address: 0x8000_0000 | place }
    }

    fn is_there(self) -> bool {
        self.read16(0) != 0xffff
    }

    fn is_bridge(self) -> bool {
        self.read8(HEADER) & !SEVERAL == BRIDGE
    }

    /// Its number among virtio's kinds of devices; none for another device.
    pub fn virtio(self) -> Option<u32> {
        match (self.read16(0), self.read16(2)) {
            // as old devices are numbered, and as new ones are
            (VIRTIO, 0x1001) => Some(2),
            (VIRTIO, 0x1003) => Some(3),
            (VIRTIO, 0x1004) => Some(8),
            (VIRTIO, number @ 0x1040..0x1080) => Some(u32::from(number) - 0x1040),
            _ => None,
        }
    }

    /// Whether it is an NVMe controller.
    pub fn is_nvme(self) -> bool {
        self.read(0x08) >> 8 == NVME_CLASS
    }

    /// Read four bytes of its configuration.
    pub fn read(self, at: u8) -> u32 {
        out32(0xcf8, self.address | u32::from(at & 0xfc));
        in32(0xcfc)
    }

    fn write(self, at: u8, value: u32) {
        out32(0xcf8, self.address | u32::from(at & 0xfc));
        out32(0xcfc, value);
    }

    fn read16(self, at: u8) -> u16 {
        (self.read(at) >> (8 * (at & 2))) as u16
    }

    fn read8(self, at: u8) -> u8 {
        (self.read(at) >> (8 * (at & 3))) as u8
    }

    /// Its capabilities: where in its configuration each begins, and its first four bytes.
    fn listed(self) -> impl Iterator<Item = (u8, u32)> {
        let mut next = self.read8(0x34) & 0xfc;
        let one = move || {
            let at = next;
            (at != 0).then(|| {
                let head = self.read(at);
                next = (head >> 8) as u8 & 0xfc;
                (at, head)
            })
        };
        // as many as fit, so that a ring of them ends
        core::iter::from_fn(one).take(48)
    }

    /// Its capabilities of virtio: the kind, and where in which memory.
    pub fn capabilities(self) -> Vec<Capability> {
        self.listed()
            .filter(|(_, head)| *head as u8 == VENDOR_SPECIFIC)
            .filter_map(|(at, head)| {
                let (kind, bar, offset) = ((head >> 24) as u8, self.read8(at + 4), self.read(at + 8));
                let more = if kind == Capability::NOTIFY { self.read(at + 16) } else { 0 };
                Some(Capability { kind, address: u64::from(self.memory(bar)?) + u64::from(offset), more })
            })
            .collect()
    }

    /// Switch MSI-X on, and have a row for each of these CPUs call `vector` there; whether it has as many rows.
    pub fn interrupts(self, vector: u8, cpus: &[usize]) -> bool {
        let Some((at, head)) = self.listed().find(|(_, head)| *head as u8 == MSI_X) else { return false };
        let rows = (head >> 16 & 0x7ff) as usize + 1;
        let table = self.read(at + 4);
        let Some(base) = self.memory((table & 7) as u8) else { return false };
        if rows < cpus.len() {
            return false;
        }
        self.write(at, head | 1 << 31);
        for (number, cpu) in cpus.iter().enumerate() {
            let row = (base + (table & !7)) as usize + 16 * number;
            let words = [0xfee0_0000 | (*cpu as u32) << 12, 0, u32::from(vector), 0];
            for (index, word) in words.into_iter().enumerate() {
                // SAFETY: a row of the device's own table, in a memory that was dealt out to it.
                unsafe { (row as *mut u32).add(index).write_volatile(word) };
            }
        }
        true
    }

    /// Where one of its memories lies.
    pub fn memory(self, bar: u8) -> Option<u32> {
        if bar > 5 {
            return None;
        }
        let value = self.read(0x10 + 4 * bar);
        (value & 1 == 0 && value & !15 != 0).then_some(value & !15)
    }

    /// Give every memory of it a place from `next` on.
    fn settle(self, next: &mut u32) {
        let mut bar = 0x10;
        while bar <= 0x24 {
            self.write(bar, u32::MAX);
            let size = self.read(bar);
            let wide = size & 7 == 4;
            if size != 0 && size & 1 == 0 {
                let bytes = (!(size & !15)).wrapping_add(1);
                *next = next.next_multiple_of(bytes.max(4096));
                self.write(bar, *next);
                if wide {
                    self.write(bar + 4, 0);
                }
                *next += bytes;
            } else {
                self.write(bar, 0);
            }
            bar += if wide { 8 } else { 4 };
        }
        self.write(0x04, 0x0406); // memory, bus master, no INTx
    }
}

/// A part of a device's memory, and what virtio keeps there.
pub struct Capability {
    /// Which part.
    pub kind: u8,
    /// Where.
    pub address: u64,
    /// What else the capability says: how far doorbells lie apart.
    pub more: u32,
}

impl Capability {
    /// The registers that all virtio devices have.
    pub const COMMON: u8 = 1;
    /// The doorbells.
    pub const NOTIFY: u8 = 2;
    /// What this kind of device has.
    pub const DEVICE: u8 = 4;
}

/// Whether the board has PCI: then its first device is the bridge to the CPU.
pub fn is_there() -> bool {
    Function::at(0, 0, 0).is_there()
}

/// Find the devices on the first bus and behind its bridges of which `kind` says what they are; their memories get
/// places.
pub fn find<K>(kind: impl Fn(Function) -> Option<K>) -> Vec<(K, Function)> {
    let settled = |one: Function, next: &mut u32| kind(one).inspect(|_| one.settle(next)).map(|kind| (kind, one));
    let mut found = Vec::new();
    let (mut next, mut buses) = (WINDOW, 0u8);
    let here: Vec<Function> = (0..32).flat_map(|slot| functions(0, slot)).collect();
    let (bridges, others): (Vec<Function>, Vec<Function>) = here.into_iter().partition(|one| one.is_bridge());
    found.extend(others.into_iter().filter_map(|one| settled(one, &mut next)));
    // firmware may have numbered the buses: two of one number would answer for each other
    bridges.iter().for_each(|bridge| bridge.write(BUSES, 0));
    for here in bridges {
        buses += 1;
        next = next.next_multiple_of(BRIDGE_UNIT);
        let begin = next;
        here.write(BUSES, u32::from(buses) << 16 | u32::from(buses) << 8);
        found.extend(functions(buses, 0).filter_map(|beyond| settled(beyond, &mut next)));
        next = next.next_multiple_of(BRIDGE_UNIT);
        // a window that ends before it begins passes nothing on
        let last = if next == begin { 0 } else { (next - 1) & 0xfff0_0000 };
        here.write(0x20, last | begin >> 16);
        here.write(0x24, 0x0000_fff0);
        here.write(0x04, 0x0406);
    }
    found
}

/// The functions of a slot. Every look costs an exit: beside the first one is looked only where that says so.
fn functions(bus: u8, slot: u8) -> impl Iterator<Item = Function> {
    let first = Function::at(bus, slot, 0);
    let several = first.is_there() && first.read8(HEADER) & SEVERAL != 0;
    (0..if several { 8 } else { 1 }).map(move |number| Function::at(bus, slot, number)).filter(|one| one.is_there())
}
