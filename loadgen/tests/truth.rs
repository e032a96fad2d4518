// SPDX-License-Identifier: Apache-2.0
//! Truth: devices whose numbers follow from arithmetic, so the generator must say these numbers.

mod common;

use common::{Daemon, NULL, disk, folder, has, load, run};

const QSD: &str = "qemu-storage-daemon";

#[test]
fn a_prime_number_of_requests_is_counted_exactly() {
    if !has(QSD) {
        return;
    }
    let daemon = Daemon::start(&NULL, 2);
    for (words, count) in [("iodepth=1", 23), ("iodepth=7", 23), ("iodepth=8 numjobs=2 group_reporting", 46)] {
        let result = load(&daemon.words(), &format!("rw=randread number_ios=23 {words}"));
        let read = &result["jobs"][0]["read"];
        assert_eq!(read["total_ios"], count);
        assert_eq!(read["io_bytes"], count * 4096);
        assert_eq!(read["clat_ns"]["N"], count);
        let bins = read["clat_ns"]["bins"].as_object().unwrap();
        assert_eq!(bins.values().map(|n| n.as_u64().unwrap()).sum::<u64>(), count);
    }
}

#[test]
fn writes_reads_and_flushes_are_counted_exactly() {
    if !has(QSD) {
        return;
    }
    let daemon = Daemon::start(&NULL, 1);
    let result = load(&daemon.words(), "--allow-write rw=write number_ios=100 fsync=10 iodepth=4");
    let job = &result["jobs"][0];
    assert_eq!((&job["write"]["total_ios"], &job["sync"]["total_ios"]), (&100.into(), &10.into()));
    let result = load(&daemon.words(), "--allow-write rw=randrw rwmixread=70 number_ios=10000 iodepth=8");
    let job = &result["jobs"][0];
    let reads = job["read"]["total_ios"].as_u64().unwrap();
    assert_eq!(reads + job["write"]["total_ios"].as_u64().unwrap(), 10_000);
    assert!((6_800..7_200).contains(&reads), "{reads}");
}

#[test]
fn the_whole_span_is_written_once_unless_it_is_by_time() {
    let folder = folder();
    let file = disk(folder.path(), 10);
    let journal = folder.path().join("journal");
    let words = [
        "ioengine=io_uring".to_owned(),
        format!("filename={}", file.display()),
        format!("--journal={}", journal.display()),
        "--allow-write".to_owned(),
    ];
    for (numjobs, pass) in [(1, 1), (3, 2)] {
        let load =
            load(&words, &format!("rw=write bs=64k size=8m offset=1m iodepth=4 numjobs={numjobs} group_reporting"));
        assert_eq!(load["jobs"][0]["write"]["total_ios"], 128);
        let sent: Vec<u32> = virtune_load::journal::Journal::open(&journal)
            .unwrap()
            .records()
            .iter()
            .map(|record| record.sent)
            .collect();
        // each block once a pass: one that is written twice leaves another out
        assert_eq!(sent.len(), 128);
        assert!(sent.iter().all(|count| *count == pass), "{sent:?}");
    }
}

#[test]
fn the_whole_span_is_read_once_unless_it_is_by_time() {
    if !has(QSD) {
        return;
    }
    // one block that cannot be read, and the load must come by it: wherever it is in the span
    let below = "driver=null-co,node-name=below,size=16777216,read-zeroes=off";
    for block in [0, 1, 63, 127] {
        let sector = 2048 + block * 128;
        let faulty = format!(
            "driver=blkdebug,node-name=top,image=below,inject-error.0.event=none,inject-error.0.iotype=read,inject-error.0.errno=5,inject-error.0.sector={sector}"
        );
        let daemon = Daemon::start(&["--blockdev", below, "--blockdev", &faulty], 1);
        let output = run(&daemon.words(), "rw=read bs=64k size=8m offset=1m iodepth=4");
        let place = sector * 512;
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(told, format!("error: a read of 65536 bytes at {place} failed: Input/output error\n"));
    }
    let daemon = Daemon::start(&NULL, 1);
    let result = load(&daemon.words(), "rw=read bs=64k size=8m offset=1m iodepth=4");
    assert_eq!(result["jobs"][0]["read"]["total_ios"], 128);
}

#[test]
fn a_throttled_disk_gives_its_rate_and_its_burst() {
    if !has(QSD) {
        return;
    }
    let mut options = vec!["--object", "throttle-group,id=tg,x-iops-total=5000"];
    options.extend(["--blockdev", "driver=null-co,node-name=below,size=1073741824,read-zeroes=off"]);
    options.extend(["--blockdev", "driver=throttle,node-name=top,throttle-group=tg,file=below"]);
    let daemon = Daemon::start(&options, 1);
    let result = load(&daemon.words(), "rw=randread iodepth=32 runtime=3 time_based");
    let total = result["jobs"][0]["read"]["total_ios"].as_u64().unwrap();
    // 5000 a second for 3 s and the bucket of a tenth of a second, and what was in flight at the end
    assert!((15_400..15_650).contains(&total), "{total}");
}

