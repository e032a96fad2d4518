# SPDX-License-Identifier: Apache-2.0
"""A load is verified like a setting: whatever it runs in place of its job is found out, by echo or by figures."""

import json
import os
import stat
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.told_load import told

from virtune.analyse.trial.derive import derive
from virtune.cli import run
from virtune.fio.as_asked import ADDED, Ran, identity_of, load_checks, own_log_checks
from virtune.fio.generator import Clients
from virtune.fio.job import FioJob, fio_job
from virtune.fio.options import ENGINES, SHAPING
from virtune.fio.results import read_result
from virtune.fio.workloads import PROFILES, parse_workload, read_job_file
from virtune.model.errors import LoadError
from virtune.model.evidence import Check
from virtune.model.remark import Weight
from virtune.model.stack import BareTarget, FileTarget, NbdTarget, Stack, Target, VhostUserTarget
from virtune.model.workload import Job
from virtune.shell import GENERATOR, GENERATOR_PLACES
from virtune.store.store import Store

SPAN = 64 * 1024**2
FILE = FileTarget(path="/disk", size_bytes=SPAN)
BOTH = Clients(engines=frozenset(ENGINES), installed=True)

LIES: Mapping[str, tuple[str, str]] = {
    "rw": ("rw=randread", "randwrite"),
    "bs": ("bs=4k", "64k"),
    "bsrange": ("bsrange=4k-64k", "128k-256k"),
    "bssplit": ("bssplit=4k/90:64k/10", "4k/10:64k/90"),
    "bs_unaligned": ("bs_unaligned=1,direct=0", "0"),
    "ba": ("ba=8k", "4k"),
    "rwmixread": ("rw=randrw,rwmixread=70", "50"),
    "rwmixwrite": ("rw=randrw,rwmixwrite=70", "50"),
    "rw_sequencer": ("rw_sequencer=identical", "sequential"),
    "iodepth": ("iodepth=32", "1"),
    "iodepth_batch": ("iodepth=32,iodepth_batch=8", "1"),
    "iodepth_batch_complete_min": ("iodepth_batch_complete_min=1", "4"),
    "iodepth_batch_complete_max": ("iodepth_batch_complete_max=1", "4"),
    "iodepth_low": ("iodepth=32,iodepth_low=32", "1"),
    "io_submit_mode": ("io_submit_mode=inline", "offload"),
    "serialize_overlap": ("serialize_overlap=1", "0"),
    "numjobs": ("numjobs=4", "1"),
    "ioengine": ("ioengine=io_uring", "psync"),
    "direct": ("direct=1", "0"),
    "sync": ("rw=write,sync=1", "0"),
    "fsync": ("rw=write,fsync=1", "0"),
    "fdatasync": ("rw=write,fdatasync=1", "0"),
    "sync_file_range": ("rw=write,sync_file_range=write:8", "write:80"),
    "end_fsync": ("rw=write,end_fsync=1", "0"),
    "rate": ("rate=1m", "100m"),
    "rate_iops": ("rate_iops=100", "10000"),
    "rate_process": ("rate_iops=100,rate_process=poisson", "linear"),
    "rate_ignore_thinktime": ("rate_iops=100,rate_ignore_thinktime=1", "0"),
    "thinktime": ("thinktime=1ms", "1us"),
    "thinktime_spin": ("thinktime=1ms,thinktime_spin=1ms", "0"),
    "thinktime_iotime": ("thinktime=1ms,thinktime_iotime=1ms", "2ms"),
    "thinktime_blocks": ("thinktime=1ms,thinktime_blocks=2", "4"),
    "thinktime_blocks_type": ("thinktime=1ms,thinktime_blocks_type=issue", "complete"),
    "random_distribution": ("random_distribution=zipf:1.2", "random"),
    "random_generator": ("random_generator=lfsr", "tausworthe"),
    "percentage_random": ("percentage_random=50", "100"),
    "norandommap": ("rw=randread", "0"),
    "randrepeat": ("rw=randread", "1"),
    "allrandrepeat": ("allrandrepeat=1", "0"),
    "randseed": ("randseed=7", "8"),
    "refill_buffers": ("rw=write", "0"),
    "zero_buffers": ("rw=write,zero_buffers=1", "0"),
    "scramble_buffers": ("rw=write,scramble_buffers=0", "1"),
    "buffer_compress_percentage": ("rw=write,buffer_compress_percentage=50", "0"),
    "buffer_compress_chunk": ("rw=write,buffer_compress_chunk=512", "4k"),
    "dedupe_percentage": ("rw=write,dedupe_percentage=50", "0"),
    "hipri": ("ioengine=io_uring,hipri=1", "0"),
    "sqthread_poll": ("ioengine=io_uring,sqthread_poll=1", "0"),
    "sqthread_poll_cpu": ("ioengine=io_uring,sqthread_poll_cpu=1", "0"),
    "fixedbufs": ("ioengine=io_uring,fixedbufs=1", "0"),
    "registerfiles": ("ioengine=io_uring,registerfiles=1", "0"),
    "nonvectored": ("ioengine=io_uring,nonvectored=1", "0"),
    "uncached": ("ioengine=io_uring,uncached=1", "0"),
    "force_async": ("ioengine=io_uring,force_async=8", "0"),
    "nowait": ("ioengine=io_uring,nowait=1", "0"),
    "userspace_reap": ("ioengine=libaio,userspace_reap=1", "0"),
    "offset": ("offset=1m", "0"),
    "offset_increment": ("numjobs=2,offset_increment=1m", "0"),
    "size": ("size=32m", "8m"),
    "number_ios": ("number_ios=100", "10"),
    "invalidate": ("invalidate=1", "0"),
    "lockmem": ("lockmem=1m", "0"),
    "mem": ("mem=malloc", "mmaphuge"),
    "cpus_allowed": ("cpus_allowed=0", "1"),
    "cpus_allowed_policy": ("cpus_allowed=0,cpus_allowed_policy=split", "shared"),
    "nice": ("nice=1", "19"),
    "prio": ("prio=1", "7"),
    "prioclass": ("prioclass=2", "3"),
    "latency_target": ("latency_target=1ms", "9ms"),
    "latency_window": ("latency_target=1ms,latency_window=1s", "2s"),
    "latency_percentile": ("latency_target=1ms,latency_percentile=99", "50"),
    "latency_run": ("latency_target=1ms,latency_run=1", "0"),
    # what virtune writes itself
    "filename": ("rw=read", "/another"),
    "allow_file_create": ("rw=read", "1"),
    "thread": ("rw=read", "0"),
    "runtime": ("rw=read", "100ms"),
    "ramp_time": ("rw=read", "1ms"),
    "time_based": ("rw=read", "0"),
    "group_reporting": ("numjobs=2", "0"),
    "new_group": ("rw=read + rw=write", "0"),
    "clat_percentiles": ("rw=read", "0"),
    "lat_percentiles": ("rw=read", "0"),
    "percentile_list": ("rw=read", "50"),
    "write_lat_log": ("number_ios=100", "elsewhere"),
    "log_offset": ("number_ios=100", "0"),
    "exitall": ("rw=randread,number_ios=9 + name=background,rw=read", "0"),
    "exit_what": ("rw=randread,number_ios=9 + name=background,rw=read", "group"),
    "uri": ("rw=read", "nbd+unix:///other?socket=/s"),
    "libblkio_driver": ("rw=read", "virtio-blk-vfio-pci"),
    "libblkio_path": ("rw=read", "/other"),
}
"""For each option that a job may have: words that have virtune write it, and what a liar runs in its place."""

