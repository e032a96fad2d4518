// SPDX-License-Identifier: Apache-2.0
//! The devices of the board: on PCI, or on a board without it as virtio-mmio.

use crate::machine::IoApic;
use crate::pci::{self, Function};
use alloc::vec::Vec;
use virtune_load_core::job::Bus;

/// Where microvm has its virtio devices, how far apart, how many, and the interrupt of the first.
const MMIO: u64 = 0xfeb0_0000;
const MMIO_BYTES: u64 = 512;
const MMIO_SLOTS: u64 = 8;
const MMIO_IRQ: u8 = 5;
const MAGIC: u32 = 0x7472_6976;
const MODERN: u32 = 2;

/// What a device is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A disk, or the controller of one.
    Disk(Bus),
    /// A virtio console.
    Console,
}

impl Kind {
    /// Of a function of PCI, if it can be driven.
    fn of_function(function: Function) -> Option<Kind> {
        match function.virtio() {
            Some(number) => Kind::of_virtio(number),
            None => function.is_nvme().then_some(Kind::Disk(Bus::Nvme)),
        }
    }

    /// By virtio's numbers.
    fn of_virtio(number: u32) -> Option<Kind> {
        match number {
            2 => Some(Kind::Disk(Bus::VirtioBlk)),
            3 => Some(Kind::Console),
            8 => Some(Kind::Disk(Bus::VirtioScsi)),
            _ => None,
        }
    }
}

/// Where a device is.
#[derive(Clone, Copy)]
pub enum Place {
    /// A function of PCI.
    Pci(Function),
    /// The registers of a virtio-mmio device, and its interrupt.
    Mmio(u64, u8),
}

impl Place {
    /// Have interrupts call `vector` on these CPUs, by a row of the device's table for each; whether it has as many.
    pub fn interrupts(self, vector: u8, cpus: &[usize]) -> bool {
        match self {
            Place::Pci(function) => function.interrupts(vector, cpus),
            Place::Mmio(_, irq) => {
                IoApic.lead(irq, vector);
                true
            }
        }
    }
}

/// A device that was found.
#[derive(Clone, Copy)]
pub struct Found {
    /// What it is.
    pub kind: Kind,
    /// Where it is.
    pub place: Place,
}

impl Found {
    /// Whether it is a disk.
    pub fn is_disk(&self) -> bool {
        matches!(self.kind, Kind::Disk(_))
    }
}

/// Find the disks and the console.
pub fn find() -> Vec<Found> {
    if !pci::is_there() {
        return on_mmio();
    }
    let on_pci = pci::find(Kind::of_function).into_iter();
    on_pci.map(|(kind, function)| Found { kind, place: Place::Pci(function) }).collect()
}

fn on_mmio() -> Vec<Found> {
    let mut found = Vec::new();
    for slot in 0..MMIO_SLOTS {
        let base = MMIO + MMIO_BYTES * slot;
        // SAFETY: microvm has registers here, which are mapped; other boards have PCI and do not come here.
        let word = |at: u64| unsafe { ((base + at) as *const u32).read_volatile() };
        if (word(0), word(4)) != (MAGIC, MODERN) {
            continue;
        }
        if let Some(kind) = Kind::of_virtio(word(8)) {
            found.push(Found { kind, place: Place::Mmio(base, MMIO_IRQ + slot as u8) });
        }
    }
    found
}
