# SPDX-License-Identifier: Apache-2.0
"""What the plan room writes, run by the fio and the storage daemon that are installed."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import eventually
from tests.plan.option_samples import SAMPLES

from virtune.fio.generator import Clients
from virtune.fio.job import FioJob, fio_job
from virtune.fio.options import ENGINE_OPTIONS, ENGINES, IN_FILES, SHAPING
from virtune.fio.workloads import PROFILES, parse_workload, read_job_file
from virtune.model.stack import FileTarget, NbdTarget, Target
from virtune.model.workload import Workload

pytestmark = pytest.mark.real

SIZE = 8 * 1024**2
SECONDS = 0.3
"""Long enough that a disk which others load as well answers at least once."""


@pytest.fixture(scope="session")
def engines() -> frozenset[str]:
    listing = subprocess.run(["fio", "--enghelp"], capture_output=True, text=True, check=True, timeout=120).stdout
    return frozenset(line.strip() for line in listing.splitlines() if line.startswith("\t"))


@pytest.fixture
def image(tmp_path: Path) -> FileTarget:
    path = tmp_path / "image.raw"
    path.write_bytes(os.urandom(SIZE))
    return FileTarget(path=str(path), size_bytes=SIZE)


@pytest.fixture
def export(image: FileTarget, tmp_path: Path) -> Iterator[NbdTarget]:
    socket = tmp_path / "nbd.sock"
    daemon = subprocess.Popen(
        [
            "qemu-storage-daemon",
            *("--blockdev", f"driver=file,filename={image.path},node-name=f"),
            *("--nbd-server", f"addr.type=unix,addr.path={socket},max-connections=0"),
            *("--export", "type=nbd,id=e,node-name=f,name=disk0,writable=on"),
        ]
    )
    try:
        assert eventually(socket.exists)
        yield NbdTarget(socket=str(socket), export="disk0", size_bytes=SIZE)
    finally:
        daemon.terminate()
        daemon.wait(60)


def plan(workload: Workload, target: Target, engines: frozenset[str]) -> FioJob:
    return fio_job(workload, target, seconds=SECONDS, ramp_seconds=0.05, seed=3, clients=Clients(engines=engines))


def run(job: FioJob, tmp_path: Path) -> dict[str, Any]:
    file, output = tmp_path / "job.fio", tmp_path / "fio.json"
    file.write_text(job.text)
    words = ["fio", *job.arguments, "--output-format=json+", f"--output={output}", "--eta=never", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path)
    text = output.read_text()
    assert done.returncode == 0, done.stderr + text[:500]
    found: dict[str, Any] = json.loads(text[text.index("{") :])
    return found


def check(found: dict[str, Any], workload: Workload) -> None:
    assert all(job["error"] == 0 for job in found["jobs"])
    for direction, wanted in (("read", workload.reads), ("write", workload.writes)):
        ios = sum(job[direction]["total_ios"] for job in found["jobs"])
        assert (ios > 0) is wanted, direction
    runtimes = [job[way]["runtime"] for job in found["jobs"] for way in ("read", "write") if job[way]["total_ios"]]
    # what is in flight at the end is waited for, and on a busy disk a flush takes seconds
    assert all(SECONDS * 950 <= runtime <= SECONDS * 1000 + 20_000 for runtime in runtimes), runtimes
    flow = found["jobs"][0]["read" if workload.reads else "write"]
    assert flow["clat_ns"]["bins"]
    assert flow["lat_ns"]["bins"]
    assert "99.990000" in flow["clat_ns"]["percentile"]


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_runs_on_a_file(name: str, image: FileTarget, engines: frozenset[str], tmp_path: Path) -> None:
    (workload,) = parse_workload(name)
    found = run(plan(workload, image, engines), tmp_path)
    check(found, workload)
    assert len(found["jobs"]) == 1
    assert Path(image.path).stat().st_size == SIZE


@pytest.mark.parametrize(
    "text",
    [
        *("randread-4k", "seqwrite-1m", "oltp-8k-70-30", "log-sync-16k"),
        *("rw=randwrite,fdatasync=1", "rw=randread,numjobs=3,iodepth=4", "rw=randread,size=50%,offset=50%,direct=1"),
    ],
)
def test_what_names_no_engine_runs_over_nbd(
    text: str, export: NbdTarget, engines: frozenset[str], tmp_path: Path
) -> None:
    (workload,) = parse_workload(text)
    found = run(plan(workload, export, engines), tmp_path)
    check(found, workload)
    if "fsync" in text or "fdatasync" in text or "log" in text:
        assert found["jobs"][0]["sync"]["total_ios"] > 0


def test_different_jobs_are_reported_apart_and_clones_together(
    image: FileTarget, engines: frozenset[str], tmp_path: Path
) -> None:
    (workload,) = parse_workload("name=r,rw=randread,numjobs=3 + name=w,rw=write,bs=16k")
    found = run(plan(workload, image, engines), tmp_path)
    assert [job["jobname"] for job in found["jobs"]] == ["r", "w"]
    assert found["jobs"][0]["job options"]["numjobs"] == "3"
    assert found["jobs"][0]["write"]["total_ios"] == found["jobs"][1]["read"]["total_ios"] == 0


def test_a_counted_job_does_exactly_so_many(image: FileTarget, engines: frozenset[str], tmp_path: Path) -> None:
    (workload,) = parse_workload("rw=randread,number_ios=23")
    assert run(plan(workload, image, engines), tmp_path)["jobs"][0]["read"]["total_ios"] == 23


def test_what_only_disturbs_ends_with_the_counted_job(
    image: FileTarget, engines: frozenset[str], tmp_path: Path
) -> None:
    """At 40 a second 30 I/Os take longer than the slice, and far shorter than what disturbs could last."""
    (workload,) = parse_workload("name=each,rw=randread,number_ios=30,rate_iops=40 + name=background,rw=randread")
    each, background = run(plan(workload, image, engines), tmp_path)["jobs"]
    assert each["read"]["total_ios"] == 30
    assert each["read"]["runtime"] > SECONDS * 1000 + 200
    assert abs(background["read"]["runtime"] - each["read"]["runtime"]) < 20_000


@pytest.mark.parametrize(
    "words",
    [
        *(
            "random_distribution=zoned:50/5:30/15:20/",
            "random_distribution=zoned_abs:60/1m:30/2m:10/1m",
            "rate=,12500k",
        ),
        *("rate_iops=500,,100", "percentile_list=99:99.9999999", "buffered=0", "verify=0\nnrfiles=1\noverwrite=0"),
        "name=my reader",
    ],
)
def test_what_a_job_file_may_say_fio_takes(
    words: str, image: FileTarget, engines: frozenset[str], tmp_path: Path
) -> None:
    workload = read_job_file(f"[j]\nrw=randread\nbs=4k\nsize=4m\n{words}\n", "mine.fio")
    (found,) = run(plan(workload, image, engines), tmp_path)["jobs"]
    assert (found["error"], found["jobname"].replace(" ", "_")) == (0, workload.jobs[0].name)
    assert found["read"]["total_ios"] > 0


def test_a_path_with_odd_characters_is_the_one_that_is_loaded(engines: frozenset[str], tmp_path: Path) -> None:
    path = tmp_path / "a:b c=d,é'\"[x].raw"
    path.write_bytes(os.urandom(SIZE))
    target = FileTarget(path=str(path), size_bytes=SIZE)
    (workload,) = parse_workload("randwrite-4k")
    before = path.read_bytes()
    run(plan(workload, target, engines), tmp_path)
    assert path.read_bytes() != before
    own = read_job_file("[j]\nrw=randwrite\ndirect=1\n", "own")
    before = path.read_bytes()
    run(plan(own, target, engines), tmp_path)
    assert path.read_bytes() != before


OWN = """\
[global]
bs=8k # a comment
[reader]
rw=randread
iodepth=4
[writer]
rw =randwrite
numjobs=2
group_reporting
new_group
"""


def test_a_job_file_runs_unchanged_on_a_file(image: FileTarget, engines: frozenset[str], tmp_path: Path) -> None:
    workload = read_job_file(OWN.replace("iodepth=4", "ioengine=libaio\niodepth=4"), "own")
    found = run(plan(workload, image, engines), tmp_path)
    check(found, workload)
    assert [job["jobname"] for job in found["jobs"]] == ["reader", "writer"]
    assert found["global options"]["randseed"] == "4"
    assert found["jobs"][0]["job options"] == {"rw": "randread", "ioengine": "libaio", "iodepth": "4"}


def test_a_job_file_runs_unchanged_over_nbd(export: NbdTarget, engines: frozenset[str], tmp_path: Path) -> None:
    workload = read_job_file(OWN, "own")
    found = run(plan(workload, export, engines), tmp_path)
    check(found, workload)
    assert found["global options"]["ioengine"] == "nbd"


def test_a_reader_cannot_lose_a_file_that_became_shorter(
    image: FileTarget, engines: frozenset[str], tmp_path: Path
) -> None:
    os.truncate(image.path, SIZE // 2)
    job = plan(parse_workload("randread-4k")[0], image, engines)
    file = tmp_path / "job.fio"
    file.write_text(job.text)
    words = ["fio", *job.arguments, f"--output={tmp_path / 'out'}", "--eta=never", str(file)]
    subprocess.run(words, capture_output=True, check=False, timeout=120)
    assert Path(image.path).stat().st_size == SIZE // 2


@pytest.mark.parametrize("in_file", [False, True])
def test_every_option_that_is_allowed_is_one_of_fios(tmp_path: Path, *, in_file: bool) -> None:
    """One job an option, all in one file: fio reads them all or names the one it does not know."""
    options = IN_FILES if in_file else SHAPING
    lines = []
    for name, option in options.items():
        value = SAMPLES.get(name, "1")
        option.check(value)
        engine = ENGINE_OPTIONS.get(name, ("psync",))[0]
        lines += [f"[{name}]", "thread=1", "rw=randrw", f"ioengine={engine}", f"{name}={value}", "size=1m"]
    file = tmp_path / "job.fio"
    file.write_text("\n".join(lines) + "\n")
    words = ["fio", "--parse-only", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Bad option" not in done.stdout + done.stderr


def test_every_engine_that_fio_has_runs(image: FileTarget, engines: frozenset[str], tmp_path: Path) -> None:
    for engine in (e for e in ENGINES if e in engines and e != "nbd"):
        (workload,) = parse_workload(f"rw=randrw,ioengine={engine}")
        run(
            fio_job(workload, image, seconds=0.05, ramp_seconds=0, seed=1, clients=Clients(engines=engines)), tmp_path
        )
