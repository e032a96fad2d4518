# SPDX-License-Identifier: Apache-2.0
"""The fio job that follows from a workload and a target: what is written, chosen, refused."""

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.plan.sections import sections

from virtune.fio.generator import Clients
from virtune.fio.job import COUNTED_SECONDS, FioJob, fio_job
from virtune.fio.workloads import PROFILES, parse_workload, read_job_file
from virtune.model.errors import PlanError, PreconditionError, VirtuneError
from virtune.model.stack import FileTarget, NbdTarget, Target
from virtune.model.workload import Job, Workload

MIB = 1024**2
FILE = FileTarget(path="/scratch/image.raw", size_bytes=64 * MIB)
NBD = NbdTarget(socket="/run/v/nbd.sock", export="disk0", size_bytes=64 * MIB)
ALL = frozenset({"io_uring", "libaio", "psync", "sync", "mmap", "splice", "nbd", "pvsync2"})


def written(text: str, target: Target = FILE, *, engines: frozenset[str] = ALL, seed: int = 7) -> FioJob:
    (workload,) = parse_workload(text)
    return fio_job(workload, target, seconds=1.5, ramp_seconds=0.25, seed=seed, clients=Clients(engines=engines))


def options(text: str, target: Target = FILE, *, engines: frozenset[str] = ALL) -> dict[str, str]:
    found = sections(written(text, target, engines=engines))
    assert found.pop("global") == {"thread": "1"}
    (only,) = found.values()
    return only


def test_a_file_gets_the_whole_job() -> None:
    job = written("randread-4k")
    assert job.text.splitlines()[0] == "# randread-4k: written by virtune"
    assert sections(job) == {
        "global": {"thread": "1"},
        "randread-4k": {
            "filename": "/scratch/image.raw",
            "ioengine": "io_uring",
            "direct": "1",
            "invalidate": "1",
            "allow_file_create": "0",
            "rw": "randread",
            "bs": "4k",
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
        },
    }
    assert job.direct
    assert job.arguments == ("--readonly",)
    assert [what for what, _ in job.chosen] == ["ioengine=io_uring", "direct=1"]


def test_an_export_gets_fios_nbd_engine() -> None:
    job = written("log-sync-16k", NBD)
    only = sections(job)["log-sync-16k"]
    assert only["ioengine"] == "nbd"
    assert only["uri"] == "nbd+unix:///disk0?socket=/run/v/nbd.sock"
    assert only["fsync"] == "1"
    assert only["refill_buffers"] == "1"
    assert not {"filename", "direct", "invalidate", "allow_file_create"} & only.keys()
    assert job.arguments == ()
    assert not job.direct


@pytest.mark.parametrize(
    ("engines", "engine"), [(ALL, "io_uring"), (ALL - {"io_uring"}, "libaio"), (frozenset({"psync", "nbd"}), "psync")]
)
def test_the_best_engine_that_fio_has_is_taken(engines: frozenset[str], engine: str) -> None:
    assert options("randread-4k", engines=engines)["ioengine"] == engine


def test_an_option_of_one_engine_chooses_it() -> None:
    assert options("rw=read,userspace_reap=1")["ioengine"] == "libaio"


@pytest.mark.parametrize(
    ("words", "engines", "expected"),
    [
        ("iodepth=3", {"io_uring", "libaio", "psync"}, "libaio"),
        ("iodepth=12,numjobs=2", {"io_uring", "libaio", "psync"}, "libaio"),
        ("iodepth=32", {"io_uring", "libaio", "psync"}, "io_uring"),
        ("iodepth=3", {"io_uring", "psync"}, "io_uring"),
        ("iodepth=3", {"libaio", "psync"}, "libaio"),
        ("iodepth=3,direct=0", {"io_uring", "libaio"}, "io_uring"),  # libaio would hold one in flight
        ("iodepth=3,hipri", {"io_uring", "libaio"}, "io_uring"),
        ("iodepth=3,ioengine=io_uring", {"io_uring", "libaio"}, "io_uring"),
    ],
)
def test_a_depth_that_io_uring_is_not_given_is_libaio_s(words: str, engines: set[str], expected: str) -> None:
    job = written(f"rw=randread,{words}", engines=frozenset(engines))
    assert f"ioengine={expected}" in job.text.splitlines()
    told = any("fio before 3.39" in why for _, why in job.chosen)
    assert told == (expected == "libaio" and "io_uring" in engines), "of io_uring nothing is said where there is none"
    with pytest.raises(PreconditionError, match="no engine for the workload"):
        options("rw=read,sqthread_poll", engines=frozenset({"psync"}))


