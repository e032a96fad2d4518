# SPDX-License-Identifier: Apache-2.0
"""The job for a vhost-user-blk export: for fio's libblkio engine or for virtune-load, and what neither can carry."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import generator
from tests.plan.option_samples import SAMPLES
from tests.plan.sections import sections

from virtune.fio.generator import Clients
from virtune.fio.job import FioJob, fio_job
from virtune.fio.options import IN_FILES, SHAPING
from virtune.fio.workloads import GROUPS, PROFILES, parse_workload, read_job_file
from virtune.model.errors import PlanError, PreconditionError
from virtune.model.stack import FileTarget, GuestTarget, Target, VhostUserTarget
from virtune.model.study import Study, StudyKind
from virtune.model.workload import Workload
from virtune.plan.arms import arm_from_text
from virtune.plan.guests import clients_for, require_fit
from virtune.plan.loads import with_loads

MIB = 1024**2
TARGET = VhostUserTarget(socket="/run/v/disk.sock", size_bytes=64 * MIB, queues=2)
WITHOUT = frozenset({"io_uring", "libaio", "psync", "nbd"})
WITH = WITHOUT | {"libblkio"}


def job_for(workload: Workload, engines: frozenset[str] = WITHOUT) -> FioJob:
    return fio_job(workload, TARGET, seconds=1.5, ramp_seconds=0.25, seed=7, clients=Clients(engines=engines))


def written(text: str, engines: frozenset[str] = WITHOUT) -> FioJob:
    (workload,) = parse_workload(text)
    return job_for(workload, engines)


def options(text: str, engines: frozenset[str] = WITHOUT) -> dict[str, str]:
    found = sections(written(text, engines))
    assert found.pop("global") == {"thread": "1"}
    (only,) = found.values()
    return only


def test_without_libblkio_the_job_is_for_our_generator() -> None:
    job = written("randread-4k")
    assert job.program == "virtune-load"
    assert job.arguments == ("--readonly",)
    assert not job.direct
    assert sections(job)["randread-4k"] == {
        "ioengine": "libblkio",
        "libblkio_driver": "virtio-blk-vhost-user",
        "libblkio_path": "/run/v/disk.sock",
        "rw": "randread",
        "bs": "4096",
        "iodepth": "32",
        "size": str(64 * MIB),
        "runtime": "1500ms",
        "ramp_time": "250ms",
        "time_based": "1",
        "randrepeat": "0",
        "randseed": "8",
        "norandommap": "1",
        "clat_percentiles": "1",
        "lat_percentiles": "1",
        "percentile_list": "50:70:90:95:99:99.9:99.99",
    }


def test_with_libblkio_the_same_job_is_for_fio() -> None:
    job = written("log-sync-16k", WITH)
    assert (job.program, job.arguments) == ("fio", ())
    only = sections(job)["log-sync-16k"]
    assert (only["ioengine"], only["libblkio_path"], only["fsync"]) == ("libblkio", "/run/v/disk.sock", "1")


def test_our_generator_is_told_that_it_may_write_and_never_else() -> None:
    assert written("log-sync-16k").arguments == ("--allow-write",)
    assert written("rw=randread,iodepth=2 + rw=write,bs=64k").arguments == ("--allow-write",)


def test_what_means_nothing_there_is_left_out_and_said() -> None:
    job = written("rw=randread,direct=1,invalidate=1,fsync=1")
    assert not {"direct", "invalidate", "fsync"} & sections(job)["job1"].keys()
    assert [what for what, _ in job.chosen] == [
        "direct=1 is left out",
        "invalidate=1 is left out",
        "fsync=1 is left out",
    ]
    assert options("rw=randwrite,sync=1")["sync"] == "1"
    assert options("rw=randwrite,fdatasync=4")["fdatasync"] == "4"
    assert "sync" not in options("rw=randwrite,sync=none", WITH)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("io-engine", "a vhost-user-blk export, which ioengine=libaio cannot load"),
        ("rw=randread,direct=0", "direct=0 asks for a page cache"),
        ("rw=randread,iodepth=8192,numjobs=3", "offers 2 queues, so 16384 requests would be in flight on one"),
        ("rw=randread,hipri=1 + rw=read", "polls for all completions or for none, and hipri is not the same"),
        ("rw=randtrim", "virtune-load cannot do rw=randtrim: it has no trims"),
        ("rw=randread:8", "it has no offset modifiers"),
        ("rw=randrw,bs=4k,8k", "virtune-load cannot do bs=4k,8k: one block size only"),
        ("rw=randread,bsrange=4k-64k", "virtune-load has no bsrange"),
        ("rw=randread,thinktime=1ms", "virtune-load has no thinktime"),
        ("rw=randread,rate=1m", "virtune-load has no rate"),
        ("rw=randread,iodepth=10000", "cannot do iodepth=10000: it is not in 1..8192"),
        ("rw=randread,norandommap=0", "it keeps no map"),
        ("rw=randread,random_distribution=pareto:0.9", "it has random and zipf:THETA"),
        ("rw=read,random_distribution=zipf:1.2", "random_distribution needs a random rw"),
        ("rw=randwrite,fsync=1,fdatasync=1", "fsync and fdatasync are the same flush"),
        ("rw=randread,rate_iops=100,100,100", "two rates at most"),
        ("rw=randread,bs=64m,iodepth=256", "needs 16 GiB of buffers, and virtune-load takes 8 GiB"),
    ],
)
def test_what_our_generator_cannot_carry_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(PreconditionError, match=message):
        written(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rw=randwrite,sync=1", "would take sync and ignore it"),
        ("rw=randread,fixedbufs=1", "libblkio engine has no fixedbufs"),
        ("rw=randread,numjobs=3", "has 3 clones, fio gives each a queue, and the export offers 2 queues"),
        ("rw=randread + rw=read,numjobs=2", "the load has 3 clones"),
    ],
)
def test_what_fios_engine_would_ignore_is_refused(text: str, message: str) -> None:
    with pytest.raises(PreconditionError, match=message):
        written(text, WITH)


def test_fio_is_given_what_only_fio_can() -> None:
    assert options("rw=randread,bsrange=4k-64k", WITH)["bsrange"] == "4k-64k"


FILE = FileTarget(path="/var/tmp/a:b.raw", size_bytes=64 * MIB)
BOTH = Clients(engines=WITH, installed=True, alike=True)


def on(target: Target, text: str, clients: Clients = BOTH) -> FioJob:
    (workload,) = parse_workload(text)
    return fio_job(workload, target, seconds=1.5, ramp_seconds=0.25, seed=7, clients=clients)


def test_metal_is_loaded_by_the_client_of_the_exports_that_it_is_compared_with() -> None:
    file, export = on(FILE, "oltp-8k-70-30"), on(TARGET, "oltp-8k-70-30")
    assert (file.program, export.program) == ("virtune-load", "virtune-load")
    assert (file.arguments, file.direct, file.engines) == (("--allow-write",), True, frozenset({"io_uring"}))
    way = {"ioengine", "filename", "direct", "libblkio_driver", "libblkio_path"}
    mine, other = (sections(one)["oltp-8k-70-30"] for one in (file, export))
    assert {key: mine[key] for key in way & mine.keys()} == {
        "ioengine": "io_uring", "filename": "/var/tmp/a:b.raw", "direct": "1",
    }  # fmt: skip
    # but for the way to the disk the load is the same, word for word
    assert {k: v for k, v in mine.items() if k not in way} == {k: v for k, v in other.items() if k not in way}
    assert "by virtune-load" in [what for what, _ in file.chosen]


def test_a_file_is_loaded_by_fio_where_nothing_says_otherwise() -> None:
    assert on(FILE, "randread-4k", replace(BOTH, alike=False)).program == "fio"
    assert on(GuestTarget(path="/dev/vda", size_bytes=MIB), "randread-4k").program == "fio"
    for words in ("ioengine=libaio", "hipri=1", "bsrange=4k-64k", "direct=0"):
        assert on(FILE, f"rw=randread,{words}").program == "fio"
    own = read_job_file("[j]\nrw=randread\n", "own")
    assert fio_job(own, FILE, seconds=1.5, ramp_seconds=0.25, seed=7, clients=BOTH).program == "fio"


def test_our_generator_comes_before_fios_libblkio_where_it_is_installed_and_takes_the_load() -> None:
    assert on(TARGET, "randread-4k").program == "virtune-load"
    assert on(TARGET, "rw=randread,bsrange=4k-64k").program == "fio"
    assert on(TARGET, "randread-4k", Clients(engines=WITH)).program == "fio"


def test_who_loads_a_study_follows_from_its_arms_and_from_what_is_there() -> None:
    mixed = study_of("randread-4k", "metal:rig=metal", "vhost:rig=vhost-user")
    assert clients_for(mixed, engines=WITHOUT, installed=True) == Clients(engines=WITHOUT, installed=True, alike=True)
    assert not clients_for(mixed, engines=frozenset({"libaio"}), installed=True).alike
    assert not clients_for(mixed, engines=WITH, installed=False).alike
    plain = study_of("randread-4k", "metal:rig=metal", "nbd:")
    assert not clients_for(plain, engines=WITHOUT, installed=True).alike


@pytest.mark.real
@pytest.mark.parametrize("name", ["randread-4k", "oltp-8k-70-30", "log-sync-16k", "randread-4k,numjobs=4"])
def test_our_generator_takes_the_job_of_a_file(name: str, tmp_path: Path) -> None:
    disk = tmp_path / "a:b.raw"
    disk.write_bytes(b"\1" * MIB)
    (workload,) = parse_workload(name)
    job = fio_job(
        workload, FileTarget(path=str(disk), size_bytes=MIB), seconds=0.05, ramp_seconds=0, seed=1, clients=BOTH
    )
    (tmp_path / "job.fio").write_text(job.text)
    words = [generator(), *job.arguments, "--output-format=json+", "--eta=never", str(tmp_path / "job.fio")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, ""), job.text


def test_a_socket_that_could_end_a_line_is_refused() -> None:
    (workload,) = parse_workload("randread-4k")
    for socket in ("/a\nexec_prerun=x", "/a;b", "/a b", "/" + "x" * 107):
        target = VhostUserTarget(socket=socket, size_bytes=MIB)
        with pytest.raises(PreconditionError, match="cannot name the socket"):
            fio_job(workload, target, seconds=1, ramp_seconds=0, seed=1, clients=Clients(engines=WITHOUT))


OWN = "[global]\nbs=8k ; a comment\ndescription=mine\n[a]\nrw=randread\nsize=1m\n[b]\nrw=write\nzero_buffers\n"


def test_a_job_file_is_written_anew_for_our_generator_and_says_the_same() -> None:
    job = job_for(read_job_file(OWN, "own"))
    found = sections(job)
    assert (found["a"]["bs"], found["a"]["size"], found["a"]["runtime"]) == ("8192", str(MIB), "1500ms")
    assert (found["b"]["size"], found["b"]["zero_buffers"]) == (str(64 * MIB), "1")
    assert "refill_buffers" not in found["b"]
    assert job.chosen[0][0] == "the job file is written anew"
    assert job_for(read_job_file(OWN, "own"), WITH).text == OWN
    for line, message in (("loops=2", "virtune-load has no loops"), ("ioengine=libaio", "cannot load")):
        with pytest.raises(PreconditionError, match=message):
            job_for(read_job_file(f"[j]\nrw=read\n{line}\n", "own"))
    with pytest.raises(PlanError, match="the job file says runtime=60"):
        job_for(read_job_file("[j]\nrw=read\nruntime=60\n", "own"))


def study_of(workload: str, *arms: str) -> Study:
    made = tuple(arm_from_text(arm) for arm in arms)
    return Study(
        id="s", created="", kind=StudyKind.COMPARE, arms=made, baseline=made[0].name,
        workloads=parse_workload(workload), rounds=1, seconds=1, ramp_seconds=0, seed=1, scratch="/s",
        span_bytes=2**24,
    )  # fmt: skip


def test_it_is_refused_before_anything_is_made() -> None:
    study = study_of("rw=randread,numjobs=2", "nbd:", "vhost:rig=vhost-user")
    with pytest.raises(PreconditionError, match=r"arm vhost cannot carry .*: the load has 2 clones") as caught:
        require_fit(study, clients=Clients(engines=WITH))
    assert "export.num_queues=2" in (caught.value.hint or "")


QUEUES = ("one:rig=vhost-user", "two:rig=vhost-user,export.num_queues=2", "four:rig=vhost-user,export.num_queues=4")


def test_four_clones_are_the_same_load_on_one_two_and_four_queues() -> None:
    require_fit(study_of("randread-4k,numjobs=4", *QUEUES), clients=Clients(engines=WITHOUT))
    ours = Clients(engines=WITHOUT)
    texts = {on(replace(TARGET, queues=queues), "randread-4k,numjobs=4", ours).text for queues in (1, 2, 4)}
    assert len(texts) == 1


def test_queues_that_no_clone_takes_are_no_arm() -> None:
    with pytest.raises(PreconditionError, match=r"arm two cannot carry .*: the load drives 1 of 2") as caught:
        require_fit(study_of("randread-4k", *QUEUES), clients=Clients(engines=WITHOUT))
    assert "numjobs=2" in (caught.value.hint or "")
    # at an offered load one I/O at a time is measured besides, which is of one clone by its nature
    offered = replace(study_of("randread-4k,numjobs=4", *QUEUES), at_load=("50%",))
    require_fit(with_loads(offered), clients=Clients(engines=WITHOUT))


NAMED = [name for name in (*GROUPS, *PROFILES) if "engine" not in name]
VALUES = ("0", "1", "7", "4k", "4KiB", "1M", "50%", "99.9", "zipf:1.2", "zipf:0", "none", "10,20", "10k", "2s")


def accepted(workload: Workload, place: Path) -> bool:
    """Whether the plan lets a workload through; virtune-load must then take every word of it."""
    try:
        job = job_for(workload)
    except (PlanError, PreconditionError):
        return False
    file = place / "job.fio"
    file.write_text(job.text)
    words = [generator(), *job.arguments, "--output-format=json+", "--eta=never", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    # 2 is a mistake in the words, 1 that nobody listens on the socket
    assert (done.returncode, "No such file" in done.stderr) == (1, True), (job.text, done.stderr)
    return True


@pytest.mark.real
@pytest.mark.parametrize("name", NAMED)
def test_our_generator_takes_every_profile(name: str, tmp_path: Path) -> None:
    for workload in parse_workload(name):
        assert accepted(workload, tmp_path)


@pytest.mark.real
def test_our_generator_takes_every_word_that_is_let_through(tmp_path: Path) -> None:
    taken = set()
    for name in {**SHAPING, **IN_FILES}:
        for value in (SAMPLES.get(name, "1"), *VALUES):
            for pattern in ("randrw", "read", "write"):
                lines = {"rw": pattern, name: value}
                text = "[j]\n" + "".join(f"{key}={each}\n" for key, each in lines.items())
                try:
                    workload = read_job_file(text, "own")
                except PlanError:
                    continue
                if accepted(workload, tmp_path):
                    taken.add(name)
    assert {"bs", "iodepth", "rate_iops", "random_distribution", "fsync", "sync", "hipri", "size"} <= taken


@pytest.mark.real
@pytest.mark.parametrize("block", ["512", "4k", "16k", "1m", "64m"])
def test_our_generator_takes_every_depth_that_is_let_through(block: str, tmp_path: Path) -> None:
    for pattern in ("randread", "randwrite", "rw"):
        for depth in (1, 127, 128, 8192, 8193):
            workload = parse_workload(f"rw={pattern},bs={block},iodepth={depth},number_ios=3")[0]
            fits = depth <= 8192 and depth * workload.jobs[0].block_size <= 8 * 2**30
            assert accepted(workload, tmp_path) is fits
