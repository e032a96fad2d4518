// SPDX-License-Identifier: Apache-2.0
//! Behaviour: early ends, dying servers, and requests that do not fit, each told in one sentence.

mod common;

use common::{Daemon, NULL, disk, folder, generator, has, load, result, run, told};
use std::process::{Child, Output};
use std::time::{Duration, Instant};

const QSD: &str = "qemu-storage-daemon";

fn spawn(words: &[String], more: &str) -> Child {
    generator().args(words).args(more.split_whitespace()).spawn().unwrap()
}

fn end_with(child: Child, signal: &str) -> Output {
    let status = std::process::Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
    child.wait_with_output().unwrap()
}

#[test]
fn a_signal_ends_the_run_with_a_complete_result() {
    if !has(QSD) {
        return;
    }
    let daemon = Daemon::start(&NULL, 1);
    for (signal, name) in [("-INT", "SIGINT"), ("-TERM", "SIGTERM")] {
        let start = Instant::now();
        let child = spawn(&daemon.words(), "rw=randread iodepth=8 runtime=60 time_based");
        std::thread::sleep(Duration::from_millis(700));
        let output = end_with(child, signal);
        assert!(start.elapsed() < Duration::from_secs(10));
        assert!(output.status.success());
        let result = result(&output);
        assert_eq!(result["virtune-load"]["ended_by"], name);
        assert!(result["jobs"][0]["read"]["total_ios"].as_u64().unwrap() > 100);
        assert_eq!(result["jobs"][0]["error"], 0);
    }
}

#[test]
fn a_server_that_dies_ends_the_run_with_what_was_measured_and_what_was_in_flight() {
    if !has(QSD) {
        return;
    }
    let slow = "driver=null-co,node-name=top,size=1073741824,read-zeroes=off,latency-ns=1000000";
    let mut daemon = Daemon::start(&["--blockdev", slow], 1);
    let child = spawn(&daemon.words(), "--allow-write rw=randwrite iodepth=8 runtime=60 time_based");
    std::thread::sleep(Duration::from_millis(700));
    daemon.kill();
    let start = Instant::now();
    let output = child.wait_with_output().unwrap();
    assert!(start.elapsed() < Duration::from_secs(5));
    assert_eq!(output.status.code(), Some(1));
    let sentence = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(sentence, "error: the server closed the connection before the load was done\n");
    let result = result(&output);
    assert!(result["jobs"][0]["write"]["total_ios"].as_u64().unwrap() > 100);
    assert_eq!(result["jobs"][0]["error"], 5);
    let in_flight = result["virtune-load"]["in_flight"].as_array().unwrap();
    assert!((1..=8).contains(&in_flight.len()), "{in_flight:?}");
    assert!(in_flight.iter().all(|pending| pending["kind"] == "write" && pending["bytes"] == 4096));
}

#[test]
fn a_read_error_is_told_with_its_place() {
    if !has(QSD) {
        return;
    }
    let below = "driver=null-co,node-name=below,size=1073741824,read-zeroes=off";
    let faulty = "driver=blkdebug,node-name=top,image=below,inject-error.0.event=none,inject-error.0.iotype=read,inject-error.0.errno=5,inject-error.0.sector=64";
    let daemon = Daemon::start(&["--blockdev", below, "--blockdev", faulty], 1);
    let output = run(&daemon.words(), "rw=read iodepth=4 size=1m");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "error: a read of 4096 bytes at 32768 failed: Input/output error\n"
    );
    let result = result(&output);
    assert_eq!(result["jobs"][0]["error"], 5);
    assert_eq!(result["virtune-load"]["in_flight"].as_array().unwrap().len(), 0, "the others ended");
}