def test_what_the_workload_says_stands() -> None:
    only = options("rw=randwrite,direct=0,ioengine=psync,invalidate=0,norandommap=0,randseed=5,zero_buffers")
    assert (only["direct"], only["ioengine"], only["invalidate"], only["norandommap"]) == ("0", "psync", "0", "0")
    assert only["randseed"] == "5"
    assert "randrepeat" not in only
    assert "refill_buffers" not in only


def test_the_page_cache_is_named() -> None:
    job = written("fio-engines-mmap")
    assert ("direct=0", "ioengine=mmap always goes through the page cache") in job.chosen
    assert not job.direct
    assert any("acts as 1" in what for what, _ in written("rw=read,ioengine=psync,iodepth=8").chosen)
    assert any("may act as 1" in what for what, _ in written("rw=read,ioengine=libaio,direct=0,iodepth=8").chosen)


def test_clones_are_reported_together_and_different_jobs_are_not() -> None:
    found = sections(written("rw=randread,numjobs=4,name=r + rw=write,name=w"))
    assert found["r"]["group_reporting"] == "1"
    assert found["r"]["new_group"] == found["w"]["new_group"] == "1"
    assert "group_reporting" not in found["w"]


def test_a_counted_job_ends_by_itself() -> None:
    only = options("rw=randread,number_ios=23")
    assert not {"time_based", "ramp_time", "runtime"} & only.keys()  # on a slow disk a runtime would cut it


def test_what_only_disturbs_lasts_as_long_as_the_counted_job() -> None:
    found = sections(written("name=each,rw=randread,number_ios=100 + name=background,rw=randread,numjobs=2"))
    assert (found["each"]["exitall"], found["each"]["exit_what"]) == ("1", "all")
    assert "runtime" not in found["each"]
    assert (found["background"]["time_based"], found["background"]["runtime"]) == ("1", f"{COUNTED_SECONDS}s")
    other = sections(written("name=each,rw=randread,number_ios=100 + name=beside,rw=randread"))
    assert other["beside"]["runtime"] == "1500ms"
    assert "exitall" not in other["each"]


def test_shares_become_bytes_of_the_target() -> None:
    only = options("rw=read,offset=50%,size=25%")
    assert (only["offset"], only["size"]) == (str(32 * MIB), str(16 * MIB))
    assert options("rw=read,offset=1m")["size"] == str(63 * MIB)
    only = options("rw=read,offset_increment=16m,numjobs=4")
    assert (only["offset_increment"], only["size"]) == (str(16 * MIB), str(16 * MIB))


@pytest.mark.parametrize(
    "text",
    [
        "rw=read,size=65m",
        "rw=read,offset=32m,size=33m",
        "rw=read,offset_increment=20m,numjobs=4,size=20m",
        "rw=read,size=0",
    ],
)
def test_nothing_beyond_the_target_is_touched(text: str) -> None:
    with pytest.raises(PreconditionError, match="the target has 64 MiB"):
        written(text)


def test_a_target_smaller_than_a_block_is_refused() -> None:
    with pytest.raises(PreconditionError, match="needs 1 MiB"):
        written("seqread-1m", replace(FILE, size_bytes=4096))


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("rw=read,ioengine=libaio", "NBD export", "disk.export=fuse"),
        ("rw=write,sync=1", "O_SYNC", "fsync=1"),
        ("rw=write,sync=dsync", "O_SYNC", "fsync=1"),
        ("rw=read,direct=0", "page cache", "fuse"),
        ("rw=read,hipri", "no hipri", "fuse"),
        ("rw=write,sync_file_range=write:1", "no sync_file_range", "fuse"),
        ("rw=write,fsync=1,fdatasync=1", "same flush", "fuse"),
    ],
)
def test_what_nbd_cannot_say_is_refused(text: str, message: str, hint: str) -> None:
    with pytest.raises(PreconditionError, match=message) as caught:
        written(text, NBD)
    assert hint in (caught.value.hint or "")


def test_what_means_nothing_over_nbd_is_left_out_and_said() -> None:
    job = written("rw=write,direct=1,sync=none,invalidate=1,fdatasync=4", NBD)
    (only,) = [found for name, found in sections(job).items() if name != "global"]
    assert not {"direct", "sync", "invalidate", "fdatasync"} & only.keys()
    assert only["fsync"] == "4"
    assert len(job.chosen) == 4


