// SPDX-License-Identifier: Apache-2.0
//! The driver: one client for a vhost-user socket and for io_uring, and the only room with `unsafe` in it.
//!
//! A [`Queue`] owns a buffer for each of its slots and knows which slots are in flight. It gives a buffer out only
//! while its slot is idle, so callers cannot race with the device. Who shares a queue has slots of their own in it.

use crate::failure::Failure;
use crate::job::{Driver, Place};
pub use crate::run::{Done, Queue as _, Shape};
use crate::{plan, run};
use blkio::{Blkio, Blkioq, Completion, Errno, ReqFlags};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::sync::mpsc;
use std::time::Duration;

/// How long a server may take to answer when we connect; another client it serves makes it wait for ever.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Descriptors that one request takes in a virtqueue: header, data, status.
const DESCRIPTORS_PER_REQUEST: usize = 3;
/// The smallest ring we ask for; a larger one than needed costs nothing.
const RING_MIN: usize = 128;
/// The largest ring that the virtio specification allows.
const RING_MAX: usize = 32768;
/// More memory for buffers than a load generator should take.
const MEMORY_MAX: u64 = 8 << 30;

/// A disk that is connected but not started.
pub struct Device {
    blkio: Blkio,
    driver: Driver,
    path: String,
    capacity: u64,
    alignment: u64,
    connection: Option<Connection>,
    poll: bool,
    // keeps the exclusive claim on a block device for as long as we write to it
    _claim: Option<File>,
}

impl Device {
    /// Connect to the disk; `writing` decides whether it is opened for writing.
    pub fn connect(place: &Place, writing: bool) -> Result<Device, Failure> {
        let claim = match place.driver {
            Driver::IoUring => check_file(&place.path, writing)?,
            Driver::VhostUser => None,
            Driver::Guest(bus) => {
                let engine = bus.name();
                return Err(Failure::usage(format!("ioengine={engine} is the driver of a guest, and this is a host")));
            }
        };
        let before = sockets();
        let blkio = connect_within(place.clone(), writing, CONNECT_LIMIT)?;
        let connection = match place.driver {
            Driver::VhostUser => Connection::find(&before),
            Driver::IoUring | Driver::Guest(_) => None,
        };
        let capacity = blkio.get_u64("capacity").map_err(|error| refuse(&place.path, &error))?;
        let alignment = blkio.get_i32("request-alignment").map_err(|error| refuse(&place.path, &error))?;
        Ok(Device {
            blkio,
            driver: place.driver,
            path: place.path.clone(),
            capacity,
            alignment: alignment.max(1) as u64,
            connection,
            poll: place.poll,
            _claim: claim,
        })
    }

    /// The size of the disk in bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// What offsets and lengths must be a multiple of.
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// What a plan needs to know of it.
    pub fn disk(&self) -> plan::Disk {
        plan::Disk { capacity: self.capacity, alignment: self.alignment }
    }