SEEN = {"rw", "bs", "bsrange", "bssplit", "rwmixread", "rwmixwrite", "iodepth", "numjobs", "fsync", "fdatasync",
        "number_ios", "rate", "rate_iops", "runtime", "ioengine"}  # fmt: skip
"""Options that shape the figures of a result, so that a liar who echoes what was asked is found out too."""


def job_of(words: str, target: Target = FILE, clients: Clients = BOTH) -> FioJob:
    (workload,) = parse_workload(words if "rw=" in words else f"rw=randread,{words}")
    return fio_job(workload, target, seconds=1.0, ramp_seconds=0.1, seed=7, clients=clients)


def target_of(option: str) -> Target:
    if option == "uri":
        return NbdTarget(socket="/s", export="e", size_bytes=SPAN)
    return VhostUserTarget(socket="/s", size_bytes=SPAN) if option.startswith("libblkio") else FILE


def judged(job: FioJob, result: Mapping[str, Any], ran: Ran | None = None) -> list[Check]:
    """The settings of the load that differ."""
    return [one for one in load_checks(job, json.dumps(result).encode(), ran=ran) if one.agrees is not True]


def clients_of(option: str) -> Clients:
    return Clients(engines=frozenset({*ENGINES, "nbd"})) if option == "uri" else BOTH


