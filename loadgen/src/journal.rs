// SPDX-License-Identifier: Apache-2.0
//! The journal: for every block the last generation that was sent, acknowledged and flushed.
//!
//! A record is written before a write is sent, when it is acknowledged and when a flush that started after that has
//! completed. Each update is a `pwrite` of its own, so the journal is right whenever the daemon or we ourselves are
//! killed (it is not meant to survive the host).
//!
//! What may be on the disk follows from a record alone: any generation from `flushed` to `sent`. Below is a flushed
//! write that was lost; above is one that was never made.

use crate::chance::mix;
use crate::failure::Failure;
use crate::plan::Span;
pub use crate::record::Record;
use crate::run;
use crate::system;
use std::collections::hash_map::RandomState;
use std::fs::{File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, Hasher};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: u64 = u64::from_le_bytes(*b"VTLJRNL1");
const HEADER: u64 = 4096;
const RECORD: u64 = crate::record::RECORD as u64;
/// 16 GiB of records: more blocks than a check by reading could visit.
const BLOCKS_MAX: u64 = 1 << 30;

/// An open journal. Locked, so that two runs cannot write it at a time.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: Arc<File>,
    id: u64,
    span: Span,
    records: Vec<Record>,
}

impl Journal {
    /// Open the journal of a span, or start a new one where there is none.
    pub fn open_or_create(path: &Path, span: Span) -> Result<Journal, Failure> {
        if span.blocks > BLOCKS_MAX {
            return Err(Failure::usage(format!(
                "{} blocks are too many for a journal: set size or a larger bs",
                span.blocks
            )));
        }
        if !path.exists() {
            create(path, span)?;
        }
        let journal = Journal::open(path)?;
        if journal.span != span {
            let had = journal.span;
            return Err(Failure::usage(format!(
                "the journal {} is of bs={} offset={} size={}, the load has bs={} offset={} size={}",
                path.display(),
                had.block,
                had.offset,
                had.block * had.blocks,
                span.block,
                span.offset,
                span.block * span.blocks
            )));
        }
        Ok(journal)
    }

    /// Open a journal that exists.
    pub fn open(path: &Path) -> Result<Journal, Failure> {
        let cannot =
            |error: std::io::Error| Failure::usage(format!("cannot use the journal {}: {error}", path.display()));
        let damaged = |what: &str| Failure::usage(format!("{} is no journal of ours: {what}", path.display()));
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(cannot)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::usage(format!("the journal {} is in use by another run", path.display())));
            }
            Err(TryLockError::Error(error)) => return Err(cannot(error)),
        }
        let mut header = [0; 48];
        file.read_exact_at(&mut header, 0).map_err(|_| damaged("it is too short"))?;
        let word = |index: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&header[index * 8..index * 8 + 8]);
            u64::from_le_bytes(bytes)
        };
        let span = Span { block: word(2), offset: word(3), blocks: word(4) };
        if word(0) != MAGIC || word(5) != header_check(word(1), span) {
            return Err(damaged("its header is wrong"));
        }
        let length = file.metadata().map_err(cannot)?.len();
        if span.blocks > BLOCKS_MAX || length != HEADER + span.blocks * RECORD {
            return Err(damaged("its length is wrong"));
        }
        let mut bytes = vec![0; (span.blocks * RECORD) as usize];
        file.read_exact_at(&mut bytes, HEADER).map_err(cannot)?;
        let records = bytes
            .chunks_exact(RECORD as usize)
            .map(Record::from_bytes)
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| damaged("a record is wrong"))?;
        Ok(Journal { path: path.to_owned(), file: Arc::new(file), id: word(1), span, records })
    }

    /// Where the journal is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The number that ties stamps on the disk to this journal.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The part of the disk it is about.
    pub fn span(&self) -> Span {
        self.span
    }

    /// The record of every block, in order.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Hand out the share of a thread that owns every `stride`th block from `first` on.
    pub fn share(&self, first: u64, stride: u64) -> Share {
        let records: Vec<Record> = self.records.iter().skip(first as usize).step_by(stride as usize).copied().collect();
        Share {
            file: Arc::clone(&self.file),
            id: self.id,
            first,
            stride,
            blocks: records.into_iter().map(Block::new).collect(),
            unflushed: Vec::new(),
        }
    }
}