#[test]
fn requests_that_do_not_fit_the_disk_are_refused() {
    if !has(QSD) {
        return;
    }
    let daemon = Daemon::start(&NULL, 1);
    for (words, sentence) in [
        (
            "numjobs=2 iodepth=8192 bs=512",
            "the disk offers 1 queue, so 16384 requests would be in flight on one; 10922 fit",
        ),
        ("size=2g", "offset 0 and size 2147483648 reach beyond the end of the disk at 1073741824"),
        ("offset=1g", "there is no room for a block of 4096 bytes at offset 1073741824 of 1073741824"),
        ("offset=100", "offset 100 is not a multiple of the disk's block of 512 bytes"),
        ("bs=64m iodepth=1000", "iodepth x bs x numjobs needs 64000 MiB of buffers; 8192 are allowed"),
        ("--output=/nowhere/o.json", "cannot write the result to /nowhere/o.json: No such file or directory"),
        ("write_iops_log=/nowhere/l", "cannot write the log /nowhere/l_iops.1.log: No such file or directory"),
    ] {
        assert_eq!(told(2, &daemon.words(), &format!("rw=randread {words}")), sentence);
    }
    // none of these disturbed it
    load(&daemon.words(), "rw=randread number_ios=5");
}

#[test]
fn a_read_only_export_is_read_and_never_written() {
    if !has(QSD) {
        return;
    }
    let daemon = Daemon::export(&NULL, 1, "writable=off");
    load(&daemon.words(), "rw=randread number_ios=5");
    let sentence = told(2, &daemon.words(), "--allow-write rw=randwrite number_ios=5");
    assert!(sentence.ends_with("is read-only: export it with writable=on"), "{sentence}");
}

#[test]
fn a_server_that_is_busy_or_gone_is_told() {
    if !has(QSD) {
        return;
    }
    let mut daemon = Daemon::start(&NULL, 1);
    let other = spawn(&daemon.words(), "rw=randread rate_iops=10 runtime=60 time_based");
    std::thread::sleep(Duration::from_millis(300));
    let sentence = told(1, &daemon.words(), "rw=randread number_ios=5");
    assert!(sentence.ends_with("does not answer: the server is stuck or serves another client"), "{sentence}");
    end_with(other, "-TERM");
    daemon.kill();
    let sentence = told(1, &daemon.words(), "rw=randread number_ios=5");
    assert!(sentence.ends_with("Connection refused"), "{sentence}");
}

#[test]
fn files_are_looked_at_before_they_are_opened() {
    let folder = folder();
    let disk = disk(folder.path(), 1);
    let words = |path: &str| ["ioengine=io_uring".to_owned(), format!("filename={path}")];
    assert!(told(2, &words("/nowhere/disk"), "rw=read").ends_with("No such file or directory"));
    assert!(told(2, &words("/dev/null"), "rw=read").ends_with("is neither a regular file nor a block device"));
    let before = std::fs::read(&disk).unwrap();
    let sentence = told(2, &words(disk.to_str().unwrap()), "rw=randwrite number_ios=5");
    assert!(sentence.ends_with("say --allow-write if that is what you want"), "{sentence}");
    assert_eq!(std::fs::read(&disk).unwrap(), before);
    assert_eq!(
        told(2, &words(disk.to_str().unwrap()), "rw=read bs=2m"),
        "there is no room for a block of 2097152 bytes at offset 0 of 1048576"
    );
    std::fs::write(&disk, b"").unwrap();
    assert_eq!(
        told(2, &words(disk.to_str().unwrap()), "rw=read"),
        "there is no room for a block of 4096 bytes at offset 0 of 0"
    );
}

#[test]
fn help_and_version_are_printed() {
    let output = run(&["--help"], "");
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("rate_iops"));
    let output = run(&["--version"], "");
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("virtune-load-{}\n", virtune_load::VERSION));
}

#[test]
fn a_clone_without_a_block_in_the_journal_is_refused_before_there_is_a_journal() {
    if !has(QSD) {
        return;
    }
    let (daemon, folder) = (Daemon::start(&NULL, 4), folder());
    let journal = folder.path().join("journal");
    let words = [&daemon.words()[..], &[format!("--journal={}", journal.display())]].concat();
    let sentence = told(2, &words, "--allow-write rw=randwrite bs=4k size=8k numjobs=4");
    assert_eq!(sentence, "with --journal each of numjobs needs a block of its own: raise size or lower numjobs");
    assert!(!journal.exists());
}

