// SPDX-License-Identifier: Apache-2.0
//! virtio-blk: what the device says of its disk, and the words of its requests.

use crate::chains::{Chains, Words};
use crate::clock::Clock;
use crate::found::Place;
use crate::memory::{get, put, text};
use crate::port::{EIO, ENOTSUP, Kind, Port as _, Seen, wait_for};
use crate::virtio::{Device, EVENT_IDX, INDIRECT};
use alloc::format;
use alloc::string::String;
use virtune_load_core::failure::Failure;

const READ_ONLY: u64 = 1 << 5;
const BLOCK_SIZE: u64 = 1 << 6;
const FLUSH: u64 = 1 << 9;
const TOPOLOGY: u64 = 1 << 10;
const CONFIG_WCE: u64 = 1 << 11;
const QUEUES: u64 = 1 << 12;
const SECTOR: u64 = 512;
/// The request that asks for a disk's serial number, and how long that is.
const GET_ID: u32 = 8;
const SERIAL_BYTES: u32 = 20;
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

/// Reset the device and ask for the serial number of its disk.
pub fn serial(place: Place, clock: Clock) -> Result<String, Failure> {
    let device = Device::new(place, 0)?;
    let mut port = Chains::new(device, 0, None, Blk)?;
    let (tag, data) = port.room(SERIAL_BYTES)?;
    device.begin();
    let (header, answer) = port.places(tag);
    put(header, GET_ID);
    put(header + 4, 0u32);
    put(header + 8, 0u64);
    put(answer, UNWRITTEN);
    port.hand_over(tag, Kind::Read);
    port.kick();
    wait_for(clock, "the disk did not say its serial number", || port.take())?;
    device.reset()?;
    match Blk.judge(answer)? {
        0 => Ok(text(data, SERIAL_BYTES as usize)),
        _ => Err(Failure::run("the disk does not say its serial number")),
    }
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