@pytest.mark.parametrize("option", LIES)
def test_an_option_that_is_another_is_found_out_by_its_echo(option: str) -> None:
    words, lie = LIES[option]
    job = job_of(words, target_of(option), clients_of(option))
    assert judged(job, told(job)) == []
    for change in ("another", "left out"):
        result = told(job)
        for entry in result["jobs"]:
            if option in entry["job options"]:
                entry["job options"] |= {option: lie}
            if change == "left out":
                entry["job options"].pop(option, None)
        assert f"load.{option}" in {one.setting for one in judged(job, result)}, change


@pytest.mark.parametrize("extra", sorted(SHAPING))
def test_an_option_that_nobody_asked_for_is_found_out(extra: str) -> None:
    job = job_of("rw=read")
    result = told(job)
    result["jobs"][0]["job options"] |= {extra: "something else"}
    assert f"load.{extra}" in {one.setting for one in judged(job, result)}


def test_every_option_that_virtune_writes_has_a_lie() -> None:
    assert LIES.keys() >= SHAPING.keys()
    written: set[str] = set(SEEN)
    nbd, queue = NbdTarget(socket="/s", export="e", size_bytes=SPAN), VhostUserTarget(socket="/s", size_bytes=SPAN)
    several = FileTarget(path="/disk", more=("/two",), size_bytes=SPAN)
    targets = (FILE, nbd, queue, BareTarget(size_bytes=SPAN), several)
    texts = [words for words, _ in LIES.values()]
    for words in [*texts, *(f"{name},numjobs=2" for name in PROFILES)]:
        for target in targets:
            for clients in (BOTH, Clients(engines=frozenset({*ENGINES, "nbd", "libblkio"}))):
                try:
                    job = job_of(words, target, clients) if words in texts else profile(words, target, clients)
                except Exception:  # noqa: BLE001, S112 - what a target cannot do is no job
                    continue
                written |= {name for one in job.asked for name in one.as_dict()}
    assert written - ADDED <= LIES.keys()


def profile(words: str, target: Target, clients: Clients) -> FioJob:
    return fio_job(parse_workload(words)[0], target, seconds=1.0, ramp_seconds=0.0, seed=7, clients=clients)


@pytest.mark.parametrize("option", sorted(SEEN))
def test_who_echoes_what_was_asked_and_runs_something_else_is_found_out_by_the_figures(option: str) -> None:
    words, lie = LIES[option]
    deep = "" if "iodepth" in words or option.startswith("rate") else ",iodepth=32"
    job = job_of(words + deep)
    asked = {one.name: one.as_dict() for one in job.asked}
    other = [Job(name=one.name, options=tuple((one.as_dict() | {option: lie}).items())) for one in job.asked]
    changed = replace(job, asked=tuple(other))
    result = told(changed)
    for entry in result["jobs"]:
        entry["job options"] = asked[entry["jobname"]]
    assert judged(job, result), f"{option}={lie} shows in nothing"


@pytest.mark.parametrize("jobs", [1, 2, 8, 40])
def test_clones_that_wait_for_a_cpu_at_their_end_are_no_more_clones(jobs: int) -> None:
    """On a busy host a thread was seen to run on for 2 % of a load after its last I/O; up to 40 % is believed."""
    job = job_of(f"numjobs={jobs},iodepth=32")
    result = told(job)
    (entry,) = result["jobs"]
    entry["job_runtime"] = round(entry["job_runtime"] * (1 + 0.4 / jobs))
    assert judged(job, result) == []
    entry["job_runtime"] = round(entry["job_runtime"] / (1 + 0.4 / jobs) * (jobs + 1) / jobs)
    assert [one.setting for one in judged(job, result)] == ["load.numjobs"]