fn create(path: &Path, span: Span) -> Result<(), Failure> {
    let cannot =
        |error: std::io::Error| Failure::usage(format!("cannot create the journal {}: {error}", path.display()));
    let id = RandomState::new().build_hasher().finish();
    let mut header = Vec::new();
    for word in [MAGIC, id, span.block, span.offset, span.blocks, header_check(id, span)] {
        header.extend_from_slice(&word.to_le_bytes());
    }
    let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(cannot)?;
    file.write_all_at(&header, 0).map_err(cannot)?;
    file.set_len(HEADER + span.blocks * RECORD).map_err(cannot)
}

fn header_check(id: u64, span: Span) -> u64 {
    mix(id ^ mix(span.block ^ mix(span.offset ^ mix(span.blocks))))
}

/// The blocks of one thread.
#[derive(Debug)]
pub struct Share {
    file: Arc<File>,
    id: u64,
    first: u64,
    stride: u64,
    blocks: Vec<Block>,
    unflushed: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    record: Record,
    /// Whether a write of this run was acknowledged: only then do we know what is there, and only then may a flush
    /// of this run vouch for it. What an earlier daemon acknowledged may have died with it.
    known: bool,
    busy: bool,
    listed: bool,
}

impl Block {
    fn new(record: Record) -> Self {
        Block { record, known: false, busy: false, listed: false }
    }
}

impl run::Share for Share {
    fn id(&self) -> u64 {
        self.id
    }

    fn busy(&self, block: u64) -> bool {
        self.blocks[self.own(block)].busy
    }

    fn send(&mut self, block: u64) -> Result<u32, Failure> {
        let own = self.own(block);
        let entry = &mut self.blocks[own];
        entry.record.sent = entry
            .record
            .sent
            .checked_add(1)
            .ok_or_else(|| Failure::run("a block was written 2^32 times; start a new journal"))?;
        entry.busy = true;
        let record = entry.record;
        self.save(block, record)?;
        Ok(record.sent)
    }

    fn look(&mut self, block: u64) -> Record {
        let own = self.own(block);
        let entry = &mut self.blocks[own];
        entry.busy = true;
        let mut record = entry.record;
        if entry.known {
            // this daemon acknowledged it and has not died since: nothing older will do
            record.flushed = record.acknowledged;
        }
        record
    }

    fn looked(&mut self, block: u64) {
        let own = self.own(block);
        self.blocks[own].busy = false;
    }

    fn acknowledge(&mut self, block: u64, generation: u32, durable: bool) -> Result<(), Failure> {
        let own = self.own(block);
        let entry = &mut self.blocks[own];
        entry.record.acknowledged = generation;
        entry.known = true;
        entry.busy = false;
        if durable {
            entry.record.flushed = generation;
        } else if !entry.listed {
            entry.listed = true;
            self.unflushed.push(block);
        }
        let record = self.blocks[own].record;
        self.save(block, record)
    }

    fn flush_starts(&mut self) -> Vec<(u64, u32)> {
        let blocks = std::mem::take(&mut self.unflushed);
        blocks
            .into_iter()
            .map(|block| {
                let own = self.own(block);
                self.blocks[own].listed = false;
                (block, self.blocks[own].record.acknowledged)
            })
            .collect()
    }

    fn flush_ends(&mut self, vouched: &[(u64, u32)]) -> Result<(), Failure> {
        for &(block, generation) in vouched {
            let own = self.own(block);
            let record = &mut self.blocks[own].record;
            if record.flushed < generation {
                record.flushed = generation;
                let record = *record;
                self.save(block, record)?;
            }
        }
        Ok(())
    }
}

impl Share {
    fn own(&self, block: u64) -> usize {
        ((block - self.first) / self.stride) as usize
    }

