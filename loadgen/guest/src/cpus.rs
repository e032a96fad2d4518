// SPDX-License-Identifier: Apache-2.0
//! The other CPUs. Each is started for one piece of work; before and after it waits to be started and costs nothing.

use crate::clock::Clock;
use crate::machine::{Apic, in8, out16, relax, tsc};
use crate::memory::memory;
use alloc::boxed::Box;
use alloc::format;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use virtune_load_core::failure::Failure;

/// So many have a place in the table of descriptors (start.s).
pub const MOST: usize = 64;
/// Where a CPU that is started begins: a page below 1 MiB, which firmware has no more use for.
const LOW_PAGE: u64 = 0x8000;
const STACK: usize = 256 << 10;
const INNER_STACK: usize = 16 << 10;
/// A task state segment with its map of all ports, which are all free, and the byte that ends the map.
const STATE: usize = 104 + 8192 + 1;
/// The first task state segment's selector; the others' follow.
const FIRST_STATE: u32 = 0x40;
/// Exits of which the quickest counts.
const EXITS: usize = 16;
/// How long a CPU may take to begin. A host that is busy may let a vCPU wait for long.
const BEGIN: Duration = Duration::from_secs(20);
/// How often it is asked to.
const AGAIN: Duration = Duration::from_millis(20);

unsafe extern "C" {
    static low_begin: u8;
    static low_end: u8;
    static mut gdt_tss: [[u64; 2]; MOST];
    /// What a CPU that is started finds: its task state segment, which is zero once it is taken, its stacks, its work.
    static mut helper: [u64; 4];
}

/// How many CPUs QEMU gave the guest: it says so through its configuration ports.
pub fn count() -> usize {
    const SELECT: u16 = 0x510;
    const DATA: u16 = 0x511;
    const CPUS: u16 = 5;
    out16(SELECT, CPUS);
    let found = usize::from(in8(DATA)) | usize::from(in8(DATA)) << 8;
    found.clamp(1, MOST)
}

/// How many nanoseconds an exit to QEMU takes at least: a read of one of its ports.
pub fn exit_ns(clock: Clock) -> u64 {
    let once = || {
        let before = clock.now();
        in8(0x511);
        clock.now() - before
    };
    (0..EXITS).map(|_| once()).min().unwrap_or(0)
}

type Work<T> = Box<dyn FnOnce() -> T + Send>;

#[repr(C)] // its first word is called (start.s)
struct Task<T> {
    call: extern "C" fn(*mut Task<T>) -> !,
    work: UnsafeCell<Option<Work<T>>>,
    result: UnsafeCell<Option<T>>,
    /// What its time-stamp counter was when it began; zero before.
    began: AtomicU64,
    done: AtomicBool,
}

/// Work that another CPU does.
pub struct Started<T> {
    cpu: usize,
    task: *mut Task<T>,
}

/// Let a CPU begin to work; fails when it does not come, or when its clock is not that of this one.
pub fn start<T: Send>(cpu: usize, clock: Clock, work: Work<T>) -> Result<Started<T>, Failure> {
    let task = Box::into_raw(Box::new(Task {
        call: run::<T>,
        work: UnsafeCell::new(Some(work)),
        result: UnsafeCell::new(None),
        began: AtomicU64::new(0),
        done: AtomicBool::new(false),
    }));
    Apic.rest(cpu); // nothing but this makes a CPU wait that was never started
    prepare(cpu, task as u64)?;
    let (before, limit) = (tsc(), clock.now() + BEGIN.as_nanos() as u64);
    // SAFETY: the task lives until it is forgotten with all memory of the load; it is shared by way of its atomics.
    let began = unsafe { &(*task).began };
    let mut due = 0;
    let seen = loop {
        let seen = began.load(Ordering::Acquire);
        if seen != 0 {
            break seen;
        }
        if clock.now() >= due {
            Apic.start(cpu, LOW_PAGE);
            due = clock.now() + AGAIN.as_nanos() as u64;
        }
        if clock.now() > limit {
            return Err(Failure::run(format!("vCPU {cpu} did not start within {} s", BEGIN.as_secs())));
        }
        relax();
    };
    let started = Started { cpu, task };
    if !(before..=tsc()).contains(&seen) {
        started.finish();
        return Err(Failure::run(format!("the clock of vCPU {cpu} is not that of the first: it cannot be trusted")));
    }
    Ok(started)
}

impl<T> Started<T> {
    /// Wait until the work is done, put the CPU to rest, and return what it made.
    pub fn finish(self) -> T {
        // SAFETY: as above.
        let task = unsafe { &*self.task };
        while !task.done.load(Ordering::Acquire) {
            relax();
        }
        Apic.rest(self.cpu);
        // SAFETY: the work is done, so the other CPU has no more to do with the result.
        let result = unsafe { (*task.result.get()).take() };
        result.unwrap_or_else(|| panic!("vCPU {} made nothing", self.cpu))
    }
}

/// What a CPU does that was started (start.s): it is at CPL 3 here.
extern "C" fn run<T>(task: *mut Task<T>) -> ! {
    // SAFETY: whoever started this CPU passed the task, and keeps it until the work is done.
    let task = unsafe { &*task };
    // SAFETY: until it is done nobody else touches the work.
    let work = unsafe { (*task.work.get()).take() };
    task.began.store(tsc(), Ordering::Release);
    if let Some(work) = work {
        let made = work();
        // SAFETY: as above.
        unsafe { *task.result.get() = Some(made) };
    }
    task.done.store(true, Ordering::Release);
    loop {
        relax();
    }
}

/// Lay out what a CPU finds when it is started: the first steps, a task state segment, stacks, its work.
fn prepare(cpu: usize, task: u64) -> Result<(), Failure> {
    let (state, inner, outer) = (memory(STATE, 64)?, memory(INNER_STACK, 64)?, memory(STACK, 64)?);
    // SAFETY: the low page is nobody's; the segment is memory of its own; the tables belong to start.s, which reads
    // them when this CPU starts, and only one is started at a time.
    unsafe {
        let (from, to) = (&raw const low_begin, &raw const low_end);
        core::ptr::copy_nonoverlapping(from, LOW_PAGE as *mut u8, to as usize - from as usize);
        ((state + 4) as *mut u64).write_unaligned(inner + INNER_STACK as u64);
        ((state + 102) as *mut u16).write(104);
        ((state + STATE as u64 - 1) as *mut u8).write(0xff);
        let low = 0x0000_8900_0000_2068 | (state & 0xff_ffff) << 16 | (state & 0xff00_0000) << 32;
        (&raw mut gdt_tss[cpu]).write_volatile([low, state >> 32]);
        let selector = u64::from(FIRST_STATE) + 16 * cpu as u64;
        // a function finds the stack as if it had been called
        (&raw mut helper).write([0, inner + INNER_STACK as u64, outer + STACK as u64 - 8, task]);
        // last, since a CPU goes on by it: one that was asked once more than it needed may start even now
        AtomicU64::from_ptr((&raw mut helper).cast()).store(selector, Ordering::Release);
    }
    Ok(())
}
