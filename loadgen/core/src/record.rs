// SPDX-License-Identifier: Apache-2.0
//! A record of a journal: how far a block has come.

use crate::chance::mix;

/// Bytes of a record.
pub const RECORD: usize = 16;

/// The last generation of a block that was sent, acknowledged and flushed; zero is never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The last that was sent.
    pub sent: u32,
    /// The last that was acknowledged.
    pub acknowledged: u32,
    /// The last that was acknowledged before a flush that completed.
    pub flushed: u32,
}

impl Record {
    /// As a journal keeps it.
    pub fn bytes(self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        bytes[0..4].copy_from_slice(&self.sent.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.acknowledged.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.flushed.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.check().to_le_bytes());
        bytes
    }

    /// Read what a journal kept; None where it is damaged.
    pub fn from_bytes(bytes: &[u8]) -> Option<Record> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let record = Record { sent: word(0), acknowledged: word(4), flushed: word(8) };
        let ordered = record.flushed <= record.acknowledged && record.acknowledged <= record.sent;
        (ordered && word(12) == record.check()).then_some(record)
    }

    /// Zero for the empty record, so that a new journal can be a hole in a file.
    fn check(self) -> u32 {
        if self == Record::default() {
            return 0;
        }
        mix(u64::from(self.sent) ^ mix(u64::from(self.acknowledged) ^ mix(u64::from(self.flushed)))) as u32
    }
}