def test_jobs_that_ran_as_they_were_told_are_believed() -> None:
    chance = Random(2026)
    engines = [one for one in ENGINES if one not in ("nbd", "vsync", "splice")]
    for _ in range(300):
        words = [f"rw={chance.choice(['read', 'randwrite', 'rw', 'randrw'])}", f"iodepth={2 ** chance.randrange(8)}"]
        words += [f"bs={chance.choice(['4k', '512', '4k,64k', '1m'])}", f"ioengine={chance.choice(engines)}"]
        words += [f"numjobs={chance.randrange(1, 5)}"] * chance.randrange(2)
        words += [f"fsync={chance.choice([1, 16])}"] * chance.randrange(2)
        words += [f"rate_iops={chance.choice([200, 4000])}"] * chance.randrange(2)
        words += [f"rwmixread={chance.randrange(101)}"] * chance.randrange(2)
        job = job_of(",".join(words).replace("ioengine=mmap", "ioengine=mmap,direct=0"))
        assert judged(job, told(job)) == [], words


@pytest.mark.parametrize(
    ("away", "exact", "found"),
    [(0.0, True, False), (-5.0, True, True), (5.0, True, True), (-86400.0, False, True), (-0.05, False, False)],
)
def test_a_result_is_of_the_time_in_which_its_load_ran(away: float, *, exact: bool, found: bool) -> None:
    job, now = job_of("rw=read"), time.time()
    written = now + away
    result = told(job) | {"timestamp": int(written), "timestamp_ms": int(written * 1000) if exact else 0}
    ran = Ran(begun=now - 1.2, ended=now + 0.01, seconds=1.21)
    assert any(one.setting == "load.result" for one in judged(job, result, ran)) is found
    set_back = Ran(begun=now + 3600, ended=now + 0.01, seconds=1.21)
    assert not judged(job, result, set_back), "a clock that was set dates nothing"


def test_a_result_cannot_tell_of_more_time_than_passed() -> None:
    job, now = job_of("rw=read"), time.time()
    (check,) = judged(job, told(job), Ran(begun=now - 0.3, ended=now, seconds=0.3))
    assert (check.setting, check.found) == ("load.runtime", "1 s")


def test_a_program_that_echoes_nothing_is_unverified_and_judged_by_its_figures() -> None:
    job, other = job_of("bs=4k"), job_of("bs=64k")
    for ran, found in ((job, None), (other, "64 KiB")):
        result = told(ran)
        del result["global options"]
        for entry in result["jobs"]:
            del entry["job options"]
        (check,) = judged(job, result)
        assert (check.found, check.hidden) == (found, found is None)


OWN_FILE = "[a]\nrw=randread\n[b]\nrw=randread\ndescription=of the user\n"
NAMED = identity_of("s", 2, 1, 0, "0" * 16)
OTHERS = {
    "a trial": identity_of("s", 1, 1, 0, "1" * 16),
    "a retry": identity_of("s", 2, 2, 0, "2" * 16),
    "a study": identity_of("t", 2, 1, 0, "3" * 16),
    "a guest": identity_of("s", 2, 1, 1, "0" * 16),
    "an earlier run of the same attempt": identity_of("s", 2, 1, 0, "4" * 16),
    "a stranger": "made by hand",
    "nobody": "",
}


def named_job(words: str, identity: str) -> FioJob:
    workload = read_job_file(words, name="own") if words.startswith("[") else parse_workload(words)[0]
    return fio_job(workload, FILE, seconds=1.0, ramp_seconds=0.1, seed=7, clients=BOTH, identity=identity)


