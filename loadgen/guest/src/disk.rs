// SPDX-License-Identifier: Apache-2.0
//! A disk: what the guest sees of it, and how its queues become ports of the load.

use crate::blk::{self, Blk};
use crate::chains::Chains;
use crate::clock::Clock;
use crate::found::{Found, Kind as Thing, Place};
use crate::machine::WAKE;
use crate::nvme;
use crate::port::{Port, Seen};
use crate::ports::{Behind, Lane, Ports};
use crate::scsi::{self, Scsi};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use virtune_load_core::failure::Failure;
use virtune_load_core::job::Bus;
use virtune_load_core::plan;
use virtune_load_core::run::Shape;

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

/// A disk that a load has: when it goes out of use, everything is taken back from it.
pub struct Used(Behind);

impl Used {
    /// Take everything back from the disk, and say whether that worked.
    pub fn end(self) -> Result<(), Failure> {
        let done = self.0.reset();
        core::mem::forget(self); // one that does not come back is not tried again
        done
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        let _ = self.0.reset(); // the next load resets it again, and says so where that fails
    }
}

impl Disk {
    /// Reset the disk and look at it.
    pub fn new(found: Found, clock: Clock) -> Result<Disk, Failure> {
        let Found { kind, place } = found;
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
            _ => return Err(Failure::run("a disk that the guest has no driver for")),
        };
        Ok(Disk { place, clock, behind, admin, bus, seen })
    }

    /// What a plan needs to know of it.
    pub fn plan(&self) -> plan::Disk {
        plan::Disk { capacity: self.seen.sectors * 512, alignment: u64::from(self.seen.logical_block_size) }
    }

    /// Start it with the clones of a load. `queues` has for each port the CPU that drives it and the shapes of its
    /// clones; each port becomes a lane of what its CPU has in `ports`. `number` and `name` are the disk's in the load.
    pub fn start(
        mut self,
        number: usize,
        name: Option<&str>,
        queues: &[(usize, Vec<Shape>)],
        ports: &mut [Ports],
    ) -> Result<Used, Failure> {
        let mut cpus: Vec<usize> = queues.iter().map(|(cpu, _)| *cpu).collect();
        cpus.sort_unstable();
        cpus.dedup();
        let polled = ports.iter().all(Ports::polled);
        if !polled && !self.place.interrupts(WAKE, &cpus) {
            return Err(Failure::run("the disk has no MSI-X for every CPU: it can only be polled"));
        }
        let used = Used(self.behind);
        for (queue, (cpu, shapes)) in (0..).zip(queues) {
            let row = cpus.partition_point(|before| before < cpu) as u16;
            let port = self.port(queue, (!polled).then_some(row))?;
            let lane = Lane::new(port, number, name.map(String::from), self.behind, self.seen.flushes);
            ports[*cpu].add(lane, shapes)?;
        }
        if let Behind::Blk(device) | Behind::Scsi(device) = self.behind {
            device.begin();
        }
        let first = queues.first().and_then(|(cpu, _)| ports[*cpu].first_of(number));
        first.map_or(Ok(()), |port| port.ready(self.clock))?;
        Ok(used)
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
