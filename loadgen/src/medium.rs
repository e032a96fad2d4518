// SPDX-License-Identifier: Apache-2.0
//! The medium: what the kernel counted on the block device that a file lies on, so that a reader can see who answered.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use virtune_load_core::report::Use;

/// A block device, and where the kernel counts its requests.
pub struct Medium {
    name: String,
    stat: PathBuf,
}

/// The kernel's counters of a device: requests, merges, sectors and milliseconds of reads, then of writes; those in
/// flight; milliseconds that it was busy; milliseconds of all requests added up.
type Counters = [u64; 11];

impl Medium {
    /// The device of a file, or the device itself; None where the kernel counts none (a file in memory, a pool).
    pub fn of(path: &Path) -> Option<Medium> {
        let about = fs::metadata(path).ok()?;
        let device = if about.file_type().is_block_device() { about.rdev() } else { about.dev() };
        let place = format!("/sys/dev/block/{}:{}", nix::libc::major(device), nix::libc::minor(device));
        let name = fs::read_link(&place).ok()?.file_name()?.to_string_lossy().into_owned();
        Some(Medium { name, stat: Path::new(&place).join("stat") })
    }

    fn read(&self) -> Option<Counters> {
        counters(&fs::read_to_string(&self.stat).ok()?)
    }
}

fn counters(text: &str) -> Option<Counters> {
    let numbers: Vec<u64> = text.split_whitespace().map_while(|word| word.parse().ok()).collect();
    numbers.get(..11)?.try_into().ok()
}

/// A medium that is looked at when the load begins to count, and when it has ended.
pub(crate) struct Meter {
    medium: Option<Medium>,
    from_ns: u64,
    before: Option<(u64, Counters)>,
}

impl Meter {
    pub(crate) fn new(medium: Option<Medium>, from_ns: u64) -> Self {
        Meter { medium, from_ns, before: None }
    }

    /// Nanoseconds until it is to be looked at; None when it was.
    pub(crate) fn due_in(&self, now_ns: u64) -> Option<u64> {
        (self.medium.is_some() && self.before.is_none()).then(|| self.from_ns.saturating_sub(now_ns))
    }

    /// Look at it, if it is time.
    pub(crate) fn look(&mut self, now_ns: u64) {
        if self.due_in(now_ns) == Some(0) {
            self.before = self.medium.as_ref().and_then(Medium::read).map(|counters| (now_ns, counters));
            if self.before.is_none() {
                self.medium = None; // nothing to look at, and nothing to wait for
            }
        }
    }

    /// What was counted since; None when the load ended before it counted.
    pub(crate) fn used(&self, now_ns: u64) -> Option<Use> {
        let (medium, (since_ns, before)) = (self.medium.as_ref()?, self.before?);
        Some(between(&medium.name, &before, &medium.read()?, (now_ns - since_ns) as f64 / 1e6))
    }
}

fn between(name: &str, before: &Counters, after: &Counters, milliseconds: f64) -> Use {
    let more = |at: usize| after[at].saturating_sub(before[at]);
    Use {
        name: name.to_owned(),
        read_ios: more(0),
        read_merges: more(1),
        read_sectors: more(2),
        read_ticks: more(3),
        write_ios: more(4),
        write_merges: more(5),
        write_sectors: more(6),
        write_ticks: more(7),
        in_queue: more(10),
        util: (100.0 * more(9) as f64 / milliseconds.max(1.0)).min(100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "100 1 800 50 10 2 80 7 3 40 57 0 0 0 0 1 1\n";
    const AFTER: &str = "350 4 2800 300 20 2 160 17 9 290 317 0 0 0 0 1 1\n";

    #[test]
    fn what_was_counted_is_the_difference() {
        let used = between("vda", &counters(BEFORE).unwrap(), &counters(AFTER).unwrap(), 500.0);
        assert_eq!((used.read_ios, used.read_merges, used.read_sectors, used.read_ticks), (250, 3, 2000, 250));
        assert_eq!((used.write_ios, used.write_merges, used.write_sectors, used.write_ticks), (10, 0, 80, 10));
        assert_eq!((used.in_queue, used.util), (260, 50.0));
        assert_eq!(counters("1 2 3"), None);
    }

    #[test]
    fn it_is_looked_at_when_the_load_begins_to_count() {
        let folder = tempfile::tempdir().unwrap();
        let stat = folder.path().join("stat");
        fs::write(&stat, BEFORE).unwrap();
        let mut meter = Meter::new(Some(Medium { name: "vda".to_owned(), stat: stat.clone() }), 1_000);
        meter.look(400);
        assert_eq!((meter.due_in(400), meter.used(500)), (Some(600), None));
        meter.look(1_000);
        fs::write(&stat, AFTER).unwrap();
        assert_eq!(meter.due_in(1_000), None);
        meter.look(2_000_000);
        assert_eq!(meter.used(500_001_000).unwrap().read_ios, 250);
        assert_eq!(Meter::new(None, 0).due_in(0), None);
        let mut gone = Meter::new(Some(Medium { name: "x".to_owned(), stat: folder.path().join("none") }), 0);
        gone.look(0);
        assert_eq!((gone.due_in(0), gone.used(1)), (None, None));
    }
}
