// SPDX-License-Identifier: Apache-2.0
//! Stamps: what is written into every sector, so that reading it back proves where and when it was written.
//!
//! A sector of 512 bytes, the smallest unit a disk writes as a whole, holds 64 little-endian words: a magic number,
//! the journal's id, the sector's own offset on the disk, the block's generation, 59 words that follow from those, and
//! a checksum over all before it. Each sector proves itself, so a block of which only some sectors arrived is seen.

use crate::chance::mix;

/// Bytes of a sector.
pub const SECTOR: usize = 512;
const WORDS: usize = SECTOR / 8;
const MAGIC: u64 = u64::from_le_bytes(*b"VTSTAMP1");

/// What one sector says when it is read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sector {
    /// Nothing of this journal: what was there before, zeros or another journal's stamp.
    Foreign,
    /// This journal's stamp, written for this place, of this generation.
    Here(u32),
    /// This journal's stamp, whole, but written for another place.
    Elsewhere(u64),
    /// This journal's stamp with wrong contents: half of a sector was written, or bits changed.
    Broken,
}

/// Fill a block that is going to `offset` with the stamps of its generation.
pub fn write(buffer: &mut [u8], id: u64, offset: u64, generation: u32) {
    for (index, sector) in buffer.chunks_exact_mut(SECTOR).enumerate() {
        let words = contents(id, offset + (index * SECTOR) as u64, u64::from(generation));
        for (place, word) in sector.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }
}

/// Read the stamps of a block that came from `offset`, sector by sector.
pub fn read(buffer: &[u8], id: u64, offset: u64) -> impl Iterator<Item = Sector> + '_ {
    buffer
        .chunks_exact(SECTOR)
        .enumerate()
        .map(move |(index, sector)| read_sector(sector, id, offset + (index * SECTOR) as u64))
}

fn read_sector(sector: &[u8], id: u64, offset: u64) -> Sector {
    let word = |index: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&sector[index * 8..index * 8 + 8]);
        u64::from_le_bytes(bytes)
    };
    let (magic, journal, place, generation) = (word(0), word(1), word(2), word(3));
    if magic != MAGIC || journal != id {
        return Sector::Foreign;
    }
    let expected = contents(id, place, generation);
    let same = expected.iter().enumerate().all(|(index, &expect)| word(index) == expect);
    match u32::try_from(generation) {
        Ok(generation) if same && place == offset => Sector::Here(generation),
        Ok(_) if same => Sector::Elsewhere(place),
        _ => Sector::Broken,
    }
}

fn contents(id: u64, offset: u64, generation: u64) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    words[..4].copy_from_slice(&[MAGIC, id, offset, generation]);
    let mut state = mix(id ^ mix(offset ^ mix(generation)));
    let mut sum = state;
    for word in &mut words[4..WORDS - 1] {
        state = state.wrapping_mul(0x2545_F491_4F6C_DD1D).wrapping_add(0x9E37_79B9_7F4A_7C15);
        *word = state ^ (state >> 29);
        sum = (sum ^ *word).wrapping_mul(0x0000_0100_0000_01B3);
    }
    words[WORDS - 1] = mix(sum);
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_written_is_read(id in any::<u64>(), block in 0u64..1 << 30, generation in 1u32.., sectors in 1usize..16) {
            let offset = block * 512;
            let mut buffer = vec![0; sectors * SECTOR];
            write(&mut buffer, id, offset, generation);
            prop_assert!(read(&buffer, id, offset).all(|sector| sector == Sector::Here(generation)));
            prop_assert!(read(&buffer, id ^ 1, offset).all(|sector| sector == Sector::Foreign));
            let moved: Vec<Sector> = read(&buffer, id, offset + 512).collect();
            let expect: Vec<Sector> = (0..sectors as u64).map(|i| Sector::Elsewhere(offset + i * 512)).collect();
            prop_assert_eq!(moved, expect);
        }

        #[test]
        fn one_changed_bit_is_seen(generation in 1u32.., bit in 128usize..SECTOR * 8) {
            let mut buffer = vec![0; SECTOR];
            write(&mut buffer, 7, 4096, generation);
            buffer[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(read(&buffer, 7, 4096).next(), Some(Sector::Broken));
        }

        #[test]
        fn a_torn_sector_is_seen(old in 1u32..1000, cut in 32usize..SECTOR - 8) {
            let (mut before, mut after) = (vec![0; SECTOR], vec![0; SECTOR]);
            write(&mut before, 7, 0, old);
            write(&mut after, 7, 0, old + 1);
            after[cut..].copy_from_slice(&before[cut..]);
            prop_assert_eq!(read(&after, 7, 0).next(), Some(Sector::Broken));
        }
    }

    #[test]
    fn an_untouched_disk_is_foreign() {
        assert_eq!(read(&[0; SECTOR], 7, 0).next(), Some(Sector::Foreign));
    }
}