    /// How a write is made durable before it counts as done.
    pub fn durable_by(&self) -> &'static str {
        match self.driver {
            // virtio-blk has no FUA bit; blkio sends the flush before it completes the write
            Driver::VhostUser | Driver::Guest(_) => "a flush after each write",
            Driver::IoUring => "RWF_DSYNC with each write",
        }
    }

    /// How many queues there are for so many that want one: one each, unless the disk offers fewer.
    pub fn queues_for(&self, wanting: usize) -> Result<usize, Failure> {
        let offered = self.blkio.get_i32("max-queues").map_err(|error| refuse(&self.path, &error))?;
        Ok(wanting.min(usize::try_from(offered).unwrap_or(0)).max(1))
    }

    /// Start one queue for each entry of `shared`, which has the shapes of those who share it: the first has the first
    /// slots.
    pub fn start(&mut self, shared: &[Vec<Shape>]) -> Result<Vec<Queue>, Failure> {
        self.check_shapes(shared)?;
        let refused = |error: blkio::Error| refuse(&self.path, &error);
        let deepest = shared.iter().map(|shapes| depth_of(shapes)).max().unwrap_or(1);
        let (events, polls) = if self.poll { (0, shared.len()) } else { (shared.len(), 0) };
        self.blkio.set_i32("num-queues", events as i32).map_err(refused)?;
        self.blkio.set_i32("num-poll-queues", polls as i32).map_err(refused)?;
        let (ring, entries) = match self.driver {
            Driver::VhostUser => ("queue-size", DESCRIPTORS_PER_REQUEST * deepest),
            Driver::IoUring | Driver::Guest(_) => ("num-entries", deepest),
        };
        let entries = entries.next_power_of_two().clamp(RING_MIN, RING_MAX);
        self.blkio.set_i32(ring, entries as i32).map_err(refused)?;
        let started = self.blkio.start().map_err(|error| self.explain_start(&error))?;
        let queues = if self.poll { started.poll_queues } else { started.queues };
        // one region for all queues, because servers take only a few (32 in QEMU)
        let page = self.page();
        let sizes: Vec<usize> = shared.iter().map(|shapes| bytes_of(shapes).next_multiple_of(page)).collect();
        let region = self.blkio.alloc_mem_region(sizes.iter().sum()).map_err(|error| refuse(&self.path, &error))?;
        self.blkio.map_mem_region(&region).map_err(|error| refuse(&self.path, &error))?;
        let mut base = region.addr;
        Ok(queues
            .into_iter()
            .zip(shared.iter().zip(sizes))
            .map(|(blkioq, (shapes, size))| {
                let queue = Queue::new(blkioq, base, shapes);
                base += size;
                queue
            })
            .collect())
    }

    /// Whether the server is still there. Always true for io_uring, and where the connection could not be found.
    pub fn alive(&self) -> bool {
        self.connection.as_ref().is_none_or(Connection::open)
    }

    fn page(&self) -> usize {
        let alignment = self.blkio.get_u64("mem-region-alignment").unwrap_or(1).max(1);
        (alignment as usize).max(4096)
    }

    fn check_shapes(&self, shared: &[Vec<Shape>]) -> Result<(), Failure> {
        let memory: u64 = shared.iter().map(|shapes| bytes_of(shapes) as u64).sum();
        if memory > MEMORY_MAX {
            return Err(Failure::usage(format!(
                "iodepth x bs x numjobs needs {} MiB of buffers; {} are allowed",
                memory >> 20,
                MEMORY_MAX >> 20
            )));
        }
        let deepest = shared.iter().map(|shapes| depth_of(shapes)).max().unwrap_or(0);
        if self.driver == Driver::VhostUser && deepest * DESCRIPTORS_PER_REQUEST > RING_MAX {
            return Err(Failure::usage(format!(
                "the disk offers {} queue{}, so {deepest} requests would be in flight on one; {} fit",
                shared.len(),
                if shared.len() == 1 { "" } else { "s" },
                RING_MAX / DESCRIPTORS_PER_REQUEST
            )));
        }
        let longest = self.blkio.get_i32("max-segment-len").unwrap_or(0);
        if let Some(shape) = shared.iter().flatten().find(|shape| longest > 0 && shape.block > longest as usize) {
            return Err(Failure::usage(format!(
                "the disk takes at most {longest} bytes in one piece, not {}",
                shape.block
            )));
        }
        Ok(())
    }

    fn explain_start(&self, error: &blkio::Error) -> Failure {
        if error.errno() == Errno::ROFS {
            return Failure::usage(format!("{} is read-only: export it with writable=on", self.path));
        }
        if error.message() == "Poll queues not supported" {
            return Failure::usage(format!(
                "{} cannot be polled: its device has no poll queues; leave hipri out",
                self.path
            ));
        }
        refuse(&self.path, error)
    }
}

fn depth_of(shapes: &[Shape]) -> usize {
    shapes.iter().map(|shape| shape.depth).sum()
}

fn bytes_of(shapes: &[Shape]) -> usize {
    shapes.iter().map(|shape| shape.depth * shape.block).sum()
}

/// One queue of a started disk, with a buffer for each slot.
pub struct Queue {
    blkioq: Blkioq,
    slots: Vec<Slot>,
    in_flight: usize,
    completions: Vec<MaybeUninit<Completion>>,
    fresh: usize,
    taken: usize,
}