@pytest.mark.parametrize("whose", OTHERS)
@pytest.mark.parametrize(
    "words", ["rw=randread", "rw=randread,numjobs=3", "rw=randread + rw=read,numjobs=2", "one:rw=write", OWN_FILE]
)
def test_a_result_is_of_its_own_load_by_name_in_whole_and_in_each_part(words: str, whose: str) -> None:
    job, other = named_job(words, NAMED), told(named_job(words, OTHERS[whose]))
    own = told(job)
    assert judged(job, own) == []
    assert [one.setting for one in judged(job, other)] == ["load.result"]
    parts = own["jobs"]
    for number, theirs in enumerate(other["jobs"]):
        if theirs.get("desc") == parts[number].get("desc"):
            continue  # what a user's section says of itself is the same in both
        for place in ("whole", "desc", "options"):
            mixed = json.loads(json.dumps(own))
            if place == "whole":
                mixed["jobs"][number] = theirs
            elif place == "desc":
                mixed["jobs"][number]["desc"] = OTHERS[whose]
            else:
                mixed["jobs"][number]["job options"]["description"] = OTHERS[whose]
            assert [one.setting for one in judged(job, mixed)] == ["load.result"], place


def test_a_job_file_that_describes_all_of_its_jobs_is_left_as_it_is_and_without_a_name() -> None:
    job = named_job("[a]\nrw=randread\ndescription=mine\n", NAMED)
    assert job.identity == ""
    assert judged(job, told(job)) == []


def logs(clones: int, *, seconds: float = 2.0, ends: Mapping[int, float] | None = None) -> bytes:
    """The logs over time of so many clones, one after the other; `ends` are those that end at another time."""
    lines = []
    for clone in range(clones):
        last = (ends or {}).get(clone, seconds)
        lines += [f"{250 * step + clone}, 900, 0, 0, 0" for step in range(1, int(last / 0.25) + 1)]
    return "\n".join(lines).encode()


@pytest.mark.parametrize("clones", [1, 2, 8, 40, 200])
def test_a_clone_that_is_missing_or_ends_early_is_found_out_by_the_logs_however_many_there_are(clones: int) -> None:
    """By the sum of their run times only where 7 % of all of them are missing."""
    job = fio_job(
        parse_workload(f"rw=randread,iodepth=4,numjobs={clones}")[0],
        FILE, seconds=2.0, ramp_seconds=0.1, seed=7, clients=BOTH,
    )  # fmt: skip

    def found(log: bytes, told_of: FioJob = job) -> list[str]:
        output = json.dumps(told(told_of)).encode()
        return [one.setting for one in load_checks(told_of, output, log=log) if one.agrees is not True]

    assert found(logs(clones)) == found(b"") == []
    assert found(logs(clones, ends={0: 1.5})) == [], "a busy host writes late"
    assert found(logs(clones, ends={clones - 1: 1.0})) == ["load.runtime"]
    assert found(logs(clones + 1)) == ["load.numjobs"]
    if clones > 1:
        assert found(logs(clones - 1)) == ["load.numjobs"]
    paced = job_of(f"numjobs={clones},rate_iops=1")
    assert "load.runtime" not in found(logs(clones, ends={0: 0.5}), paced)


@pytest.mark.parametrize("first", ["0", "-1", "nan", "inf", "-0.0", "1e308"])
@pytest.mark.parametrize("rate", ["5", "nan", "inf", "-1e308"])
def test_a_log_of_no_time_is_a_result_that_is_not_believed(first: str, rate: str) -> None:
    result = read_result(json.dumps(told(job_of("rw=read"))))
    (check,) = own_log_checks(result, f"{first},{rate}\n{first},{rate}\n".encode())
    assert check.agrees is False
    assert list(own_log_checks(result, b"x\n")) == []


@pytest.mark.parametrize("depth", [1, 32, 256])
def test_what_was_in_flight_at_the_end_is_in_no_line_of_the_log(depth: int) -> None:
    log = b"100, 3000, 0, 0, 0\n200, 3000, 0, 0, 0\n"

    def told_of(ios: int) -> bool:
        output = told(job_of(f"rw=randread,iodepth={depth}"))
        job = output["jobs"][0]
        job["job_runtime"], job["read"]["total_ios"], job["read"]["runtime"] = 200, ios, 200
        return list(own_log_checks(read_result(json.dumps(output)), log, depth)) == []

    assert told_of(600)
    assert told_of(600 + depth)
    assert not told_of(700 + depth)
    assert not told_of(500)