def test_the_engine_must_fit_the_target_and_be_there() -> None:
    with pytest.raises(PreconditionError, match="the target is a file"):
        written("rw=read,ioengine=nbd")
    with pytest.raises(PreconditionError, match="no engine libaio"):
        written("rw=read,ioengine=libaio", engines=frozenset({"psync"}))
    with pytest.raises(PreconditionError, match="no engine nbd"):
        written("rw=read", NBD, engines=frozenset({"psync"}))


def test_a_colon_in_the_path_is_escaped() -> None:
    job = written("randread-4k", replace(FILE, path="/scratch/a:b c=é.raw"))
    assert "filename=/scratch/a\\:b c=é.raw\n" in job.text


@pytest.mark.parametrize(
    "path",
    ["/a#b", "/a;b", "/a$b", "/a`b", "/a\\b", "/a%b", "/a\nb", " /a", "/a ", "a", "-", "/\udcff", "/" + "a" * 1001],
)
def test_a_path_that_a_job_file_cannot_name_is_refused(path: str) -> None:
    with pytest.raises(PreconditionError, match="cannot name"):
        written("randread-4k", replace(FILE, path=path))


@pytest.mark.parametrize("socket", ["/a b", "/a&b", "/a\nb", "/a#b", "/a%20", "", "/" + "a" * 200])
def test_an_address_that_a_job_file_cannot_name_is_refused(socket: str) -> None:
    with pytest.raises(PreconditionError, match="cannot name"):
        written("randread-4k", replace(NBD, socket=socket))


@pytest.mark.parametrize("seed", [0, 1, 2**31 - 2, 2**80, -5])
def test_the_seed_is_never_zero_and_always_small(seed: int) -> None:
    found = sections(written("randread-4k", seed=seed))["randread-4k"]["randseed"]
    assert 0 < int(found) < 2**31


def test_jobs_with_and_without_direct_are_refused_together() -> None:
    with pytest.raises(PlanError, match="disturb each other"):
        written("rw=read,direct=0 + rw=write,direct=1")


@pytest.mark.parametrize(
    ("seconds", "ramp"), [(0, 0), (-1, 0), (1e9, 0), (1, -1), (float("nan"), 0), (1, float("inf"))]
)
def test_times_that_cannot_be_are_refused(seconds: float, ramp: float) -> None:
    (workload,) = parse_workload("randread-4k")
    with pytest.raises(PlanError, match="cannot run"):
        fio_job(workload, FILE, seconds=seconds, ramp_seconds=ramp, seed=1, clients=Clients(engines=ALL))


@pytest.mark.parametrize(
    "options",
    [
        {"rw": "read\nfilename=/dev/sda"},
        {"filename": "/dev/sda"},
        {"exec_prerun": "id"},
        {"bs": "4k;"},
        {"readwrite": "read"},
    ],
)
def test_a_workload_from_elsewhere_is_checked_again(options: dict[str, str]) -> None:
    workload = Workload(name="w", meaning="", jobs=(Job(name="j", options=tuple(options.items())),))
    with pytest.raises(PlanError):
        fio_job(workload, FILE, seconds=1, ramp_seconds=0, seed=1, clients=Clients(engines=ALL))
    named = Workload(name="w", meaning="", jobs=(Job(name="j]\n[x", options=(("rw", "read"),)),))
    with pytest.raises(PlanError):
        fio_job(named, FILE, seconds=1, ramp_seconds=0, seed=1, clients=Clients(engines=ALL))
    with pytest.raises(PlanError, match="no job"):
        fio_job(replace(named, jobs=()), FILE, seconds=1, ramp_seconds=0, seed=1, clients=Clients(engines=ALL))


def unchanged(text: str, target: Target = FILE) -> FioJob:
    return fio_job(
        read_job_file(text, "own"), target, seconds=1.5, ramp_seconds=0.25, seed=7, clients=Clients(engines=ALL)
    )