#[test]
fn a_slow_disk_gives_its_latency() {
    if !has(QSD) {
        return;
    }
    let slow = "driver=null-co,node-name=top,size=1073741824,read-zeroes=off,latency-ns=5000000";
    let daemon = Daemon::start(&["--blockdev", slow], 1);
    let result = load(&daemon.words(), "rw=randread iodepth=4 runtime=1 time_based");
    let read = &result["jobs"][0]["read"];
    let mean = read["lat_ns"]["mean"].as_f64().unwrap();
    assert!(read["lat_ns"]["min"].as_u64().unwrap() >= 5_000_000);
    assert!((5.0e6..7.5e6).contains(&mean), "{mean}");
    let in_flight = read["iops"].as_f64().unwrap() * mean / 1e9;
    assert!((3.9..4.1).contains(&in_flight), "Little's law: {in_flight}");
}

#[test]
fn every_offered_start_is_sent_or_counted_as_unsent() {
    if !has(QSD) {
        return;
    }
    let daemon = Daemon::start(&NULL, 1);
    let result = load(&daemon.words(), "rw=randread iodepth=64 rate_iops=2000 runtime=2 time_based");
    let sent = result["jobs"][0]["read"]["total_ios"].as_u64().unwrap();
    assert_eq!(sent + result["virtune-load"]["unsent_ios"].as_u64().unwrap(), 4_000);
    assert!(sent > 3_900, "{sent}");
}

#[test]
fn a_mix_has_a_rate_for_each_direction() {
    if !has(QSD) {
        return;
    }
    let daemon = Daemon::start(&NULL, 1);
    let words = "--allow-write rw=randrw iodepth=64 rate_iops=1500,500 runtime=2 time_based rate_process=poisson";
    let job = load(&daemon.words(), words)["jobs"][0].clone();
    let (reads, writes) = (job["read"]["iops"].as_f64().unwrap(), job["write"]["iops"].as_f64().unwrap());
    assert!((1_300.0..1_700.0).contains(&reads), "{reads}");
    assert!((400.0..600.0).contains(&writes), "{writes}");
}

#[test]
fn an_overloaded_disk_shows_the_wait_from_the_intended_start() {
    if !has(QSD) {
        return;
    }
    let mut options = vec!["--object", "throttle-group,id=tg,x-iops-total=500"];
    options.extend(["--blockdev", "driver=null-co,node-name=below,size=1073741824,read-zeroes=off"]);
    options.extend(["--blockdev", "driver=throttle,node-name=top,throttle-group=tg,file=below"]);
    let daemon = Daemon::start(&options, 1);
    let result = load(&daemon.words(), "rw=randread iodepth=4 rate_iops=1000 runtime=2 time_based");
    let read = &result["jobs"][0]["read"];
    let most = |kind: &str| read[kind]["max"].as_u64().unwrap();
    // half of the offered 2000 starts are served, so the last of them waited for about a second ...
    assert!((700_000_000..1_300_000_000).contains(&most("lat_ns")), "{}", most("lat_ns"));
    // ... which a clock that starts with the submission would never tell
    assert!(most("clat_ns") < 200_000_000, "{}", most("clat_ns"));
    let unsent = result["virtune-load"]["unsent_ios"].as_u64().unwrap();
    assert_eq!(unsent + read["total_ios"].as_u64().unwrap(), 2_000);
    let percentile = &read["lat_ns"]["percentile"]["99.000000"];
    assert!(percentile.as_u64().unwrap() > 600_000_000, "{percentile}");
}

#[test]
fn ramp_time_is_not_counted() {
    if !has(QSD) {
        return;
    }
    let daemon = Daemon::start(&NULL, 1);
    let result = load(&daemon.words(), "rw=randread iodepth=8 rate_iops=1000 ramp_time=500ms runtime=1 time_based");
    let read = &result["jobs"][0]["read"];
    let total = read["total_ios"].as_u64().unwrap();
    assert!((950..=1_010).contains(&total), "{total}");
    assert!((980..1_100).contains(&read["runtime"].as_u64().unwrap()));
}

