// SPDX-License-Identifier: Apache-2.0
//! What a queue of any disk is to the load: requests are put in under tags, and come back by them.

use crate::clock::Clock;
use crate::machine::relax;
use core::time::Duration;
use serde::Serialize;
use virtune_load_core::failure::Failure;

/// What the guest sees of its disk.
#[derive(Clone, Debug, Serialize)]
pub struct Seen {
    /// Its size, in units of 512 bytes.
    pub sectors: u64,
    /// What requests must be multiples of, in bytes.
    pub logical_block_size: u32,
    /// What the medium writes at once, in bytes.
    pub physical_block_size: u32,
    /// How many queues it offers.
    pub queues: u16,
    /// How many requests fit into a queue, as the disk counts them: descriptors, or commands.
    pub queue_size: u16,
    /// Whether it has a write cache: `write back` or `write through`.
    pub write_cache: &'static str,
    /// Whether it may not be written.
    pub read_only: bool,
    /// The features of virtio that both sides have.
    pub features: u64,
    /// What the device offers of them.
    pub offered: u64,
    /// Whether a flush is sent to it.
    #[serde(skip)]
    pub flushes: bool,
}

/// What is asked of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// To read.
    Read,
    /// To write.
    Write,
    /// To bring to the medium what was written.
    Flush,
}

/// The block could not be read or written.
pub const EIO: i32 = -5;
/// The disk does not do such a thing.
pub const ENOTSUP: i32 = -95;

/// One queue of a disk, which one CPU drives.
pub trait Port {
    /// By which number the disk knows it.
    fn number(&self) -> u16;
    /// Make room for one more request of so many bytes; returns its tag, and where its data lies.
    fn room(&mut self, bytes: u32) -> Result<(u32, u64), Failure>;
    /// Put a request in its place; the disk sees it with the next [`Port::kick`].
    fn send(&mut self, tag: u32, kind: Kind, offset: u64);
    /// Tell the disk what was sent, and what was taken, where it wants to know.
    fn kick(&mut self);
    /// Take the tag of the next request that the disk gave back, and what it said of it.
    fn take(&mut self) -> Option<(u32, u32)>;
    /// Judge what the disk said of a request that it had: zero, or an errno; a failure when it makes no sense.
    fn judge(&self, tag: u32, said: u32) -> Result<i32, Failure>;
    /// Ask for an interrupt with the next request that comes back, or for none; whether one waits already.
    fn listen(&mut self, on: bool) -> bool;
    /// How often doorbells were rung.
    fn kicks(&self) -> u64;
    /// Bring the disk to where it takes requests; it has begun.
    fn ready(&mut self, _clock: Clock) -> Result<(), Failure> {
        Ok(())
    }
}

/// How long a disk may take for what is asked of it before a load.
const PATIENCE: Duration = Duration::from_secs(10);

/// Look until something is there; fails with `what` when it takes too long.
pub fn wait_for<T>(clock: Clock, what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T, Failure> {
    let limit = clock.now() + PATIENCE.as_nanos() as u64;
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if clock.now() > limit {
            return Err(Failure::run(alloc::format!("{what} within {} s", PATIENCE.as_secs())));
        }
        relax();
    }
}
