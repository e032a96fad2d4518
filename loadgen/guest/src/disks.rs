// SPDX-License-Identifier: Apache-2.0
//! The disks of the guest by their names: the serial numbers that the host gave them.

use crate::blk;
use crate::clock::Clock;
use crate::disk::Disk;
use crate::found::{Found, Kind, Place};
use crate::nvme;
use crate::scsi;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use virtune_load_core::failure::Failure;
use virtune_load_core::job::{Bus, Driver, Job};

/// What the only disk is called: it is not asked.
const ONLY: &str = "disk0";

/// All disks that were found.
pub struct Disks {
    named: Vec<(String, Found)>,
    clock: Clock,
}

/// The disks of a load, reset and in the order in which its jobs name them.
pub struct Chosen {
    /// Each disk, and its name.
    pub disks: Vec<(String, Disk)>,
    /// Which of them each job has.
    pub of_job: Vec<usize>,
}

impl Disks {
    /// Ask all disks for their names, if there are several.
    pub fn of(found: &[Found], clock: Clock) -> Disks {
        let disks: Vec<Found> = found.iter().copied().filter(Found::is_disk).collect();
        let several = disks.len() > 1;
        // one that does not answer is named by why: no job asks for that
        let name =
            |one: Found| if several { serial(one, clock).unwrap_or_else(|why| why.to_string()) } else { ONLY.into() };
        Disks { named: disks.into_iter().map(|one| (name(one), one)).collect(), clock }
    }

    /// Their names.
    pub fn names(&self) -> Vec<&str> {
        self.named.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Reset a disk and look at it.
    pub fn open(&self, name: &str) -> Result<Disk, Failure> {
        if self.named.is_empty() {
            return Err(Failure::run("the guest has no disk on virtio-blk, virtio-scsi or NVMe"));
        }
        let found = self.named.iter().find(|(own, _)| own == name).map(|(_, found)| *found);
        let none = || Failure::usage(format!("the guest has no disk `{name}`: it has {}", self.names().join(", ")));
        Disk::new(found.ok_or_else(none)?, self.clock)
    }

    /// Open the disks that jobs name; fails where a job does not suit its disk, or not all jobs poll.
    pub fn of_jobs(&self, jobs: &[Job]) -> Result<Chosen, Failure> {
        let mut chosen = Chosen { disks: Vec::new(), of_job: Vec::new() };
        for job in jobs {
            let name = &job.place.path;
            let known = chosen.disks.iter().position(|(own, _)| own == name);
            let number = known.unwrap_or(chosen.disks.len());
            if known.is_none() {
                chosen.disks.push((name.to_string(), self.open(name)?));
            }
            let disk = &chosen.disks[number].1;
            if job.place.driver != Driver::Guest(disk.bus) || job.place.poll != jobs[0].place.poll {
                let engine = disk.bus.name();
                let words = format!("a job on {name} needs ioengine={engine}, and all jobs the same hipri");
                return Err(Failure::usage(words));
            }
            if disk.seen.read_only && job.pattern.writes {
                return Err(Failure::usage("the disk is read-only, and the load writes"));
            }
            chosen.of_job.push(number);
        }
        Ok(chosen)
    }
}

fn serial(found: Found, clock: Clock) -> Result<String, Failure> {
    match (found.kind, found.place) {
        (Kind::Disk(Bus::VirtioBlk), place) => blk::serial(place, clock),
        (Kind::Disk(Bus::VirtioScsi), place) => scsi::serial(place, clock),
        (Kind::Disk(Bus::Nvme), Place::Pci(function)) => nvme::serial(function, clock),
        _ => Err(Failure::run("a disk that the guest has no driver for")),
    }
}
