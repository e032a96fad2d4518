# SPDX-License-Identifier: Apache-2.0
"""A job that ends when its load is steady, as the fio that is installed runs it, and what is read of its result."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.plan.forecast_studies import METAL, study_on

from virtune.fio.as_asked import load_checks
from virtune.fio.generator import Clients
from virtune.fio.job import FioJob, fio_job
from virtune.fio.steady import filling, steady_found, steady_job, written_bytes
from virtune.fio.workloads import parse_workload
from virtune.model.errors import LoadError
from virtune.model.stack import FileTarget
from virtune.model.steady import Preconditioned, Steadied, SteadyRule, read_steady_rule
from virtune.model.study import Study
from virtune.model.workload import Workload
from virtune.plan.trials import TimedStudy, seen_of, setup_seconds, steady_seconds

SIZE = 8 * 1024**2
RULE = SteadyRule(criterion="iops_slope", percent=50.0, window_seconds=2, limit_seconds=20.0)
(LOAD,) = parse_workload("rw=randread,bs=4k,iodepth=2,numjobs=2,rate_iops=200")
(SECOND,) = parse_workload("rw=randwrite,bs=8k,iodepth=1,rate_iops=50")
STEADY = Steadied(
    arm="arm0", workload="w", rule=RULE.text, attained=True, seconds=40.0, iops=12345.0, found_percent=-0.123
)


@pytest.fixture
def image(tmp_path: Path) -> FileTarget:
    path = tmp_path / "image.raw"
    path.write_bytes(os.urandom(SIZE))
    return FileTarget(path=str(path), size_bytes=SIZE)


def job_of(workload: Workload, image: FileTarget) -> FioJob:
    clients = Clients(engines=frozenset({"io_uring", "libaio", "psync"}))
    return fio_job(workload, image, seconds=RULE.limit_seconds, ramp_seconds=0.0, seed=1, clients=clients)


def ran(job: FioJob, place: Path) -> bytes:
    file = place / "job.fio"
    file.write_text(job.text)
    command = ["fio", *job.arguments, "--output-format=json+", str(file)]
    return subprocess.run(command, capture_output=True, check=True, timeout=120).stdout


@pytest.mark.real
def test_several_jobs_are_steady_together_and_the_result_is_of_that_job(tmp_path: Path, image: FileTarget) -> None:
    both = Workload(name="both", meaning="", jobs=(*LOAD.jobs, replace(SECOND.jobs[0], name="second")))
    job = steady_job(job_of(both, image), both, RULE, ramp_seconds=0.5)
    assert (
        "steadystate=iops_slope:50%\nsteadystate_duration=2\nsteadystate_ramp_time=1\ngroup_reporting=1" in job.text
    )
    assert "new_group" not in job.text
    output = ran(job, tmp_path)
    document: dict[str, Any] = json.loads(output)
    (entry,) = document["jobs"]
    found = steady_found(output)
    assert found.attained
    assert found.seconds < RULE.limit_seconds
    samples = entry["steadystate"]["data"]["iops"]
    assert found.iops == pytest.approx(np.mean(samples), abs=1)
    assert found.iops == pytest.approx(2 * 200 + 50, rel=0.3), "of both jobs"
    assert [one for one in load_checks(job, output) if not one.agrees] == []


@pytest.mark.real
def test_what_fio_finds_is_the_slope_of_its_samples_and_another_rule_is_noticed(
    tmp_path: Path, image: FileTarget
) -> None:
    rule = replace(RULE, window_seconds=4)
    output = ran(job := steady_job(job_of(LOAD, image), LOAD, rule, ramp_seconds=0.0), tmp_path)
    found, document = steady_found(output), json.loads(output)
    samples = document["jobs"][0]["steadystate"]["data"]["iops"]
    slopes = [100 * np.polyfit(range(4), np.roll(samples, by), 1)[0] / np.mean(samples) for by in range(4)]
    assert found.percent is not None
    assert min(abs(slope - found.percent) for slope in slopes) < 0.5, "the samples stand in a ring"
    assert [one for one in load_checks(job, output) if not one.agrees] == []
    document["global options"]["steadystate"] = "iops_slope:90%"
    wrong = [one for one in load_checks(job, json.dumps(document).encode()) if not one.agrees]
    assert [(one.setting, one.asked, one.found) for one in wrong] == [
        ("load.steadystate", "iops_slope:50%", "iops_slope:90%")
    ]


@pytest.mark.real
def test_a_disk_is_filled_once(tmp_path: Path, image: FileTarget) -> None:
    before = Path(image.path).read_bytes()
    output = ran(job_of(filling(SIZE, disks=1), image), tmp_path)
    after = Path(image.path).read_bytes()
    assert written_bytes(output) == SIZE == len(after)
    assert all(before[at : at + 4096] != after[at : at + 4096] for at in range(0, SIZE, 4096))


@pytest.mark.parametrize("text", ["", "{}", '{"jobs": [{"jobname": "a", "read": {}}]}'])
def test_a_result_that_says_nothing_of_it_is_refused(text: str) -> None:
    with pytest.raises(LoadError, match="says nothing of its steadystate"):
        steady_found(text.encode())


def test_a_rule_is_read_as_it_is_written() -> None:
    rule = read_steady_rule("bw_slope:0.25%/2m", 600.0)
    assert (rule.fio, rule.text, rule.window_seconds) == ("bw_slope:0.25%", "bw_slope:0.25%/120s", 120)
    assert read_steady_rule("iops:10%", 600.0).text == "iops:10%/30s"
    for wrong in ("iops:10", "lat:1%", "iops:-1%", "iops:1%/1500ms", "iops:1%/x", "iops:101%", "iops:5%/10m", ""):
        with pytest.raises(ValueError, match=r"it|fio"):
            read_steady_rule(wrong, 600.0)


def asked(**more: Any) -> Study:
    return replace(study_on(METAL), until_steady=RULE, sequential=False, **more)


def test_its_time_is_forecast_and_is_no_cost_of_the_rig() -> None:
    plain = study_on(METAL)
    assert steady_seconds(plain) == 0
    more = setup_seconds(asked(), bytes_to_fill=0) - setup_seconds(replace(plain, sequential=False), bytes_to_fill=0)
    arms = len(plain.arms) * len(plain.workloads)
    assert more == pytest.approx(steady_seconds(asked()))
    assert steady_seconds(asked()) > 2 * arms
    assert steady_seconds(replace(asked(), sequential=True)) > 20 * arms
    written = steady_seconds(asked(precondition=True, span_bytes=10**9)) - steady_seconds(asked())
    assert written == pytest.approx(8.0)
    attempts = tuple((plain.arms[0].name, 70.0 + 4 * number) for number in range(5))
    disk = Preconditioned(arm="arm0", size_bytes=SIZE, written_bytes=2 * SIZE, seconds=5.0)
    done = replace(plain, steadied=(STEADY,), preconditioned=(disk,))
    (before,), (after,) = (
        seen_of([TimedStudy(study=one, attempts=attempts, filled=False)]).ready.values() for one in (plain, done)
    )
    assert before - after == pytest.approx(45.0)


def test_what_is_not_steady_limits_the_comparison() -> None:
    done = replace(
        study_on(METAL), steadied=(STEADY, replace(STEADY, attained=False, arm="arm1", found_percent=None))
    )
    assert STEADY.words == "arm0 under w was steady after 40 s (iops_slope:50%/2s: -0.12 % a second, 12.3k IOPS)"
    (caveat,) = done.caveats
    assert caveat.startswith("arm1 under w was NOT steady after 40 s (iops_slope:50%/2s, 12.3k IOPS)")