#[test]
fn what_clones_on_one_queue_write_is_where_it_belongs() {
    let (_daemon, words) = match journalled(1) {
        Some(found) => found,
        None => return,
    };
    load(
        &words,
        "--allow-write rw=randrw bs=4k iodepth=8 numjobs=4 size=8m fsync=16 number_ios=4000 runtime=60 time_based",
    );
    let report = result(&run(&[&["verify".to_owned()], &words[..]].concat(), "iodepth=16"));
    assert_eq!(report["ok"], true, "{report:#}");
    assert!(report["written"].as_u64().unwrap() > 1500, "{report:#}");
}

#[test]
fn a_sequence_over_fewer_blocks_than_are_in_flight_writes_each_in_every_pass() {
    let (_daemon, words) = match journalled(1) {
        Some(found) => found,
        None => return,
    };
    // four blocks and eight in flight: from the second pass on the next block is always busy
    load(&words, "--allow-write rw=write bs=4k size=16k iodepth=8 number_ios=4001 runtime=60 time_based");
    let journal = virtune_load::journal::Journal::open(words[2].strip_prefix("--journal=").unwrap().as_ref()).unwrap();
    let sent: Vec<u32> = journal.records().iter().map(|record| record.sent).collect();
    assert_eq!(sent, [1001, 1000, 1000, 1000]);
}

/// A daemon with a file of 32 MiB, and the words that lead to it with a journal.
fn journalled(queues: u32) -> Option<((Daemon, tempfile::TempDir), [String; 3])> {
    if !has(QSD) {
        return None;
    }
    let folder = folder();
    let (file, journal) = (disk(folder.path(), 32), folder.path().join("journal"));
    let daemon =
        Daemon::start(&["--blockdev", &format!("driver=file,node-name=top,filename={}", file.display())], queues);
    let [engine, filename] = daemon.words();
    Some(((daemon, folder), [engine, filename, format!("--journal={}", journal.display())]))
}

#[test]
fn lost_data_is_exit_4_even_where_the_result_cannot_be_written() {
    let Some(((_daemon, folder), words)) = journalled(1) else { return };
    load(&words, "--allow-write rw=write bs=4k iodepth=16 fsync=1024");
    disk(folder.path(), 32); // zeros again
    let output = run(&[&["verify".to_owned()], &words[..]].concat(), "iodepth=16 --output=/dev/full");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{told}");
    assert!(told.contains("lost after a flush") && told.contains("cannot write the result to /dev/full"), "{told}");
}

#[test]
fn of_many_bad_blocks_the_first_are_told_and_all_are_counted() {
    if !has(QSD) {
        return;
    }
    let folder = folder();
    let (file, journal) = (disk(folder.path(), 32), folder.path().join("journal"));
    let node = format!("driver=file,node-name=top,filename={}", file.display());
    let daemon = Daemon::start(&["--blockdev", &node], 1);
    let words = [&daemon.words()[..], &[format!("--journal={}", journal.display())]].concat();
    load(&words, "--allow-write rw=write bs=4k iodepth=16 fsync=1024");
    disk(folder.path(), 32); // zeros again
    let output = run(&[&["verify".to_owned()], &words[..]].concat(), "iodepth=16");
    let report = result(&output);
    assert_eq!(output.status.code(), Some(4));
    assert!(report["lost_flushed"].as_u64().unwrap() > 6000, "{report:#}");
    let offsets: Vec<u64> =
        report["findings"].as_array().unwrap().iter().map(|one| one["offset"].as_u64().unwrap()).collect();
    assert_eq!(offsets, (0..20).map(|block| block * 4096).collect::<Vec<_>>());
}

#[test]
fn a_pattern_that_was_written_is_found_again_and_a_disk_that_forgets_is_seen() {
    if !has(QSD) {
        return;
    }
    let pattern = "bs=4k iodepth=8 size=4m verify=pattern verify_pattern=\"virtune1\"%o";
    let folder = folder();
    let node = format!("driver=file,node-name=top,filename={}", disk(folder.path(), 32).display());
    for (daemon, keeps) in [(Daemon::start(&["--blockdev", &node], 1), true), (Daemon::start(&NULL, 1), false)] {
        load(&daemon.words(), &format!("--allow-write rw=write end_fsync=1 {pattern}"));
        let output = run(&daemon.words(), &format!("rw=read {pattern}"));
        assert_eq!(output.status.code(), Some(if keeps { 0 } else { 4 }));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(said.contains("pattern: verify failed at offset"), !keeps, "{said}");
    }
}