    fn save(&self, block: u64, record: Record) -> Result<(), Failure> {
        self.file
            .write_all_at(&record.bytes(), HEADER + block * RECORD)
            .map_err(|error| system::failure("cannot write the journal", &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Share as _;
    use proptest::prelude::*;

    const SPAN: Span = Span { block: 4096, offset: 0, blocks: 8 };

    fn fresh() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        (folder, path)
    }

    #[test]
    fn generations_go_on_in_the_next_run() {
        let (_folder, path) = fresh();
        {
            let journal = Journal::open_or_create(&path, SPAN).unwrap();
            let mut share = journal.share(1, 2);
            assert_eq!(share.send(3).unwrap(), 1);
            share.acknowledge(3, 1, false).unwrap();
            let vouched = share.flush_starts();
            assert_eq!(share.send(3).unwrap(), 2);
            share.acknowledge(3, 2, false).unwrap();
            share.flush_ends(&vouched).unwrap();
            share.send(5).unwrap();
        }
        let journal = Journal::open_or_create(&path, SPAN).unwrap();
        let expect = Record { sent: 2, acknowledged: 2, flushed: 1 };
        assert_eq!(journal.records()[3], expect);
        assert_eq!(journal.records()[5].sent, 1);
        let mut share = journal.share(0, 1);
        assert_eq!(share.send(3).unwrap(), 3);
        assert!(share.busy(3) && !share.busy(4));
    }

    #[test]
    fn a_durable_write_is_flushed_when_it_is_acknowledged() {
        let (_folder, path) = fresh();
        {
            let journal = Journal::open_or_create(&path, SPAN).unwrap();
            let mut share = journal.share(0, 1);
            for generation in 1..=2 {
                assert_eq!(share.send(4).unwrap(), generation);
                share.acknowledge(4, generation, true).unwrap();
            }
            assert_eq!(share.flush_starts(), [], "a flush has nothing left to vouch for");
        }
        let journal = Journal::open_or_create(&path, SPAN).unwrap();
        assert_eq!(journal.records()[4], Record { sent: 2, acknowledged: 2, flushed: 2 });
        assert_eq!(journal.share(0, 1).look(4).flushed, 2, "the first generation would be a lost write");
    }

    #[test]
    fn a_flush_does_not_vouch_for_what_an_earlier_daemon_acknowledged() {
        let (_folder, path) = fresh();
        {
            let journal = Journal::open_or_create(&path, SPAN).unwrap();
            let mut share = journal.share(0, 1);
            share.send(0).unwrap();
            share.acknowledge(0, 1, false).unwrap();
        }
        let journal = Journal::open_or_create(&path, SPAN).unwrap();
        let mut share = journal.share(0, 1);
        assert_eq!(share.flush_starts(), []);
        assert_eq!(share.look(0).flushed, 0, "either generation may be there");
    }

    #[test]
    fn another_span_another_run_and_another_file_are_refused() {
        let (_folder, path) = fresh();
        let open = Journal::open_or_create(&path, SPAN).unwrap();
        assert!(Journal::open(&path).unwrap_err().to_string().ends_with("is in use by another run"));
        drop(open);
        let other = Span { blocks: 9, ..SPAN };
        let told = Journal::open_or_create(&path, other).unwrap_err().to_string();
        assert!(
            told.ends_with("is of bs=4096 offset=0 size=32768, the load has bs=4096 offset=0 size=36864"),
            "{told}"
        );
        std::fs::write(&path, b"not a journal").unwrap();
        assert!(Journal::open(&path).unwrap_err().to_string().contains("is no journal of ours"));
    }

    #[test]
    fn a_damaged_record_is_noticed() {
        let (_folder, path) = fresh();
        drop(Journal::open_or_create(&path, SPAN).unwrap());
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[1], HEADER + 2 * RECORD).unwrap();
        assert!(Journal::open(&path).unwrap_err().to_string().ends_with("a record is wrong"));
    }

    proptest! {
        #[test]
        fn records_survive_their_bytes(flushed in 0u32..1000, more in 0u32..1000, most in 0u32..1000) {
            let record = Record { flushed, acknowledged: flushed + more, sent: flushed + more + most };
            prop_assert_eq!(Record::from_bytes(&record.bytes()), Some(record));
        }

        #[test]
        fn no_file_makes_opening_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let (_folder, path) = fresh();
            std::fs::write(&path, bytes).unwrap();
            prop_assert!(Journal::open(&path).is_err());
        }
    }
}
