// SPDX-License-Identifier: Apache-2.0
//! Memory: a heap that only grows and is emptied between loads, what devices see of it, and the functions that a compiler
//! takes for given.

use crate::lock::Lock;
use alloc::alloc::alloc_zeroed;
use alloc::format;
use alloc::string::{String, ToString as _};
use core::alloc::{GlobalAlloc, Layout};
use core::arch::asm;
use virtune_load_core::failure::Failure;

unsafe extern "C" {
    static image_end: u8;
}

/// The table that PVH passes: where it is is in the start info.
const MEMMAP_ADDRESS: usize = 40;
const MEMMAP_ENTRIES: usize = 48;
/// The low 4 GiB are mapped; PCI devices are put below this, and no board has memory there.
const MEMORY_END: u64 = 0xb000_0000;

/// A heap from the end of the image to the end of the memory around it, for all CPUs.
pub struct Heap {
    span: Lock<(usize, usize)>,
}

#[global_allocator]
static HEAP: Heap = Heap { span: Lock::new((0, 0)) };

// SAFETY: what is given out lies in memory that the start info names as such, is aligned as asked, and is not given
// out again before `forget`, whose callers hold nothing that was made since.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.span.with(|(next, end)| {
            let at = next.next_multiple_of(layout.align());
            match at.checked_add(layout.size()) {
                Some(after) if after <= *end => {
                    *next = after;
                    at as *mut u8
                }
                _ => core::ptr::null_mut(),
            }
        })
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        self.span.with(|(next, _)| {
            if place as usize + layout.size() == *next {
                *next = place as usize;
            }
        });
    }
}

/// Find the memory around the image by the start info at `info`; returns how many bytes there are.
pub fn find(info: u32) -> usize {
    let word = |at: usize| {
        // SAFETY: the start info and its table lie in the mapped 4 GiB, where firmware put them.
        unsafe { core::ptr::read_unaligned(at as *const u64) }
    };
    let table = word(info as usize + MEMMAP_ADDRESS) as usize;
    let entries = word(info as usize + MEMMAP_ENTRIES) as u32 as usize;
    let begin = &raw const image_end as u64;
    let end = (0..entries.min(128))
        .map(|index| table + 24 * index)
        .filter(|row| word(row + 16) as u32 == 1)
        .map(|row| (word(row), word(row).saturating_add(word(row + 8))))
        .find(|(from, to)| *from <= begin && begin < *to)
        .map_or(begin, |(_, to)| to.min(MEMORY_END));
    HEAP.span.with(|span| *span = (begin as usize, end as usize));
    (end - begin) as usize
}

/// How far the heap has grown.
pub fn mark() -> usize {
    HEAP.span.with(|span| span.0)
}

/// How many bytes are left.
pub fn left() -> usize {
    HEAP.span.with(|(next, end)| *end - *next)
}

/// Empty the heap down to a mark.
///
/// # Safety
/// Nothing may be in use any more that was allocated since the mark was taken.
pub unsafe fn forget(mark: usize) {
    HEAP.span.with(|span| span.0 = mark);
}

/// Memory that devices may use, all zeros: it stays until the heap is emptied.
pub fn memory(bytes: usize, alignment: usize) -> Result<u64, Failure> {
    let layout =
        Layout::from_size_align(bytes.max(1), alignment).map_err(|_| Failure::run("a size that no memory has"))?;
    // SAFETY: the layout is not empty.
    let place = unsafe { alloc_zeroed(layout) } as u64;
    if place == 0 {
        return Err(Failure::usage(format!("the guest has no memory left for {bytes} bytes: give it more")));
    }
    Ok(place)
}

/// Read what a device has at a place: a register, or memory that it writes.
pub fn get<T: Copy>(address: u64) -> T {
    // SAFETY: addresses are those of a device's registers, in memory that was dealt out to it and is mapped, or of
    // memory made by `memory` for it.
    unsafe { (address as *const T).read_volatile() }
}

/// Write what a device reads at a place.
pub fn put<T>(address: u64, value: T) {
    // SAFETY: as above.
    unsafe { (address as *mut T).write_volatile(value) }
}

/// Read a text that a device has or wrote: up to its first NUL, without the blanks around it.
pub fn text(address: u64, most: usize) -> String {
    let bytes = (0..most as u64).map(|at| get::<u8>(address + at)).take_while(|byte| *byte != 0);
    bytes.map(char::from).collect::<String>().trim().to_string()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    // SAFETY: C's contract.
    unsafe {
        asm!("rep movsb", inout("rcx") count => _, inout("rdi") to => _, inout("rsi") from => _, options(nostack, preserves_flags));
    }
    to
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    if (to as usize).wrapping_sub(from as usize) >= count {
        // SAFETY: they overlap only where copying forwards is right.
        return unsafe { memcpy(to, from, count) };
    }
    // SAFETY: C's contract; copied backwards, since `to` lies inside what is copied, and the flag is put back.
    unsafe {
        asm!("std", "rep movsb", "cld", inout("rcx") count => _, inout("rdi") to.add(count).wrapping_sub(1) => _,
            inout("rsi") from.add(count).wrapping_sub(1) => _, options(nostack));
    }
    to
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, value: i32, count: usize) -> *mut u8 {
    // SAFETY: C's contract.
    unsafe {
        asm!("rep stosb", inout("rcx") count => _, inout("rdi") to => _, in("al") value as u8, options(nostack, preserves_flags));
    }
    to
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, count: usize) -> i32 {
    for index in 0..count {
        // SAFETY: C's contract.
        let (x, y) = unsafe { (a.add(index).read_volatile(), b.add(index).read_volatile()) };
        if x != y {
            return i32::from(x) - i32::from(y);
        }
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, count: usize) -> i32 {
    // SAFETY: C's contract.
    unsafe { memcmp(a, b, count) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(text: *const u8) -> usize {
    let mut length = 0;
    // SAFETY: C's contract.
    while unsafe { text.add(length).read_volatile() } != 0 {
        length += 1;
    }
    length
}

/// Named by the unwind tables of the `core` of the host's target, which nothing here reads: a panic ends the guest.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// As above.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    crate::machine::exit(crate::machine::Exit::Panic)
}
