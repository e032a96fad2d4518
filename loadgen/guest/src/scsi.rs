// SPDX-License-Identifier: Apache-2.0
//! virtio-scsi: the disk behind the controller, asked by SCSI's commands, and the words of its requests.

use crate::chains::{Chains, Words};
use crate::clock::Clock;
use crate::found::Place;
use crate::memory::{get, put, text};
use crate::port::{EIO, Kind, Port as _, Seen, wait_for};
use crate::virtio::{Device, EVENT_IDX, INDIRECT};
use alloc::format;
use alloc::string::String;
use virtune_load_core::failure::Failure;

/// The queues before those of requests: of control and of events, which stay unused.
pub const QUEUES_BEFORE: u16 = 2;
/// The first disk of the first target.
const LUN: u64 = u64::from_le_bytes([1, 0, 0x40, 0, 0, 0, 0, 0]);
/// Bytes of a command, and where it is in a header: after the LUN, a tag and three bytes of priority.
const COMMAND: usize = 32;
const COMMAND_AT: u64 = 19;
/// Where an answer has SCSI's status and virtio's own word.
const STATUS_AT: u64 = 10;
const RESPONSE_AT: u64 = 11;
/// What virtio's word is before the device writes it: none that it may write.
const UNWRITTEN: u8 = 0xff;

/// The features that are wanted.
const WANTED: u64 = INDIRECT | EVENT_IDX;

const TEST_UNIT_READY: u8 = 0x00;
const INQUIRY: u8 = 0x12;
const MODE_SENSE: u8 = 0x1a;
const SYNCHRONIZE_CACHE: u8 = 0x35;
const READ_16: u8 = 0x88;
const WRITE_16: u8 = 0x8a;
const SERVICE_IN_16: u8 = 0x9e;
const READ_CAPACITY_16: u8 = 0x10;
const SERIAL_PAGE: u8 = 0x80;
const CACHING_PAGE: u8 = 8;
const CHECK_CONDITION: u8 = 2;
/// How often a disk may say that something has happened to it, such as its reset, before it does as it is told.
const ATTENTIONS: usize = 8;

/// Reset the device and ask its disk.
pub fn look(place: Place, clock: Clock) -> Result<(Device, Seen), Failure> {
    let (device, mut port, tag, data) = asked(place, clock)?;
    command(&mut port, clock, tag, &[SERVICE_IN_16, READ_CAPACITY_16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32])?;
    let block = get::<u32>(data + 8).swap_bytes();
    if block < 512 || !block.is_power_of_two() {
        return Err(Failure::run(format!("the disk says that its blocks have {block} bytes")));
    }
    let blocks = get::<u64>(data).swap_bytes().saturating_add(1);
    let exponent = get::<u8>(data + 13) & 15;
    command(&mut port, clock, tag, &[MODE_SENSE, 8, CACHING_PAGE, 0, 192])?; // without block descriptors
    let (read_only, page) = (get::<u8>(data + 2) & 0x80 != 0, data + 4);
    let caches = get::<u8>(page) & 0x3f == CACHING_PAGE && get::<u8>(page + 2) & 4 != 0;
    let seen = Seen {
        sectors: blocks.saturating_mul(u64::from(block) / 512),
        logical_block_size: block,
        physical_block_size: block << exponent,
        queues: get::<u32>(device.own).clamp(1, 1024) as u16,
        queue_size: device.ring_size(QUEUES_BEFORE),
        write_cache: if caches { "write back" } else { "write through" },
        flushes: caches,
        read_only,
        features: device.features,
        offered: device.offered,
    };
    // its rings are those of a load from here on
    Ok((Device::new(place, WANTED)?, seen))
}

/// Reset the device and ask for the serial number of its disk.
pub fn serial(place: Place, clock: Clock) -> Result<String, Failure> {
    let (device, mut port, tag, data) = asked(place, clock)?;
    command(&mut port, clock, tag, &[INQUIRY, 1, SERIAL_PAGE, 0, 255])?;
    device.reset()?;
    Ok(text(data + 4, usize::from(get::<u8>(data + 3))))
}

/// Reset the device and make one request ready to ask its disk: its tag, and where its data lies.
fn asked(place: Place, clock: Clock) -> Result<(Device, Chains<Scsi>, u32, u64), Failure> {
    let device = Device::new(place, WANTED)?;
    let mut port = Chains::new(device, QUEUES_BEFORE, None, Scsi { block: 512 })?;
    let (tag, data) = port.room(4096)?;
    device.begin();
    port.ready(clock)?;
    Ok((device, port, tag, data))
}

/// The words of virtio-scsi, for a disk with blocks of so many bytes.
pub struct Scsi {
    /// Bytes of a block.
    pub block: u32,
}

impl Words for Scsi {
    const HEADER: u32 = 51;
    const ANSWER: u32 = 108;
    const ANSWER_FIRST: bool = true;

    fn write(&self, header: u64, answer: u64, kind: Kind, offset: u64, bytes: u32) {
        let mut words = [0; COMMAND];
        words[0] = match kind {
            Kind::Read => READ_16,
            Kind::Write => WRITE_16,
            Kind::Flush => SYNCHRONIZE_CACHE,
        };
        if kind != Kind::Flush {
            words[2..10].copy_from_slice(&(offset / u64::from(self.block)).to_be_bytes());
            words[10..14].copy_from_slice(&(bytes / self.block).to_be_bytes());
        }
        write_command(header, answer, &words);
    }

    fn judge(&self, answer: u64) -> Result<i32, Failure> {
        match (get::<u8>(answer + RESPONSE_AT), get::<u8>(answer + STATUS_AT)) {
            (0, 0) => Ok(0),
            (0, CHECK_CONDITION) => Ok(EIO),
            (0, other) => Err(Failure::run(format!("the disk ended a request with SCSI status {other}"))),
            (other, _) => Err(Failure::run(format!("the disk ended a request with response {other}"))),
        }
    }

    /// A disk says once that it was reset, and takes no request before.
    fn ready(port: &mut Chains<Scsi>, clock: Clock) -> Result<(), Failure> {
        for _ in 0..ATTENTIONS {
            if run(port, clock, 0, &[TEST_UNIT_READY])? == 0 {
                return Ok(());
            }
        }
        Err(Failure::run("the disk is not ready"))
    }
}

fn write_command(header: u64, answer: u64, words: &[u8; COMMAND]) {
    put(header, LUN);
    put(header + 8, 0u64);
    put(header + 16, [0u8; 3]);
    put(header + COMMAND_AT, *words);
    put(answer + RESPONSE_AT, UNWRITTEN);
}

/// Have a command read what fits into the request's data.
fn command(port: &mut Chains<Scsi>, clock: Clock, tag: u32, words: &[u8]) -> Result<(), Failure> {
    match run(port, clock, tag, words)? {
        0 => Ok(()),
        _ => Err(Failure::run(format!("the disk refused the SCSI command {:#04x}", words[0]))),
    }
}

fn run(port: &mut Chains<Scsi>, clock: Clock, tag: u32, words: &[u8]) -> Result<i32, Failure> {
    let mut whole = [0; COMMAND];
    whole[..words.len()].copy_from_slice(words);
    let (header, answer) = port.places(tag);
    write_command(header, answer, &whole);
    // what has no data goes as a flush does
    port.hand_over(tag, if words[0] == TEST_UNIT_READY { Kind::Flush } else { Kind::Read });
    port.kick();
    wait_for(clock, "the disk did not answer a SCSI command", || port.take())?;
    Scsi { block: 512 }.judge(answer)
}
