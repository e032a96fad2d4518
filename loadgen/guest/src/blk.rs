// SPDX-License-Identifier: Apache-2.0
//! virtio-blk: what the device says of its disk, and the words of its requests.

use crate::chains::Words;
use crate::disk::Seen;
use crate::found::Place;
use crate::memory::{get, put};
use crate::port::{EIO, ENOTSUP, Kind};
use crate::virtio::{Device, EVENT_IDX, INDIRECT};
use alloc::format;
use virtune_load_core::failure::Failure;

const READ_ONLY: u64 = 1 << 5;
const BLOCK_SIZE: u64 = 1 << 6;
const FLUSH: u64 = 1 << 9;
const TOPOLOGY: u64 = 1 << 10;
const CONFIG_WCE: u64 = 1 << 11;
const QUEUES: u64 = 1 << 12;
const SECTOR: u64 = 512;
/// What a status is before the device writes it: none that a device may write.
const UNWRITTEN: u8 = 0xff;

/// Reset the device and look at its disk.
pub fn look(place: Place) -> Result<(Device, Seen), Failure> {
    let wanted = BLOCK_SIZE | FLUSH | TOPOLOGY | CONFIG_WCE | QUEUES | READ_ONLY | INDIRECT | EVENT_IDX;
    let device = Device::new(place, wanted)?;
    let own = device.own;
    let logical = if device.has(BLOCK_SIZE) { get::<u32>(own + 20).max(512) } else { 512 };
    let caches = if device.has(CONFIG_WCE) { get::<u8>(own + 32) != 0 } else { device.has(FLUSH) };
    let seen = Seen {
        sectors: u64::from(get::<u32>(own)) | u64::from(get::<u32>(own + 4)) << 32,
        logical_block_size: logical,
        physical_block_size: if device.has(TOPOLOGY) { logical << get::<u8>(own + 24).min(16) } else { logical },
        queues: if device.has(QUEUES) { get::<u16>(own + 34).max(1) } else { 1 },
        queue_size: device.ring_size(0),
        write_cache: if caches { "write back" } else { "write through" },
        flushes: device.has(FLUSH),
        read_only: device.has(READ_ONLY),
        features: device.features,
        offered: device.offered,
    };
    Ok((device, seen))
}

/// The words of virtio-blk.
pub struct Blk;

impl Words for Blk {
    const HEADER: u32 = 16;
    const ANSWER: u32 = 1;
    const ANSWER_FIRST: bool = false;

    fn write(&self, header: u64, answer: u64, kind: Kind, offset: u64, _bytes: u32) {
        let word: u32 = match kind {
            Kind::Read => 0,
            Kind::Write => 1,
            Kind::Flush => 4,
        };
        put(header, word);
        put(header + 4, 0u32);
        put(header + 8, offset / SECTOR);
        put(answer, UNWRITTEN);
    }

    fn judge(&self, answer: u64) -> Result<i32, Failure> {
        match get::<u8>(answer) {
            0 => Ok(0),
            1 => Ok(EIO),
            2 => Ok(ENOTSUP),
            other => Err(Failure::run(format!("the disk ended a request with status {other}"))),
        }
    }
}
