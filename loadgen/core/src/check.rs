// SPDX-License-Identifier: Apache-2.0
//! The check: whether a block holds what the journal allows.

use crate::prelude::*;
use crate::record::Record;
use crate::stamp::{self, Sector};
use serde::Serialize;

/// How many bad blocks are described; all are counted.
pub const FINDINGS_MAX: usize = 20;

/// What a block holds, against what it may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The last acknowledged write, or one that was in flight.
    Good,
    /// An older write than acknowledged, but not older than flushed: allowed.
    UnflushedLost(u32),
    /// Sectors of several writes, all of them not older than flushed: allowed.
    UnflushedTorn,
    /// An older write than flushed: the flush was a lie.
    LostFlushed(u32),
    /// Sectors of which some are older than flushed, or broken inside.
    Torn,
    /// A block that was written for another place.
    Misplaced(u64),
    /// A generation that was never sent.
    Unknown(u32),
}

/// A bad block, for the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Where the block is.
    pub offset: u64,
    /// `lost_flushed`, `torn` or `misplaced`.
    pub what: &'static str,
    /// The last flushed generation.
    pub flushed: u32,
    /// The last acknowledged generation.
    pub acknowledged: u32,
    /// The last sent generation.
    pub sent: u32,
    /// What was found instead.
    pub found: String,
}

impl Verdict {
    /// Describe a bad block; None for an allowed one.
    pub fn finding(self, offset: u64, record: Record) -> Option<Finding> {
        let (what, found) = match self {
            Verdict::Good | Verdict::UnflushedLost(_) | Verdict::UnflushedTorn => return None,
            Verdict::LostFlushed(0) => ("lost_flushed", "contents from before the journal".to_owned()),
            Verdict::LostFlushed(generation) => ("lost_flushed", format!("generation {generation}")),
            Verdict::Torn => ("torn", "sectors of different writes, or a broken one".to_owned()),
            Verdict::Misplaced(place) => ("misplaced", format!("data that was written for offset {place}")),
            Verdict::Unknown(generation) => ("misplaced", format!("generation {generation}, which was never sent")),
        };
        Some(Finding {
            offset,
            what,
            flushed: record.flushed,
            acknowledged: record.acknowledged,
            sent: record.sent,
            found,
        })
    }
}

/// Judge a block that was read from `offset` by its record.
pub fn judge(buffer: &[u8], id: u64, offset: u64, record: Record) -> Verdict {
    let (mut oldest, mut newest) = (u32::MAX, 0);
    for sector in stamp::read(buffer, id, offset) {
        let generation = match sector {
            Sector::Broken => return Verdict::Torn,
            Sector::Elsewhere(place) => return Verdict::Misplaced(place),
            // what was there before the journal counts as generation zero
            Sector::Foreign => 0,
            Sector::Here(generation) => generation,
        };
        oldest = oldest.min(generation);
        newest = newest.max(generation);
    }
    let whole = oldest == newest;
    if newest > record.sent {
        Verdict::Unknown(newest)
    } else if oldest < record.flushed && whole {
        Verdict::LostFlushed(oldest)
    } else if oldest < record.flushed {
        Verdict::Torn
    } else if !whole {
        Verdict::UnflushedTorn
    } else if oldest < record.acknowledged {
        Verdict::UnflushedLost(oldest)
    } else {
        Verdict::Good
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: u64 = 42;
    const RECORD: Record = Record { sent: 7, acknowledged: 6, flushed: 4 };

    fn block(generations: &[u32]) -> Vec<u8> {
        let mut buffer = vec![0; generations.len() * stamp::SECTOR];
        for (index, &generation) in generations.iter().enumerate() {
            let sector = &mut buffer[index * stamp::SECTOR..(index + 1) * stamp::SECTOR];
            if generation > 0 {
                stamp::write(sector, ID, (index * stamp::SECTOR) as u64, generation);
            }
        }
        buffer
    }

    #[test]
    fn every_case_has_its_verdict() {
        for (generations, verdict) in [
            ([7, 7], Verdict::Good),
            ([6, 6], Verdict::Good),
            ([5, 5], Verdict::UnflushedLost(5)),
            ([4, 4], Verdict::UnflushedLost(4)),
            ([4, 7], Verdict::UnflushedTorn),
            ([3, 3], Verdict::LostFlushed(3)),
            ([0, 0], Verdict::LostFlushed(0)),
            ([3, 6], Verdict::Torn),
            ([0, 6], Verdict::Torn),
            ([8, 8], Verdict::Unknown(8)),
        ] {
            assert_eq!(judge(&block(&generations), ID, 0, RECORD), verdict, "{generations:?}");
        }
    }

    #[test]
    fn a_block_of_another_place_is_misplaced_even_where_nothing_was_written() {
        let buffer = block(&[5, 5]);
        assert_eq!(judge(&buffer, ID, 8192, Record::default()), Verdict::Misplaced(0));
        assert_eq!(judge(&buffer, ID ^ 1, 8192, Record::default()), Verdict::Good);
    }

    #[test]
    fn a_broken_sector_is_torn_even_when_nothing_was_flushed() {
        let mut buffer = block(&[5, 5]);
        buffer[300] ^= 1;
        assert_eq!(judge(&buffer, ID, 0, Record { flushed: 0, ..RECORD }), Verdict::Torn);
    }
}