/// The buffer of a request, and whether the device has it.
struct Slot {
    address: usize,
    block: usize,
    busy: bool,
}

impl Queue {
    /// `base` begins a mapping that belongs to this queue alone and holds what `shapes` need.
    fn new(blkioq: Blkioq, base: usize, shapes: &[Shape]) -> Self {
        let mut address = base;
        let mut slots = Vec::with_capacity(depth_of(shapes));
        for shape in shapes {
            for _ in 0..shape.depth {
                slots.push(Slot { address, block: shape.block, busy: false });
                address += shape.block;
            }
        }
        Queue {
            blkioq,
            completions: (0..slots.len()).map(|_| MaybeUninit::uninit()).collect(),
            slots,
            in_flight: 0,
            fresh: 0,
            taken: 0,
        }
    }

    #[inline]
    fn claim(&mut self, slot: usize) -> (*mut u8, usize) {
        let claimed = &mut self.slots[slot];
        assert!(!claimed.busy, "slot {slot} is in flight");
        claimed.busy = true;
        self.in_flight += 1;
        (claimed.address as *mut u8, claimed.block)
    }
}

impl run::Queue for Queue {
    #[inline]
    fn in_flight(&self) -> usize {
        self.in_flight
    }

    #[inline]
    fn buffer(&mut self, slot: usize) -> &mut [u8] {
        let &Slot { address, block, busy } = &self.slots[slot];
        assert!(!busy, "slot {slot} is in flight");
        // SAFETY: `address` lies in a mapping that lives for as long as `blkioq` does (it holds the registry that
        // unmaps it), and `block` bytes from there are this slot's alone: slots do not overlap. The slot is idle, so
        // the device has given the buffer back, and `&mut self` keeps every other reference away. All bit patterns
        // are valid bytes.
        unsafe { std::slice::from_raw_parts_mut(address as *mut u8, block) }
    }

    #[inline]
    fn read(&mut self, slot: usize, offset: u64) {
        let (address, block) = self.claim(slot);
        self.blkioq.read(offset, address, block, slot, ReqFlags::empty());
    }

    #[inline]
    fn write(&mut self, slot: usize, offset: u64, durable: bool) {
        let (address, block) = self.claim(slot);
        let flags = if durable { ReqFlags::FUA } else { ReqFlags::empty() };
        self.blkioq.write(offset, address, block, slot, flags);
    }

    #[inline]
    fn flush(&mut self, slot: usize) {
        self.claim(slot);
        self.blkioq.flush(slot, ReqFlags::empty());
    }

    #[inline]
    fn submit(&mut self) -> Result<(), Failure> {
        match self.blkioq.do_io(&mut [], 0, None, None) {
            Ok(_) => Ok(()),
            Err(error) => may_go_on(&error),
        }
    }

    #[inline]
    fn wait(&mut self, least: usize, most: usize, limit: Duration) -> Result<usize, Failure> {
        let mut left = limit;
        let most = most.min(self.completions.len());
        (self.fresh, self.taken) = (0, 0);
        match self.blkioq.do_io(&mut self.completions[..most], least.min(self.in_flight), Some(&mut left), None) {
            Ok(ended) => {
                self.fresh = ended;
                Ok(ended)
            }
            Err(error) => may_go_on(&error).map(|()| 0),
        }
    }

    #[inline]
    fn next_done(&mut self) -> Option<Done> {
        if self.taken == self.fresh {
            return None;
        }
        // SAFETY: do_io() initialised the first `fresh` elements, and `taken` is below that.
        let completion = unsafe { self.completions[self.taken].assume_init_ref() };
        self.taken += 1;
        let done = Done { slot: completion.user_data, result: completion.ret };
        let slot = &mut self.slots[done.slot];
        assert!(slot.busy, "slot {} ended twice", done.slot);
        slot.busy = false;
        self.in_flight -= 1;
        Some(done)
    }
}

/// Our end of the server's socket, to see it close: blkio itself would wait for ever for a server that died.
struct Connection {
    socket: OwnedFd,
}