#[test]
fn polling_several_jobs_and_two_queues_work() {
    if !has(QSD) {
        return;
    }
    let daemon = Daemon::start(&NULL, 2);
    let result = load(&daemon.words(), "rw=randread iodepth=4 number_ios=1000 hipri numjobs=2");
    assert_eq!(result["jobs"].as_array().unwrap().len(), 2);
    let folder = folder();
    let file = folder.path().join("two.fio");
    std::fs::write(&file, "[a]\nrw=read\nnumber_ios=10\n[b]\nrw=randread\nbs=8k\nnumber_ios=20\n").unwrap();
    let result = load(&daemon.words(), file.to_str().unwrap());
    let counts: Vec<_> =
        result["jobs"].as_array().unwrap().iter().map(|job| job["read"]["total_ios"].clone()).collect();
    assert_eq!(counts, [10, 20]);
}

#[test]
fn a_deep_queue_is_kept_full() {
    if !has(QSD) {
        return;
    }
    let slow = "driver=null-co,node-name=top,size=1073741824,read-zeroes=off,latency-ns=20000000";
    let daemon = Daemon::start(&["--blockdev", slow], 1);
    let result = load(&daemon.words(), "rw=randread iodepth=200 runtime=1 time_based");
    let read = &result["jobs"][0]["read"];
    let in_flight = read["iops"].as_f64().unwrap() * read["lat_ns"]["mean"].as_f64().unwrap() / 1e9;
    assert!((190.0..210.0).contains(&in_flight), "{in_flight}");
}

#[test]
fn clones_share_the_queues_that_there_are_and_keep_their_depth() {
    if !has(QSD) {
        return;
    }
    let slow = "driver=null-co,node-name=top,size=1073741824,read-zeroes=off,latency-ns=10000000";
    for queues in [1, 2, 3, 4, 8] {
        let daemon = Daemon::start(&["--blockdev", slow], queues);
        let words = "rw=randread iodepth=10 numjobs=4 group_reporting runtime=500ms time_based";
        let result = load(&daemon.words(), words);
        assert_eq!(result["virtune-load"]["queues"], queues.min(4));
        let read = &result["jobs"][0]["read"];
        let in_flight = read["iops"].as_f64().unwrap() * read["lat_ns"]["mean"].as_f64().unwrap() / 1e9;
        assert!((38.0..42.0).contains(&in_flight), "{queues} queues: {in_flight}");
    }
}

