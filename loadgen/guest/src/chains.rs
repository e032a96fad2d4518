// SPDX-License-Identifier: Apache-2.0
//! A queue of a virtio disk: each request is a chain of a header, its data and an answer, in the words of its kind.

use crate::clock::Clock;
use crate::memory::memory;
use crate::port::{Kind, Port};
use crate::virtio::{Device, INDIRECT, Piece, Ring};
use alloc::format;
use alloc::vec::Vec;
use virtune_load_core::failure::Failure;

/// Where a request has its answer and its table of pieces, after its header.
const ANSWER_AT: u64 = 64;
const TABLE_AT: u64 = ANSWER_AT + 128;
const BYTES: usize = TABLE_AT as usize + 3 * 16;

/// The words of a kind of disk.
pub trait Words {
    /// Bytes of a header.
    const HEADER: u32;
    /// Bytes of an answer.
    const ANSWER: u32;
    /// Whether what is read comes after the answer.
    const ANSWER_FIRST: bool;
    /// Write a header, and an answer that no disk gives.
    fn write(&self, header: u64, answer: u64, kind: Kind, offset: u64, bytes: u32);
    /// Judge an answer: zero or an errno.
    fn judge(&self, answer: u64) -> Result<i32, Failure>;
    /// Bring the disk to where it takes requests.
    fn ready(_port: &mut Chains<Self>, _clock: Clock) -> Result<(), Failure>
    where
        Self: Sized,
    {
        Ok(())
    }
}

struct Request {
    header: u64,
    data: u64,
    bytes: u32,
    kind: Kind,
}

impl Request {
    fn answer(&self) -> u64 {
        self.header + ANSWER_AT
    }
}

/// A queue of a virtio disk.
pub struct Chains<W> {
    ring: Ring,
    words: W,
    indirect: bool,
    requests: Vec<Request>,
}

impl<W: Words> Chains<W> {
    /// Make a queue of a device.
    pub fn new(device: Device, number: u16, vector: Option<u16>, words: W) -> Result<Chains<W>, Failure> {
        let ring = device.ring(number, vector)?;
        Ok(Chains { ring, words, indirect: device.has(INDIRECT), requests: Vec::new() })
    }

    /// Descriptors of a request in the ring itself: its first one's number is its tag.
    fn each(&self) -> u32 {
        if self.indirect { 1 } else { 3 }
    }

    /// Where a request has its header and its answer.
    pub fn places(&self, tag: u32) -> (u64, u64) {
        let request = &self.requests[(tag / self.each()) as usize];
        (request.header, request.answer())
    }

    /// Hand over a request whose header is written.
    pub fn hand_over(&mut self, tag: u32, kind: Kind) {
        let each = self.each();
        let request = &mut self.requests[(tag / each) as usize];
        request.kind = kind;
        let header = Piece { address: request.header, bytes: W::HEADER, write: false };
        let answer = Piece { address: request.answer(), bytes: W::ANSWER, write: true };
        let data = Piece { address: request.data, bytes: request.bytes, write: kind == Kind::Read };
        let whole = match kind {
            Kind::Flush => [header, answer, answer],
            Kind::Read if W::ANSWER_FIRST => [header, answer, data],
            Kind::Read | Kind::Write => [header, data, answer],
        };
        let pieces = if kind == Kind::Flush { &whole[..2] } else { &whole[..] };
        if self.indirect {
            self.ring.indirect(tag as u16, request.header + TABLE_AT, pieces);
        } else {
            self.ring.chain(tag as u16, pieces);
        }
        self.ring.send(tag as u16);
    }
}

impl<W: Words> Port for Chains<W> {
    fn number(&self) -> u16 {
        self.ring.number
    }

    fn room(&mut self, bytes: u32) -> Result<(u32, u64), Failure> {
        let tag = self.requests.len() as u32 * self.each();
        if tag + self.each() > u32::from(self.ring.size) {
            return Err(Failure::usage(format!(
                "a queue of the disk has {} descriptors, too few for what is to be in flight on it",
                self.ring.size
            )));
        }
        let (data, header) = (memory(bytes as usize, 4096)?, memory(BYTES, 64)?);
        self.requests.push(Request { header, data, bytes, kind: Kind::Read });
        Ok((tag, data))
    }

    fn send(&mut self, tag: u32, kind: Kind, offset: u64) {
        let request = &self.requests[(tag / self.each()) as usize];
        self.words.write(request.header, request.answer(), kind, offset, request.bytes);
        self.hand_over(tag, kind);
    }

    fn kick(&mut self) {
        self.ring.kick();
    }

    fn take(&mut self) -> Option<(u32, u32)> {
        self.ring.take()
    }

    fn judge(&self, tag: u32, said: u32) -> Result<i32, Failure> {
        let request = &self.requests[(tag / self.each()) as usize];
        let result = self.words.judge(request.answer())?;
        let expected = W::ANSWER + if request.kind == Kind::Read { request.bytes } else { 0 };
        if result == 0 && said < expected {
            return Err(Failure::run(format!("the disk wrote {said} bytes for a request that needs {expected}")));
        }
        Ok(result)
    }

    fn listen(&mut self, on: bool) -> bool {
        self.ring.listen(on)
    }

    fn kicks(&self) -> u64 {
        self.ring.kicks
    }

    fn ready(&mut self, clock: Clock) -> Result<(), Failure> {
        W::ready(self, clock)
    }
}
