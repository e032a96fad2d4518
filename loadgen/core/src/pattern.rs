// SPDX-License-Identifier: Apache-2.0
//! A pattern that follows from its place: a mark and the request's own offset, again and again, as fio writes it for
//! `verify=pattern` with `verify_pattern="MARK"%o`. Whoever knows the mark can tell what each block must hold.

/// Bytes of the mark, and of the offset after it.
const WORD: usize = 8;

/// Fill the buffer of a request that is going to `offset`.
pub fn write(buffer: &mut [u8], mark: [u8; WORD], offset: u64) {
    let once = contents(mark, offset);
    for place in buffer.chunks_exact_mut(once.len()) {
        place.copy_from_slice(&once);
    }
}

/// The first byte, counted from the begin of the disk, from which on a request that was read from `offset` holds
/// something else.
pub fn first_other(buffer: &[u8], mark: [u8; WORD], offset: u64) -> Option<u64> {
    let once = contents(mark, offset);
    let at = buffer.chunks_exact(once.len()).position(|place| place != once)?;
    Some(offset + (at * once.len()) as u64)
}

fn contents(mark: [u8; WORD], offset: u64) -> [u8; 2 * WORD] {
    let mut once = [0; 2 * WORD];
    once[..WORD].copy_from_slice(&mark);
    once[WORD..].copy_from_slice(&offset.to_le_bytes());
    once
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_for_this_place_is_known_and_nothing_else() {
        let mut buffer = vec![0; 4096];
        assert_eq!(first_other(&buffer, *b"virtune1", 8192), Some(8192));
        write(&mut buffer, *b"virtune1", 8192);
        assert_eq!(first_other(&buffer, *b"virtune1", 8192), None);
        assert_eq!(first_other(&buffer, *b"virtune2", 8192), Some(8192));
        assert_eq!(first_other(&buffer, *b"virtune1", 4096), Some(4096));
        buffer[1000] ^= 1;
        assert_eq!(first_other(&buffer, *b"virtune1", 8192), Some(8192 + 992));
    }
}
