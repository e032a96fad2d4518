// SPDX-License-Identifier: Apache-2.0
//! Words: every option a job may set, each declared once; `--help` and the parser read the same rows.

use crate::prelude::*;

/// One option we know: fio's name for it, another name fio has for it, whether it may stand alone, and its meaning.
pub struct Word {
    /// fio's name.
    pub name: &'static str,
    /// fio's other name, or an empty string.
    pub alias: &'static str,
    /// Whether the word alone means `=1`.
    pub flag: bool,
    /// What it does, for `--help`.
    pub meaning: &'static str,
}

const fn word(name: &'static str, alias: &'static str, meaning: &'static str) -> Word {
    Word { name, alias, flag: false, meaning }
}

const fn flag(name: &'static str, meaning: &'static str) -> Word {
    Word { name, alias: "", flag: true, meaning }
}

/// Every option a job may set. `--help` and the parser read the same rows.
pub const WORDS: &[Word] = &[
    word("name", "", "name of the job in the result [load]"),
    word("description", "", "a text that the result repeats among the job's options"),
    word("ioengine", "", "virtio-blk-vhost-user | io_uring | libblkio (with libblkio_driver)"),
    word("filename", "", "the vhost-user socket, or the file or block device"),
    word("libblkio_driver", "", "with ioengine=libblkio: virtio-blk-vhost-user | io_uring, as fio's engine names them"),
    word("libblkio_path", "", "with ioengine=libblkio: the same as filename"),
    flag("direct", "1: O_DIRECT (io_uring only; a vhost-user daemon decides itself) [1]"),
    flag("hipri", "1: poll for completions instead of waiting for events [0]"),
    word("rw", "readwrite", "read | write | rw | randread | randwrite | randrw [read]"),
    word("rwmixread", "", "percentage of reads in a mix [50]"),
    word("rwmixwrite", "", "percentage of writes in a mix [50]"),
    word("bs", "blocksize", "bytes of one request [4k]"),
    word("iodepth", "", "requests in flight on each queue [1]"),
    word("iodepth_batch", "iodepth_batch_submit", "requests handed to the device at once, at most [1]"),
    word("iodepth_batch_complete_max", "", "ended requests looked at together, at most [1]"),
    word("numjobs", "", "queues, each driven by a thread of its own [1]"),
    word("offset", "", "where the span starts [0]"),
    word("offset_increment", "", "added to the offset for each further clone [0]"),
    word("size", "", "bytes of the span, and of the whole load unless time_based [to the end]"),
    word("number_ios", "", "reads and writes after which each clone stops"),
    word("runtime", "", "how long, at most"),
    flag("time_based", "1: run for all of runtime, over and over the span [0]"),
    word("ramp_time", "", "time before runtime that is not counted [0]"),
    word("rate_iops", "", "offered reads and writes a second for each clone; READ,WRITE for two rates (open loop)"),
    word("rate_process", "", "linear | poisson: how the offered starts are spread [linear]"),
    word("random_distribution", "", "random | zipf:THETA: where random requests go [random]"),
    flag("norandommap", "1: random places may repeat; always so here"),
    word("randseed", "", "seed of everything random"),
    flag("randrepeat", "1: the same seed each time unless randseed is given; 0: a new one [1]"),
    word("fsync", "", "flush after every N writes [0: never]"),
    word("fdatasync", "", "the same: a disk has one kind of flush [0]"),
    flag("end_fsync", "1: flush when the last write is done [0]"),
    word("sync", "", "1: each write is on the medium before it counts as done: FUA or a flush after it [0]"),
    flag("refill_buffers", "1: new random contents for each write [0]"),
    flag("zero_buffers", "1: write zeros [0]"),
    word("verify", "", "pattern: writes hold verify_pattern, and reads must find it"),
    word("verify_pattern", "", "\"MARK\"%o: eight letters or digits and the offset, again and again"),
    flag("group_reporting", "1: one result for all clones and jobs of a group together [0]"),
    flag("new_group", "1: a new group begins with this job [0]"),
    flag("clat_percentiles", "1: percentiles and bins of clat [1, unless those of lat are asked for]"),
    flag("lat_percentiles", "1: percentiles and bins of lat [0; 1 with rate_iops]"),
    word("percentile_list", "", "which percentiles are printed, as in 50:99:99.9"),
    flag("thread", "1: clones are threads; always so here"),
    flag("allow_file_create", "0: no file is created; always so here"),
    flag("invalidate", "1: begin with an empty page cache; O_DIRECT and daemons have none of ours"),
    word("write_iops_log", "", "PREFIX of a log of I/Os a second, in fio's form"),
    word("write_bw_log", "", "PREFIX of a log of KiB/s, in fio's form"),
    word("write_lat_log", "", "PREFIX of a log of mean latencies (clat and lat), in fio's form"),
    word(
        "log_avg_msec",
        "",
        "length of one line of the logs; 0: the latency log has each request, of number_ios [1000]",
    ),
    flag("log_offset", "1: a line of one request has its offset; always so here"),
];

/// Find an option by any of its names.
pub fn find(name: &str) -> Option<&'static Word> {
    WORDS.iter().find(|word| word.name == name || (!word.alias.is_empty() && word.alias == name))
}

/// Say that there is no such option, and which one may have been meant.
pub fn unknown(key: &str) -> String {
    let near = WORDS
        .iter()
        .flat_map(|word| [word.name, word.alias])
        .filter(|name| !name.is_empty())
        .min_by_key(|name| distance(key, name))
        .filter(|name| distance(key, name) <= 2.max(key.len() / 4));
    match near {
        Some(name) => format!("no such option here; did you mean `{name}`?"),
        None => "no such option here (see --help)".to_owned(),
    }
}

/// How many letters have to change to make one word of the other (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(64).enumerate() {
        let mut corner = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_helped_and_a_stranger_is_not() {
        assert_eq!(unknown("iodepht"), "no such option here; did you mean `iodepth`?");
        assert_eq!(unknown("zonemode"), "no such option here (see --help)");
    }

    #[test]
    fn no_two_rows_share_a_name() {
        let mut names: Vec<&str> =
            WORDS.iter().flat_map(|word| [word.name, word.alias]).filter(|n| !n.is_empty()).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