@pytest.fixture
def lying_fio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PATH on which fio and virtune-load are ones that lie."""
    for name in ("fio", GENERATOR):
        shim = tmp_path / "bin" / name
        shim.parent.mkdir(exist_ok=True)
        shim.write_text(Path(__file__).with_name("lying_fio.py").read_text())
        shim.chmod(shim.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("REAL_PATH", os.pathsep.join([os.environ["PATH"], *map(str, GENERATOR_PLACES)]))
    monkeypatch.setenv("KEPT", str(tmp_path / "kept"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")


SHORT = ("--rig", "metal", "--span", "8M", "--seconds", "200ms", "--ramp", "0", "--attempts", "1", "-q")


@pytest.mark.real
@pytest.mark.usefixtures("lying_fio")
@pytest.mark.parametrize(
    ("lie", "words"),
    [
        ("job:bs=64k", "load.bs=4k was requested, but 64k is running"),
        ("job:rw=read", "load.rw=randread was requested, but read is running"),
        ("job:ioengine=psync", "load.ioengine=io_uring was requested, but psync is running"),
        ("job:size=1048576", "load.size=8388608 was requested, but 1048576 is running"),
        ("quiet:bs=64k", "load.bs=4k was requested, but 64 KiB is running"),
        ("quiet:iodepth=1", "load.iodepth=32 was requested, but 1 "),
        ("quiet:runtime=100ms", "load.runtime=200ms was requested, but 0.1"),
        # the logs tell it where no I/O took as long as a line of them, as one that waits for a CPU may
        pytest.param("quiet:numjobs=19", "load.numjobs=20 was requested, but 19", marks=pytest.mark.first),
    ],
)
def test_a_fio_that_runs_another_load_ends_the_study_without_figures(
    lie: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LIE", lie)
    place = ["--scratch", str(tmp_path / "scratch"), "--store", str(tmp_path / "store")]
    if "numjobs" in lie:
        place += ["--seconds", "1500ms", "--workload", "rw=randread,bs=4k,numjobs=20"]
    if "iodepth" in lie:  # which is known from 256 I/Os on: a slow disk does not do so many in 200 ms
        place += ["--seconds", "1500ms"]
    assert run(["compare", "measure", *SHORT, "--rounds", "1", *place]) == 3
    said = capsys.readouterr()
    assert words in said.err
    assert not said.out


@pytest.mark.real
@pytest.mark.usefixtures("lying_fio")
@pytest.mark.parametrize(
    ("rig", "lie", "found"),
    [
        ("metal", "replay", "that of trial 1, attempt 1, of study"), ("metal", "replay:now", "that of trial 1"),
        ("metal", "replay:edited", "that of trial 1"), ("metal", "replay:nameless", "one that names no trial"),
        ("storage-daemon", "replay:now", "that of trial 1"),
        ("vhost-user", "replay", "that of trial 1"), ("vhost-user", "replay:now", "that of trial 1"),
        ("vhost-user", "replay:renamed", ""),
    ],
)  # fmt: skip
def test_a_result_that_is_given_twice_is_found_out_by_name_date_or_log_or_makes_both_trials_invalid(
    rig: str, lie: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("LIE", lie)
    place = ("--scratch", str(tmp_path / "scratch"), "--store", str(tmp_path / "store"))
    # of whole intervals of the log: what is done after the last line may have any speed on a busy host
    asked = [*SHORT, "--rig", rig, *(["--seconds", "750ms"] if rig == "vhost-user" else [])]
    status = run(["compare", "measure", *asked, "--rounds", "2", *place, "--json"])
    said = capsys.readouterr()
    if status == 3:
        assert f"load.result=of this load was requested, but {found or 'one of'}" in said.err
        return
    assert (status, found) == (0, "")
    for other in (1, 2):
        assert f"its figures are those of trial {other} " in said.out


@pytest.mark.real
@pytest.mark.usefixtures("lying_fio")
def test_a_result_of_another_study_under_today_s_date_names_that_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ("--scratch", str(tmp_path / "scratch"), "--store", str(tmp_path / "store"))
    own = tmp_path / "own.fio"
    own.write_text("[one]\nrw=randread\nbs=4k\ndirect=1\n[two]\ndescription=of the user\nrw=randread\ndirect=1\n")
    monkeypatch.setenv("LIE", "replay:now")
    for words in ([], ["--workload", str(own)]):
        (tmp_path / "kept").unlink(missing_ok=True)
        assert run(["compare", "measure", *SHORT, *place, "--rounds", "1", *words]) == 0
        with Store(tmp_path / "store", reading=True) as store:
            first = store.find("last")
        capsys.readouterr()
        assert run(["compare", "measure", *SHORT, *place, "--rounds", "1", *words]) == 3
        said = capsys.readouterr()
        assert f"but that of trial 1, attempt 1, of study {first} is running" in said.err
        assert not said.out


@pytest.mark.real
@pytest.mark.usefixtures("lying_fio")
def test_a_result_of_another_study_under_today_s_date_is_not_that_of_its_own_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """virtune-load's log counts every I/O; fio's lines are means, and tell only of how many clones there were."""
    place = ("--rig", "vhost-user", "--scratch", str(tmp_path / "scratch"), "--store", str(tmp_path / "store"))
    asked = ["compare", "measure", *SHORT, *place, "--seconds", "600ms", "--rounds", "1"]
    monkeypatch.setenv("LIE", "replay:renamed")
    assert run([*asked, "--workload", "rw=randread,bs=4k,iodepth=4,rate_iops=200"]) == 0
    capsys.readouterr()
    assert run([*asked, "--workload", "rw=randread,bs=4k,iodepth=4,rate_iops=400"]) == 3
    assert "load.result=of this load was requested, but one of" in capsys.readouterr().err


@pytest.mark.real
@pytest.mark.usefixtures("lying_fio")
def test_a_result_whose_rates_were_edited_is_invalid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LIE", "edit:1.3")
    place = ("--scratch", str(tmp_path / "scratch"), "--store", str(tmp_path / "store"))
    assert run(["compare", "measure", *SHORT, "--rounds", "1", *place]) == 0
    (said,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("disturbed: ")]
    assert "(1 of 1 trial)" in said, "the first of its causes, of which a busy host has more"
    assert run(["show", "last", "--json", *place[2:]]) == 0
    assert "The figures of read contradict each other" in capsys.readouterr().out


FIGURES = {
    "iops": 1.2,
    "bw_bytes": 1.2,
    "total_ios": 1.2,
    "io_bytes": 1.2,
    "runtime": 1.2,
    "lat_ns.mean": 1.3,
    "lat_ns.N": 3,
}
"""The figures of a stream, and the factor from which on one that is edited alone is found out."""


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("more", [True, False])
def test_a_figure_that_is_edited_alone_contradicts_the_others(name: str, *, more: bool) -> None:
    (workload,) = parse_workload("rw=randread,bs=4k,iodepth=8")
    job = fio_job(workload, FILE, seconds=5.0, ramp_seconds=0.1, seed=7, clients=BOTH)
    factor = FIGURES[name] if more else 1 / FIGURES[name]

    def found(changed: Mapping[str, Any]) -> bool:
        parts = {"fio.json": json.dumps(changed).encode(), "counters.jsonl": b""}
        try:
            remarks = derive(parts, stack=Stack(rig="metal"), workload=workload).remarks
        except LoadError:  # it contradicts itself so much that it is not read
            return True
        return bool(judged(job, changed)) or any(one.weight is Weight.INVALID for one in remarks)

    result = told(job)
    assert not found(result)
    group, _, inner = name.partition(".")
    side = result["jobs"][0]["read"]
    where = side[group] if inner else side
    where[inner or group] = round(where[inner or group] * factor)
    if name == "io_bytes":
        side["io_kbytes"] = side["io_bytes"] // 1024
    assert found(result)
