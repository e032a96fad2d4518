# SPDX-License-Identifier: Apache-2.0
"""What the real verbs print keeps to the published schemas, and the example of the plan page runs."""

import re
import tomllib
from pathlib import Path

import pytest
from tests.conftest import User
from tests.published import REFERENCE, complaints, strictly, validator

from virtune.fio.workloads import parse_workload
from virtune.plan.planfile import read_plan

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("cli")]

SHORT = ("--rounds", "1", "--seconds", "100ms", "--ramp", "0")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, scratch_directory: Path) -> User:
    """A user whose store has one study: metal and a storage daemon; reads, writes and flushes."""
    user = User(tmp_path_factory.mktemp("user"), scratch_directory, once=True)
    mixed = "mixed: rw=randrw,bs=4k,iodepth=4,fsync=8"
    ran = user.run("compare", "--arm", "metal:rig=metal", "--arm", "qsd:", "--workload", mixed, *SHORT, "--json")
    assert complaints("result", strictly(ran.stdout)) == []
    return user


def test_a_study_shown_again_keeps_to_the_schema(measured: User) -> None:
    found = strictly(measured.run("show", "--json").stdout)
    assert complaints("result", found) == []
    assert len(found["arms"]) == 2
    assert any(check["proof"] for check in found["arms"][1]["in_force"])
    found["comparisons"][0]["verdict"] = "faster"
    assert not validator("result").is_valid(found)


def test_a_single_stack_keeps_to_the_schema(measured: User) -> None:
    found = strictly(measured.run("compare", "measure", "--rig", "metal", *SHORT, "--json").stdout)
    assert complaints("result", found) == []
    assert found["study"]["kind"] == "measure"


def test_the_list_and_an_explained_study_keep_to_their_schemas(measured: User) -> None:
    listed = strictly(measured.run("show", "list", "--json").stdout)
    assert complaints("list", listed) == []
    found = strictly(measured.run("explain", listed["studies"][-1]["id"], "--json").stdout)
    assert complaints("explain", found) == []
    assert len(found["results"]) == 2
    del found["results"][0]["loads"][0]["streams"]
    assert not validator("explain").is_valid(found)


def test_the_host_keeps_to_the_schema(user: User, tmp_path: Path) -> None:
    found = strictly(user.run("host", "probe", "--json", "--scratch", str(tmp_path)).stdout)
    assert complaints("probe", found) == []
    del found["host"]["kernel"]["release"]
    assert not validator("probe").is_valid(found)


def test_the_knobs_with_what_qemu_answers_keep_to_the_schema(user: User) -> None:
    found = strictly(user.run("host", "knobs", "--json").stdout)
    assert complaints("knobs", found) == []
    assert any(knob["answers"] for knob in found["knobs"])
    found["knobs"][0]["risk"] = "some"
    assert not validator("knobs").is_valid(found)


def test_the_example_of_the_plan_page_runs(user: User) -> None:
    page = (REFERENCE / "plan.md").read_text()
    (text,) = re.findall(r"^```toml\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    parsed = tomllib.loads(text)
    assert complaints("plan", parsed) == []
    assert not validator("plan").is_valid(parsed | {"wrokload": "randread-4k"})
    plan = read_plan(text)
    assert [len(parse_workload(words)) for words in plan.workloads] == [1, 1]
    (user.home / "plan.toml").write_text(text)
    # flags go over the plan's own keys, as the page says: shorter, and the first of its workloads only
    ran = user.run("compare", "plan.toml", *SHORT, "--workload", plan.workloads[0], "--json")
    found = strictly(ran.stdout)
    assert complaints("result", found) == []
    assert [arm["name"] for arm in found["arms"]] == ["threads", "io_uring", "writeback", "bare"]
    study = found["study"]
    assert (study["baseline"], study["metric"], study["seed"]) == ("threads", "latency.p99", 1)
    assert (study["margin"], study["confidence"], study["rounds"]) == (0.05, 0.95, 1)
