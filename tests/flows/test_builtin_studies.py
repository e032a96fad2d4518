# SPDX-License-Identifier: Apache-2.0
"""The studies that ship with virtune: each is a sound study on every rig that it names, and ends in its table."""

import tomllib
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from tests.conftest import User
from tests.published import schema

from virtune.fio.exported import Clients
from virtune.flows.run.builtin_studies import builtin, builtins
from virtune.flows.run.question import Question, study_for
from virtune.model.errors import PlanError
from virtune.plan.fit import require_fit

ENGINES = frozenset({"io_uring", "libaio", "psync", "sync", "mmap", "splice", "nbd", "libblkio"})
PLANS = sorted((Path(__file__).parents[2] / "src" / "virtune" / "studies").glob("*.toml"))
EACH = [(one.name, rig) for one in builtins() for rig in one.rigs]


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.name)
def test_it_is_a_plan_as_published(path: Path) -> None:
    Draft202012Validator(schema("plan")).validate(tomllib.loads(path.read_text()))


@pytest.mark.parametrize(("name", "rig"), EACH)
def test_it_can_be_put_on_every_rig_that_it_names(name: str, rig: str, tmp_path: Path) -> None:
    found = builtin(name, rig)
    study, _ = study_for(Question(kind=found.kind, builtin=name, rig=rig, scratch=tmp_path))
    assert study.builtin == name
    assert study.trials
    require_fit(study, clients=Clients(engines=ENGINES))


@pytest.mark.parametrize("rig", [None, "metal", "storage-daemon", "vhost-user", "qemu"])
def test_it_can_be_put_on_an_existing_target_and_says_what_that_leaves_out(rig: str | None, tmp_path: Path) -> None:
    target = tmp_path / "volume"
    found = builtin("io-engine", rig, target=True)
    study, _ = study_for(Question(kind=found.kind, builtin="io-engine", rig=rig, scratch=tmp_path, target=target))
    assert study.target == str(target)
    assert all(arm.stack.disk.format == "raw" for arm in study.arms)
    assert (study.left_out is None) == (rig == "metal"), "on metal no format is asked for"
    assert rig == "metal" or "the format is raw, in place of qcow2" in str(study.left_out)
    aio = {"before": "threads", "after": "io_uring"}
    assert {arm.name: arm.stack.disk.aio for arm in study.arms} == (aio if rig != "metal" else {"metal": "threads"})
    require_fit(study, clients=Clients(engines=ENGINES))


def test_an_unknown_one_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(PlanError, match="there is no study") as caught:
        builtin("nvme-scalin")
    assert "nvme-scaling" in str(caught.value.hint)


PLACE = ("--span", "64M", "-q", "--rounds", "1", "--seconds", "300ms", "--ramp", "100ms", "-v")


@pytest.mark.real
@pytest.mark.long  # report/test_study_tables.py has its table in each run, on a simulated rig
def test_engines_end_in_their_table(user: User) -> None:
    said = user.run("study", "run", "fio-engines", "--scratch", str(user.scratch), *PLACE).stdout
    ending = said.partition("study fio-engines")[2]
    assert ending.split()[:6] == ["sync", "psync", "libaio", "mmap", "splice", "io_uring"]
    assert "slat mean" in ending
    assert "page cache" in said, "the author took it for the drive"


@pytest.mark.real
def test_one_of_them_ends_in_its_table_without_a_guest(user: User) -> None:
    place = ("--scratch", str(user.scratch), *PLACE)
    said = user.run("study", "run", "io-engine", "--rig", "storage-daemon", *place).stdout
    ending = said.partition("study io-engine")[2]
    assert [line.split()[0] for line in ending.splitlines()[2:5]] == ["IOPS", "bandwidth", "latency"]
    assert "too few rounds to compare" in ending, "one round decides nothing"
    assert user.run("show", "last").stdout.partition("study io-engine")[2] == ending
    listed = user.run("study", "list").stdout
    assert all(one.name in listed for one in builtins())
    assert "did you mean `datapath`" in user.run("study", "run", "datapth", status=2).stderr