impl Connection {
    /// Find the socket that was not there before the driver connected.
    fn find(before: &BTreeSet<RawFd>) -> Option<Connection> {
        let mut fresh = sockets().into_iter().filter(|fd| !before.contains(fd));
        let fd = fresh.next()?;
        // SAFETY: the descriptor was listed as open just now and belongs to the driver, which keeps it open for as
        // long as the disk lives; we only duplicate it here.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
        let socket = borrowed.try_clone_to_owned().ok()?;
        Some(Connection { socket })
    }

    fn open(&self) -> bool {
        // hang-up and error are reported without being asked for
        let mut polled = [PollFd::new(self.socket.as_fd(), PollFlags::empty())];
        let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
        match nix::poll::poll(&mut polled, PollTimeout::ZERO) {
            Ok(_) => !polled[0].revents().unwrap_or(PollFlags::empty()).intersects(gone),
            Err(_) => true,
        }
    }
}

fn sockets() -> BTreeSet<RawFd> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return BTreeSet::new();
    };
    entries
        .flatten()
        .filter(|entry| {
            std::fs::read_link(entry.path()).is_ok_and(|target| target.to_string_lossy().starts_with("socket:"))
        })
        .filter_map(|entry| entry.file_name().to_string_lossy().parse().ok())
        .collect()
}

/// Check what we are about to open; claim a block device for ourselves when we are going to write to it.
fn check_file(path: &str, writing: bool) -> Result<Option<File>, Failure> {
    let about = std::fs::metadata(path).map_err(|error| Failure::usage(format!("cannot use {path}: {}", error)))?;
    let kind = about.file_type();
    if kind.is_socket() {
        return Err(Failure::usage(format!("{path} is a socket: write ioengine=virtio-blk-vhost-user")));
    }
    if !kind.is_file() && !kind.is_block_device() {
        return Err(Failure::usage(format!("{path} is neither a regular file nor a block device")));
    }
    if !(writing && kind.is_block_device()) {
        return Ok(None);
    }
    let claim =
        OpenOptions::new().read(true).write(true).custom_flags(nix::libc::O_EXCL).open(path).map_err(|error| {
            match error.raw_os_error() {
                Some(nix::libc::EBUSY) => {
                    Failure::usage(format!("{path} is in use (mounted, or part of another device)"))
                }
                _ => Failure::usage(format!("cannot use {path}: {}", error)),
            }
        })?;
    Ok(Some(claim))
}

/// Connect in a thread of its own, because a server that is busy with another client never answers.
fn connect_within(place: Place, writing: bool, limit: Duration) -> Result<Blkio, Failure> {
    let path = place.path.clone();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = sender.send(connect(&place, writing));
    });
    match receiver.recv_timeout(limit) {
        Ok(result) => result,
        Err(_) => Err(Failure::run(format!("{path} does not answer: the server is stuck or serves another client"))),
    }
}

fn connect(place: &Place, writing: bool) -> Result<Blkio, Failure> {
    let refused = |error: blkio::Error| match error.errno() {
        Errno::INVAL if place.direct && place.driver == Driver::IoUring => {
            Failure::usage(format!("{} cannot be opened with O_DIRECT: try direct=0", place.path))
        }
        _ => refuse(&place.path, &error),
    };
    let mut blkio = Blkio::new(place.driver.name()).map_err(refused)?;
    blkio.set_str("path", &place.path).map_err(refused)?;
    blkio.set_bool("read-only", !writing).map_err(refused)?;
    if place.driver == Driver::IoUring {
        blkio.set_bool("direct", place.direct).map_err(refused)?;
    }
    blkio.connect().map_err(refused)?;
    Ok(blkio)
}

fn refuse(path: &str, error: &blkio::Error) -> Failure {
    Failure::Run { message: format!("cannot use {path}: {}", error.message()), errno: error.errno().raw_os_error() }
}

/// Whether a queue that returned this error can be asked again.
fn may_go_on(error: &blkio::Error) -> Result<(), Failure> {
    match error.errno() {
        Errno::TIME | Errno::INTR | Errno::AGAIN | Errno::BUSY => Ok(()),
        errno => {
            Err(Failure::Run { message: format!("the queue failed: {}", error.message()), errno: errno.raw_os_error() })
        }
    }
}
