// SPDX-License-Identifier: Apache-2.0
//! The line to the host: frames over a virtio console.
//!
//! A frame is a line `virtune KIND LENGTH CRC32` (the checksum in hexadecimal) and so many bytes.

use crate::found::Found;
use crate::machine::relax;
use crate::memory::memory;
use crate::virtio::{Device, Piece, Ring};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use virtune_load_core::failure::Failure;

const BUFFER: usize = 4096;
const SEND_BUFFER: usize = 65536;
/// A longer frame than any job needs.
const LONGEST: usize = 1 << 20;
const RECEIVE: u16 = 0;
const TRANSMIT: u16 = 1;

/// What came over the line.
pub struct Frame {
    /// What it is.
    pub kind: String,
    /// What it says.
    pub body: Vec<u8>,
}

/// The line.
pub struct Line {
    receive: Ring,
    transmit: Ring,
    buffer: u64,
    send_buffer: u64,
    /// What came and was not read yet: from where to where in the buffer.
    left: (usize, usize),
    _device: Device,
}

impl Line {
    /// Open the console.
    pub fn open(console: Found) -> Result<Line, Failure> {
        let device = Device::new(console.place, 0)?;
        let (receive, transmit) = (device.ring(RECEIVE, None)?, device.ring(TRANSMIT, None)?);
        let (buffer, send_buffer) = (memory(BUFFER, 4096)?, memory(SEND_BUFFER, 4096)?);
        device.begin();
        let mut line = Line { receive, transmit, buffer, send_buffer, left: (0, 0), _device: device };
        line.receive.listen(false);
        line.transmit.listen(false);
        line.offer();
        Ok(line)
    }

    /// Where to see that the host has something to say, and what is there as long as it has not.
    pub fn word(&self) -> (u64, u16) {
        self.receive.word()
    }

    /// Wait for the next frame. One that is damaged is an error: whoever sent it asks again.
    pub fn receive(&mut self) -> Result<Frame, Failure> {
        let mut head = String::new();
        loop {
            match self.byte() {
                b'\n' => break,
                byte if head.len() < 128 => head.push(char::from(byte)),
                _ => {}
            }
        }
        let words: Vec<&str> = head.split(' ').collect();
        let wrong = || Failure::usage(format!("no frame begins with `{head}`"));
        let ["virtune", kind, length, sum] = words.as_slice() else { return Err(wrong()) };
        let length: usize = length.parse().map_err(|_| wrong())?;
        let sum = u32::from_str_radix(sum, 16).map_err(|_| wrong())?;
        if length > LONGEST {
            return Err(wrong());
        }
        let body: Vec<u8> = (0..length).map(|_| self.byte()).collect();
        if checksum(&body) != sum {
            return Err(Failure::usage(format!("a {kind} came with a wrong checksum")));
        }
        Ok(Frame { kind: (*kind).to_string(), body })
    }

    /// Send a frame, and return when the host's QEMU has it.
    pub fn send(&mut self, kind: &str, body: &[u8]) {
        let head = format!("virtune {kind} {} {:08x}\n", body.len(), checksum(body));
        for part in [head.as_bytes(), body] {
            for piece in part.chunks(SEND_BUFFER) {
                // SAFETY: the line's own buffer, which no request in flight has.
                let place = unsafe { core::slice::from_raw_parts_mut(self.send_buffer as *mut u8, piece.len()) };
                place.copy_from_slice(piece);
                self.transmit.chain(0, &[Piece { address: self.send_buffer, bytes: piece.len() as u32, write: false }]);
                self.transmit.send(0);
                self.transmit.kick();
                while self.transmit.take().is_none() {
                    relax();
                }
            }
        }
    }

    fn byte(&mut self) -> u8 {
        while self.left.0 == self.left.1 {
            match self.receive.take() {
                Some((_, bytes)) => self.left = (0, (bytes as usize).min(BUFFER)),
                None => relax(),
            }
        }
        // SAFETY: the line's own buffer, which the device gave back.
        let byte = unsafe { ((self.buffer + self.left.0 as u64) as *const u8).read_volatile() };
        self.left.0 += 1;
        if self.left.0 == self.left.1 {
            self.left = (0, 0);
            self.offer();
        }
        byte
    }

    fn offer(&mut self) {
        self.receive.chain(0, &[Piece { address: self.buffer, bytes: BUFFER as u32, write: true }]);
        self.receive.send(0);
        self.receive.kick();
    }
}

/// The checksum of zip and gzip.
fn checksum(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| sum >> 1 ^ (0xedb8_8320 & (sum & 1).wrapping_neg()))
    })
}
