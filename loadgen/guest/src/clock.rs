// SPDX-License-Identifier: Apache-2.0
//! The clock: the time-stamp counter, with a frequency that somebody vouches for.

use crate::machine::{in8, out8, relax, tsc};
use core::sync::atomic::{Ordering, fence};

unsafe extern "C" {
    static kvm_clock: [u32; 8];
}

/// The frequency of the timer of every PC, 14.318 MHz / 12.
const PIT_HZ: u64 = 1_193_182;
/// How many of its ticks a calibration takes: 10 ms, in which two looks of 10 us at most are off by 0.2 %.
const PIT_TICKS: u64 = 11_932;
/// Two calibrations agree when they differ by no more than this part: 0.5 %.
const AGREEMENT: u64 = 200;
/// How often it is tried; the host holds the clock against its own besides.
const TRIES: usize = 8;
/// Looks at the timer of which the quickest counts: a host that is busy takes the CPU away in between.
const LOOKS: usize = 6;

/// A clock in nanoseconds.
#[derive(Clone, Copy)]
pub struct Clock {
    /// Cycles of the counter in a second.
    pub hertz: u64,
    /// Who says so: `kvm-clock` or `pit`.
    pub source: &'static str,
    base: u64,
    /// Nanoseconds of one cycle, times 2^32.
    factor: u64,
}

impl Clock {
    /// Find out how fast the counter is: KVM says so, else the timer of the board does.
    pub fn find() -> Clock {
        let (hertz, source) = match by_kvm() {
            Some(hertz) => (hertz, "kvm-clock"),
            None => (by_pit(), "pit"),
        };
        let hertz = hertz.max(1);
        Clock { hertz, source, base: tsc(), factor: ((1_000_000_000u128 << 32) / u128::from(hertz)) as u64 }
    }

    /// Nanoseconds since it was found.
    #[inline]
    pub fn now(&self) -> u64 {
        ((u128::from(tsc().wrapping_sub(self.base)) * u128::from(self.factor)) >> 32) as u64
    }
}

/// The frequency behind KVM's clock: a cycle is `multiplier` * 2^(shift - 32) nanoseconds.
fn by_kvm() -> Option<u64> {
    fence(Ordering::SeqCst);
    // SAFETY: the page is this program's; the host writes it, so it is read as volatile.
    let words = unsafe { (&raw const kvm_clock).read_volatile() };
    let (multiplier, shift) = (words[6], words[7] as u8 as i8);
    if multiplier == 0 || !(-31..=31).contains(&shift) {
        return None;
    }
    let scaled = (1_000_000_000u128 << 32) / u128::from(multiplier);
    Some(if shift < 0 { scaled << -shift } else { scaled >> shift } as u64)
}

/// The frequency by the board's timer: two calibrations in a row must agree, or a busy host had its hand in one.
fn by_pit() -> u64 {
    let mut before = calibrate();
    for _ in 0..TRIES {
        let found = calibrate();
        if found.abs_diff(before) <= before / AGREEMENT {
            return u64::midpoint(before, found);
        }
        before = found;
    }
    before
}

fn calibrate() -> u64 {
    out8(0x61, (in8(0x61) & !2) | 1); // channel 2 counts, silently
    out8(0x43, 0b1011_0000); // channel 2, both bytes, counts down once
    out8(0x42, 0xff);
    out8(0x42, 0xff);
    let first = look();
    while first.1.saturating_sub(u64::from(counter())) < PIT_TICKS {
        relax();
    }
    let last = look();
    let ticks = first.1.saturating_sub(last.1).max(1);
    ((u128::from(last.0 - first.0) * u128::from(PIT_HZ)) / u128::from(ticks)) as u64
}

/// The counter of cycles and that of the timer, at nearly the same moment.
fn look() -> (u64, u64) {
    let once = || {
        let before = tsc();
        let count = counter();
        let after = tsc();
        (after - before, (before + (after - before) / 2, u64::from(count)))
    };
    (0..LOOKS).map(|_| once()).min_by_key(|(took, _)| *took).map_or((0, 0), |(_, found)| found)
}

fn counter() -> u16 {
    out8(0x43, 0b1000_0000); // hold what channel 2 has
    u16::from(in8(0x42)) | u16::from(in8(0x42)) << 8
}