#[test]
fn jobs_that_share_a_queue_are_counted_each_for_itself() {
    if !has(QSD) {
        return;
    }
    let (daemon, folder) = (Daemon::start(&NULL, 1), folder());
    let file = folder.path().join("three.fio");
    let text = "[a]\nrw=read\nbs=64k\nnumber_ios=10\niodepth=4\n[b]\nrw=randread\nbs=512\nnumber_ios=2003\niodepth=7\n[c]\nrw=randread\nrate_iops=200\nruntime=1\ntime_based\niodepth=4\n";
    std::fs::write(&file, text).unwrap();
    let result = load(&daemon.words(), file.to_str().unwrap());
    let seen: Vec<_> = result["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| (job["read"]["total_ios"].as_u64().unwrap(), job["read"]["io_bytes"].as_u64().unwrap()))
        .collect();
    assert_eq!(seen[..2], [(10, 10 * 65536), (2003, 2003 * 512)]);
    assert!((195..=201).contains(&seen[2].0), "{seen:?}");
    let cpu: f64 = result["jobs"].as_array().unwrap().iter().map(|job| job["usr_cpu"].as_f64().unwrap()).sum();
    assert!(cpu > 0.0 && cpu < 300.0, "{cpu}");
}

#[test]
fn a_file_is_driven_by_the_same_client() {
    let folder = folder();
    let disk = disk(folder.path(), 8);
    let words = ["ioengine=io_uring".to_owned(), format!("filename={}", disk.display())];
    let result = load(&words, "rw=randread iodepth=8 number_ios=500");
    assert_eq!(result["jobs"][0]["read"]["total_ios"], 500);
    // others may use the disk as well, but all 500 must be seen there, where the file lies on a device of its own
    let found = result["disk_util"].as_array().unwrap();
    assert_eq!(found.len(), usize::from(virtune_load::medium::Medium::of(&disk).is_some()));
    assert!(found.iter().all(|used| used["read_ios"].as_u64().unwrap() >= 500), "{found:?}");
    let before = std::fs::read(&disk).unwrap();
    load(&words, "--allow-write rw=write bs=64k size=1m offset=1m sync=1");
    let after = std::fs::read(&disk).unwrap();
    let changed = |from: usize, to: usize| before[from << 20..to << 20] != after[from << 20..to << 20];
    assert!(!changed(0, 1) && changed(1, 2) && !changed(2, 8), "only the span was written");
}

#[test]
fn a_mix_writes_contents_that_do_not_compress() {
    let folder = folder();
    let disk = disk(folder.path(), 1);
    let words = ["ioengine=io_uring".to_owned(), format!("filename={}", disk.display())];
    let zeros = |disk: &std::path::Path| std::fs::read(disk).unwrap().iter().filter(|byte| **byte == 0).count();
    load(&words, "--allow-write rw=randrw rwmixread=50 iodepth=4 number_ios=4000 runtime=60 time_based");
    // of 256 blocks practically none was missed by 2000 writes; a random byte is zero once in 256
    assert!(zeros(&disk) < 80_000, "{}", zeros(&disk));
    load(&words, "--allow-write rw=write zero_buffers");
    assert_eq!(zeros(&disk), 1 << 20);
}

#[test]
fn groups_and_percentiles_are_reported_as_asked() {
    if !has(QSD) {
        return;
    }
    let daemon = Daemon::start(&NULL, 4);
    let folder = folder();
    let file = folder.path().join("groups.fio");
    let text = "[global]\nrw=randread\nnumber_ios=10\ngroup_reporting=1\npercentile_list=99:50\n[a]\nnumjobs=2\n[b]\nnew_group=1\n[c]\nnew_group=1\nlat_percentiles=1\n";
    std::fs::write(&file, text).unwrap();
    let result = load(&daemon.words(), file.to_str().unwrap());
    let jobs = result["jobs"].as_array().unwrap();
    let names: Vec<_> = jobs.iter().map(|job| (job["jobname"].clone(), job["read"]["total_ios"].clone())).collect();
    assert_eq!(names, [("a".into(), 20.into()), ("b".into(), 10.into()), ("c".into(), 10.into())]);
    let percentiles = jobs[0]["read"]["clat_ns"]["percentile"].as_object().unwrap();
    assert_eq!(percentiles.keys().collect::<Vec<_>>(), ["50.000000", "99.000000"]);
    let has_bins = |job: usize, kind: &str| jobs[job]["read"][kind].get("bins").is_some();
    assert!(has_bins(1, "clat_ns") && !has_bins(1, "lat_ns"));
    assert!(!has_bins(2, "clat_ns") && has_bins(2, "lat_ns"));
}

#[test]
fn the_logs_hold_a_line_for_each_interval() {
    if !has(QSD) {
        return;
    }
    let daemon = Daemon::start(&NULL, 1);
    let folder = folder();
    let prefix = folder.path().join("l");
    let words = format!(
        "rw=randread iodepth=8 rate_iops=1000 runtime=1 time_based log_avg_msec=250 write_iops_log={0} write_lat_log={0}",
        prefix.display()
    );
    load(&daemon.words(), &words);
    let text = std::fs::read_to_string(folder.path().join("l_iops.1.log")).unwrap();
    let times: Vec<&str> = text.lines().map(|line| line.split(", ").next().unwrap()).collect();
    assert_eq!(times, ["250", "500", "750", "1000"]);
    assert!(folder.path().join("l_clat.1.log").exists() && folder.path().join("l_lat.1.log").exists());
}

#[test]
fn each_request_of_a_counted_load_is_recorded_where_that_is_asked_for() {
    if !has(QSD) {
        return;
    }
    let daemon = Daemon::start(&NULL, 1);
    let folder = folder();
    let prefix = folder.path().join("l");
    let words = format!(
        "rw=randread iodepth=4 number_ios=97 log_avg_msec=0 log_offset=1 write_lat_log={} lat_percentiles=1",
        prefix.display()
    );
    let result = load(&daemon.words(), &words);
    let text = std::fs::read_to_string(folder.path().join("l_lat.1.log")).unwrap();
    let lines: Vec<Vec<u64>> =
        text.lines().map(|line| line.split(", ").map(|word| word.parse().unwrap()).collect()).collect();
    assert_eq!(lines.len(), 97);
    assert!(lines.iter().all(|line| line[2] == 0 && line[3] == 4096 && line[4] % 4096 == 0));
    let mean = lines.iter().map(|line| line[1]).sum::<u64>() as f64 / 97.0;
    let told = result["jobs"][0]["read"]["lat_ns"]["mean"].as_f64().unwrap();
    assert!((mean - told).abs() < 1e-3 * told, "{mean} {told}");
}

#[test]
fn bins_of_a_real_fio_are_ours() {
    if !has("fio") {
        return;
    }
    let words =
        "--name=n --ioengine=null --size=1g --rw=randread --iodepth=4 --runtime=1 --time_based --output-format=json+";
    let output = std::process::Command::new("fio").args(words.split_whitespace()).output().unwrap();
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let bins = result["jobs"][0]["read"]["clat_ns"]["bins"].as_object().unwrap();
    assert!(bins.len() > 20);
    for bin in bins.keys() {
        let value: u64 = bin.parse().unwrap();
        assert_eq!(virtune_load::histogram::value(virtune_load::histogram::index(value)), value);
    }
}
