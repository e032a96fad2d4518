// SPDX-License-Identifier: Apache-2.0
//! The machine below: ports, memory-mapped registers, the time-stamp counter, the serial port, the way out.

use core::arch::asm;
use core::fmt::{self, Write};
use core::time::Duration;

const SERIAL: u16 = 0x3f8;
const EXIT: u16 = 0xf4;

/// How the guest ends, by what QEMU's status is made of: twice this and one.
#[derive(Clone, Copy)]
pub enum Exit {
    /// It was asked to.
    Asked = 0x10,
    /// It could not go on, and said why on the serial port.
    Panic = 0x11,
}

/// Write a byte to a port.
pub fn out8(port: u16, value: u8) {
    // SAFETY: IOPL is 3; a port touches no memory of this program.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack, preserves_flags)) }
}

/// Write two bytes to a port.
pub fn out16(port: u16, value: u16) {
    // SAFETY: as above.
    unsafe { asm!("out dx, ax", in("dx") port, in("ax") value, options(nomem, nostack, preserves_flags)) }
}

/// Read a byte from a port.
pub fn in8(port: u16) -> u8 {
    let value: u8;
    // SAFETY: as above.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack, preserves_flags)) }
    value
}

/// Write four bytes to a port.
pub fn out32(port: u16, value: u32) {
    // SAFETY: as above.
    unsafe { asm!("out dx, eax", in("dx") port, in("eax") value, options(nomem, nostack, preserves_flags)) }
}

/// Read four bytes from a port.
pub fn in32(port: u16) -> u32 {
    let value: u32;
    // SAFETY: as above.
    unsafe { asm!("in eax, dx", in("dx") port, out("eax") value, options(nomem, nostack, preserves_flags)) }
    value
}

/// The time-stamp counter.
#[inline]
pub fn tsc() -> u64 {
    // SAFETY: CR4.TSD is clear, so CPL 3 may read it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Let the CPU know that this is a loop that waits.
#[inline]
pub fn relax() {
    core::hint::spin_loop();
}

/// Wait until an interrupt comes, with interrupts off before and after; one that waits already ends it at once.
pub fn halt() {
    // SAFETY: the one call there is halts at CPL 0 with interrupts on and returns; it uses this stack, and the two
    // registers that every call changes.
    unsafe { asm!("syscall", out("rcx") _, out("r11") _) }
}

/// How often a guest that halts wakes to look at its clock.
pub const TICK: Duration = Duration::from_millis(100);

/// The local APIC of the CPU that asks.
pub struct Apic;

impl Apic {
    fn write(&self, at: u64, value: u32) {
        // SAFETY: the registers of this CPU's own APIC, which are mapped.
        unsafe { ((0xfee0_0000 + at) as *mut u32).write_volatile(value) }
    }

    /// Have the timer call a vector every tick, or be silent.
    pub fn tick(&self, vector: Option<u8>) {
        self.write(0x3e0, 0b1011); // undivided: QEMU and KVM count nanoseconds
        self.write(0x320, vector.map_or(1 << 16, |vector| u32::from(vector) | 1 << 17));
        self.write(0x380, if vector.is_some() { TICK.as_nanos() as u32 } else { 0 });
    }

    /// Start a CPU that waits for it at a page below 1 MiB.
    pub fn start(&self, cpu: usize, page: u64) {
        self.send(cpu, 0x4600 | (page >> 12) as u32);
    }

    /// Have a CPU wait until it is started.
    pub fn rest(&self, cpu: usize) {
        self.send(cpu, 0x4500);
    }

    fn send(&self, cpu: usize, what: u32) {
        self.write(0x310, (cpu as u32) << 24);
        self.write(0x300, what);
    }
}

/// What leads the interrupts of a board's own devices to its CPUs.
pub struct IoApic;

impl IoApic {
    /// Have an interrupt call a vector on every CPU, once each time it begins.
    pub fn lead(&self, irq: u8, vector: u8) {
        const EVERY_CPU: u32 = 0xff << 24;
        self.write(0x11 + 2 * irq, EVERY_CPU);
        self.write(0x10 + 2 * irq, u32::from(vector));
    }

    fn write(&self, register: u8, value: u32) {
        // SAFETY: the two registers of the board's first I/O APIC, which are mapped: an index, and what it names.
        unsafe {
            (0xfec0_0000 as *mut u32).write_volatile(u32::from(register));
            (0xfec0_0010 as *mut u32).write_volatile(value);
        }
    }
}

unsafe extern "C" {
    static mut idt: [[u64; 2]; 256];
    static stubs: [[u8; 16]; 256];
    fn wake();
    #[link_name = "halt"]
    static halt_begin: u8;
    static halt_end: u8;
}

/// The vector that wakes a CPU which halts.
pub const WAKE: u8 = 0x40;

/// Lead every vector to its stub, and the one that wakes to what does nothing else.
///
/// It is done here and not by the first steps of the guest, since some KVMs emulate those one by one.
pub fn catch() {
    for vector in 0..256 {
        // SAFETY: the address of a stub is taken, and nothing is read there.
        let stub = unsafe { &raw const stubs[vector] } as u64;
        let to = if vector == usize::from(WAKE) { wake as *const () as u64 } else { stub };
        let gate = to & 0xffff | 0x10 << 16 | 0x8e00 << 32 | (to & 0xffff_0000) << 32;
        // SAFETY: one CPU runs, and nothing has gone wrong so far that would read the table.
        unsafe { (&raw mut idt[vector]).write_volatile([gate, 0]) };
    }
}

/// End QEMU.
pub fn exit(how: Exit) -> ! {
    out8(EXIT, how as u8);
    loop {
        relax();
    }
}

/// The serial port: for last words, since every byte costs an exit.
pub struct Serial;

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(|byte| out8(SERIAL, byte));
        Ok(())
    }
}

/// What the CPU had put on the stack when it met something that must not be: the vector, and what was running.
#[unsafe(no_mangle)]
extern "C" fn guest_trap(frame: *const [u64; 4]) -> ! {
    // SAFETY: the stub passes its own stack, on which four words at least lie.
    let frame = unsafe { &*frame };
    let (vector, coded) = (frame[0], matches!(frame[0], 8 | 10..=14 | 17 | 21));
    let (code, at) = if coded { (frame[1], frame[2]) } else { (0, frame[1]) };
    let address: u64;
    // SAFETY: CR2 is read at CPL 0, where stubs run.
    unsafe { asm!("mov {}, cr2", out(reg) address, options(nomem, nostack, preserves_flags)) }
    let halts = (&raw const halt_begin as u64..&raw const halt_end as u64).contains(&at);
    if halts {
        let _ = Serial.write_str("on this KVM a bare guest cannot wait for interrupts: use hipri=1, which polls; ");
    }
    let _ = writeln!(Serial, "virtune-guest: exception {vector} (code {code:#x}) at {at:#x}, address {address:#x}");
    exit(Exit::Panic)
}