def test_a_job_file_runs_unchanged_with_defaults_before_it() -> None:
    text = "[j]\nrw=randwrite\nioengine=libaio\ndirect=1\n"
    job = unchanged(text)
    assert job.text == text
    assert job.direct
    assert job.arguments == (
        "--thread=1",
        "--filename=/scratch/image.raw",
        f"--size={64 * MIB}",
        "--allow_file_create=0",
        "--randrepeat=0",
        "--randseed=8",
        "--refill_buffers=1",
        "--clat_percentiles=1",
        "--lat_percentiles=1",
        "--percentile_list=50:70:90:95:99:99.9:99.99",
        "--runtime=1500ms",
        "--ramp_time=250ms",
        "--time_based=1",
    )


def test_a_job_file_over_nbd_gets_the_engine_before_it() -> None:
    job = unchanged("[j]\nrw=randread\ndirect=1\n", NBD)
    assert job.arguments[:4] == (
        "--readonly",
        "--thread=1",
        "--ioengine=nbd",
        "--uri=nbd+unix:///disk0?socket=/run/v/nbd.sock",
    )


def test_the_engines_of_a_job_are_those_that_fio_takes() -> None:
    text = "[global]\nioengine=libaio   # as the application does\nrw=randread\n[data]\n[wal]\nioengine=psync\n"
    assert unchanged(text).engines == {"libaio", "psync"}
    assert unchanged("[j]\nrw=read\n").engines == {"psync"}
    assert unchanged("[j]\nrw=read\n", NBD).engines == {"nbd"}


def test_a_job_file_that_counts_is_not_made_endless() -> None:
    counted = unchanged("[j]\nrw=read\nnumber_ios=23\n").arguments
    assert not [word for word in counted if word.startswith(("--time_based", "--runtime"))]
    assert "--runtime=1500ms" in unchanged("[j]\nrw=read\nnumber_ios=23\n[k]\nrw=read\n").arguments
    assert "--refill_buffers=1" not in unchanged("[j]\nrw=write\nzero_buffers\n").arguments
    assert not unchanged("[j]\nrw=read\n").direct


@pytest.mark.parametrize(
    ("text", "target", "error", "message"),
    [
        ("[j]\nrw=read\nioengine=libaio\n", NBD, PreconditionError, "NBD export"),
        ("[j]\nrw=write\nfdatasync=1\n", NBD, PreconditionError, "fdatasync"),
        ("[j]\nrw=write\nsync=1\n", NBD, PreconditionError, "O_SYNC"),
        ("[j]\nrw=read\nioengine=posixaio\n", FILE, PreconditionError, "no engine posixaio"),
        ("[j]\nrw=read\nsize=1g\n", FILE, PreconditionError, "the target has 64 MiB"),
        ("[j]\nrw=read\nsize=50%\n", FILE, PlanError, "share"),
        ("[j]\nrw=read\noffset=1m\n", FILE, PlanError, "offset without size"),
        ("[j]\nrw=read\nruntime=60\n", FILE, PlanError, "runtime=60"),
        ("[j]\nrw=read\nramp_time=1s\n", FILE, PlanError, "ramp_time=1s"),
        ("[j]\nrw=read\n[k]\nrw=read\ndirect=1\n", FILE, PlanError, "disturb"),
    ],
)
def test_a_job_file_that_cannot_be_meant_here_is_refused(
    text: str, target: Target, error: type[VirtuneError], message: str
) -> None:
    with pytest.raises(error, match=message):
        unchanged(text, target)


def test_a_job_files_own_times_must_be_the_studys() -> None:
    assert unchanged("[j]\nrw=read\nruntime=1500ms\nramp_time=250000us\n").text


words = st.sampled_from(["size=50%", "offset=1m", "numjobs=3", "offset_increment=1%", "bs=1m", "direct=0", "sync=1"])
texts = st.one_of(
    st.sampled_from(sorted(PROFILES)),
    st.lists(words, max_size=4, unique=True).map(lambda extra: ",".join(["rw=randrw", *extra])),
)


@example("rw=randrw,offset_increment=1%", FILE, 4096, {"psync"})
@given(texts, st.sampled_from([FILE, NBD]), st.integers(0, 2**30), st.sets(st.sampled_from(sorted(ALL))))
def test_every_job_stays_on_its_target(text: str, target: Target, size: int, engines: set[str]) -> None:
    with suppress(PlanError, PreconditionError):
        job = written(text, replace(target, size_bytes=size), engines=frozenset(engines))
        for name, found in sections(job).items():
            if name != "global":
                last = int(found.get("offset_increment", "0")) * (int(found.get("numjobs", "1")) - 1)
                assert int(found.get("offset", "0")) + last + int(found["size"]) <= size
