# SPDX-License-Identifier: Apache-2.0
"""The studies that ship with virtune: each is a sound study on every rig that it names, and ends in its table."""

import re
import tomllib
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tests.conftest import User
from tests.published import schema

from virtune.cli.compare import QUICK_TRIALS
from virtune.fio.generator import Clients
from virtune.fio.workloads import parse_workload
from virtune.flows.run.question import Question, builtin, builtins, filled, plan_text, study_for
from virtune.model.errors import PlanError
from virtune.model.study import Study, StudyKind
from virtune.plan.arms import arm_as_written, base_stack
from virtune.plan.guests import require_fit, share_of
from virtune.plan.planfile import read_plan

ENGINES = frozenset({"io_uring", "libaio", "psync", "sync", "mmap", "splice", "nbd", "libblkio"})
PLANS = sorted((Path(__file__).parents[2] / "src" / "virtune" / "studies").glob("*.toml"))
CPUS = (*range(1, 10), *(8 * many + one for many in range(2, 9) for one in (-1, 0)), 65, 139)
"""Hosts on both sides of each step in the number of jobs: it is a multiple of eight above eight, and 64 at most."""
EACH = [(one.name, rig) for one in builtins() for rig in one.rigs]


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.name)
def test_it_is_a_plan_as_published(path: Path) -> None:
    Draft202012Validator(schema("plan")).validate(tomllib.loads(filled(path.read_text(), 4)))


def test_all_structures_of_virtual_machines_have_the_same_vcpus_and_memory_on_every_host() -> None:
    for cpus in CPUS:
        found = builtin("nvme-scaling", cpus=cpus)
        base, settings = base_stack([f"rig={found.plan.rig}", *found.plan.settings])
        arms = [arm_as_written(one, base, settings=settings) for one in found.plan.arms]
        guests = [arm.stack for arm in arms if arm.stack.kind.own_guest]
        assert len({(stack.vcpus, stack.memory) for stack in guests}) == 1, cpus
        (jobs,) = {stack.guests * stack.machine.cpus for stack in guests}
        assert cpus - 8 < jobs <= max(cpus, 2) or jobs == 64
        for word in found.plan.workloads:
            for stack in guests:
                (workload,) = parse_workload(word)
                (job,) = share_of(workload, stack).jobs
                assert int(job.get("numjobs", "1")) == stack.machine.cpus, "a job for each vCPU"
                assert int(job.get("numjobs", "1")) % stack.disks == 0


@pytest.mark.parametrize(("count", "jobs"), [("2", 2), ("7", 7), ("16", 16), ("64", 64)])
def test_the_number_of_jobs_is_what_was_set(count: str, jobs: int, tmp_path: Path) -> None:
    study = study_for(
        Question(
            kind=StudyKind.COMPARE, builtin="nvme-scaling", settings=(f"guests.count={count}",), scratch=tmp_path
        )
    )
    guests = dict.fromkeys(["1-fio-per-VM", "N-fio-per-VM", "N-fio-per-VM-iothread"], jobs)
    assert {arm.name: arm.stack.vcpus for arm in study.arms} == guests | {"bare": None}
    assert not study.caveats


@pytest.mark.parametrize("count", ["0", "1", "9", "65", "128", "-2", "two", "\u00b2", "9999"])
def test_a_number_of_jobs_that_cannot_be_is_refused(count: str) -> None:
    with pytest.raises(PlanError):
        builtin("nvme-scaling", settings=(f"guests.count={count}",))


@pytest.mark.parametrize("written", ["disk.cache=none", "disk.discard=unmap", "disk.aio=native"])
def test_a_setting_of_the_users_goes_over_the_studys_own_and_below_an_arms(written: str, tmp_path: Path) -> None:
    study = study_for(Question(kind=StudyKind.COMPARE, builtin="io-engine", settings=(written,), scratch=tmp_path))
    assert [arm.stack.disk.aio for arm in study.arms] == ["threads", "io_uring"], "what is compared stays"
    assert {arm.stack.disk.format for arm in study.arms} == {"qcow2"}
    knob, _, value = written.partition("=")
    assert all(dict(arm.settings)[knob] == value for arm in study.arms) == (knob != "disk.aio")


def test_a_quick_run_of_every_study_has_few_trials() -> None:
    for one in builtins():
        quick = builtin(one.name, quick=True)
        assert 0 < quick.cells <= QUICK_TRIALS, one.name
        assert {*quick.plan.workloads} <= {*one.plan.workloads}


@pytest.mark.parametrize("rig", [None, "metal", "storage-daemon", "vhost-user", "qemu"])
def test_it_can_be_put_on_an_existing_target_and_says_what_that_leaves_out(rig: str | None, tmp_path: Path) -> None:
    target = tmp_path / "volume"
    found = builtin("io-engine", rig, target=True)
    study = study_for(Question(kind=found.kind, builtin="io-engine", rig=rig, scratch=tmp_path, target=target))
    assert study.target == str(target)
    assert all(arm.stack.disk.format == "raw" for arm in study.arms)
    assert (study.left_out is None) == (rig == "metal"), "on metal no format is asked for"
    assert rig == "metal" or "the format is raw, in place of qcow2" in str(study.left_out)
    aio = {"before": "threads", "after": "io_uring"}
    assert {arm.name: arm.stack.disk.aio for arm in study.arms} == (aio if rig != "metal" else {"metal": "threads"})
    require_fit(study, clients=Clients(engines=ENGINES))


def made(tmp_path: Path, **asked: Any) -> Study:
    study = study_for(Question(kind=StudyKind.COMPARE, seed=7, scratch=tmp_path, **asked))
    return replace(study, id="", created="", options=())


@pytest.mark.parametrize(("name", "rig"), [*EACH, *((one.name, "simulated") for one in builtins())])
def test_it_can_be_put_on_every_rig_that_it_names_as_its_printed_plan_can(
    name: str, rig: str, tmp_path: Path
) -> None:
    copy = tmp_path / "my.toml"
    copy.write_text(plan_text(name, rig))
    found = builtin(name, rig)
    assert read_plan(copy.read_text()) == replace(found.plan, rig=rig)
    run = study_for(Question(kind=found.kind, builtin=name, rig=rig, scratch=tmp_path, seed=7))
    assert run.builtin == name
    assert run.trials
    require_fit(run, clients=Clients(engines=ENGINES))
    assert made(tmp_path, plan=copy) == replace(run, id="", created="", options=())
    assert not run.changed
    if rig == found.rigs[0]:
        assert plan_text(name) == copy.read_text()


def test_the_printed_plan_has_the_jobs_of_every_host() -> None:
    for cpus in CPUS:
        assert read_plan(plan_text("nvme-scaling", cpus=cpus)) == builtin("nvme-scaling", cpus=cpus).plan


@pytest.mark.parametrize("rig", ["nowhere", "", 'qemu"\n[set]'])
def test_no_plan_is_printed_for_a_rig_that_there_is_not(rig: str) -> None:
    with pytest.raises(PlanError):
        plan_text("io-engine", rig)


@pytest.mark.parametrize("seed", range(12))
def test_an_edited_copy_names_exactly_what_was_edited(seed: int, tmp_path: Path) -> None:
    chance = Random(seed)
    name = chance.choice([one.name for one in builtins() if one.plan.arms])
    cpus = chance.choice([2, 4, 16])
    head, *blocks = plan_text(name, cpus=cpus).split("\n[[arm]]\n")
    baseline = builtin(name).plan.baseline
    edited: set[str] = set()
    for index, block in enumerate(blocks):
        arm = tomllib.loads(block)["name"]
        passed = "vfio_pci" in block  # left out here, with its reason
        edit = "keep" if passed or arm == baseline else chance.choice(("keep", "default", "turn", "rename", "drop"))
        edit = "keep" if edit == "drop" and index < 2 else edit  # two arms are left
        if edit == "default":
            blocks[index] += "\ndisk.detect_zeroes = 'off'\n"
        if edit == "turn":
            blocks[index] += "\ndisk.detect_zeroes = 'on'\n"
        if edit == "rename":
            blocks[index] = block.replace(f'"{arm}"', f'"my-{arm}"')
        if edit == "drop":
            blocks[index] = ""
        edited |= {"turn": {arm}, "rename": {arm, f"my-{arm}"}, "drop": {arm}}.get(edit, set())
    load = chance.random() < 0.5
    if load:
        head = re.sub(r"(?m)^workload = (\[\n[^]]*\]|.*$)", 'workload = "mine: rw=randread,bs=8k"', head)
    copy = tmp_path / "my.toml"
    copy.write_text("\n[[arm]]\n".join([head, *filter(None, blocks)]))
    study = study_for(Question(kind=StudyKind.COMPARE, plan=copy, rig="simulated", scratch=tmp_path))
    arms = {one.name.removeprefix("arm:") for one in study.options if one.name.startswith("arm:")}
    assert arms == edited
    assert all(study.keeps(arm.name) == (arm.name not in edited) for arm in study.arms)
    assert [study.keeps(baseline or "", one) for one in study.workloads] == [not load] * len(study.workloads)
    assert len(study.changed) == len(edited) + load


def test_a_setting_of_the_user_s_is_named_with_what_the_study_has(tmp_path: Path) -> None:
    asked = Question(kind=StudyKind.COMPARE, builtin="io-engine", settings=("disk.cache=none",), scratch=tmp_path)
    assert study_for(asked).changed == tuple(
        f"not as in the study: arm {arm}: disk.cache none, in the study writeback" for arm in ("before", "after")
    )


def test_a_plan_of_a_study_that_there_is_not_is_refused(tmp_path: Path) -> None:
    copy = tmp_path / "my.toml"
    copy.write_text(plan_text("io-engine").replace('study = "io-engine"', 'study = "io-engin"'))
    with pytest.raises(PlanError, match="there is no study") as caught:
        made(tmp_path, plan=copy)
    assert "io-engine" in str(caught.value.hint)


FEW = ("--rig", "simulated", "--seed", "1", "--rounds", "2", "--seconds", "100ms", "--span", "64M", "-q", "-v")


@pytest.mark.parametrize("name", ["io-engine", "fio-engines"])
def test_a_copied_plan_ends_in_the_study_s_table(user: User, name: str) -> None:
    copy, few = user.scratch / "my.toml", (*FEW, "--scratch", str(user.scratch))
    copy.write_text(user.run("compare", "study", "plan", name).stdout)

    def table(*words: str) -> str:
        said = user.run(*words, *few).stdout.partition(f"\nstudy {name}")[2]
        return said.partition("\n  here: ")[0]

    assert "what the authors printed" in (ran := table("compare", "study", "run", name))
    assert table("compare", str(copy)) == ran


def test_beside_an_arm_or_load_that_was_edited_nothing_published_stands(user: User) -> None:
    copy, few = user.scratch / "my.toml", (*FEW, "--scratch", str(user.scratch))
    own, both = user.run("compare", "study", "plan", "io-engine").stdout, ["after", "before"]
    turned = '\ndisk.discard = "unmap"'
    edits = [('"io_uring"', f'"io_uring"{turned}', ["before"]), ('"threads"', f'"threads"{turned}', ["after"]),
             ('workload = "io-engine"', 'workload = "randread-4k"', []), ('"writeback"', '"unsafe"', []),
             ("seconds = 60", "seconds = 50", both)]  # fmt: skip
    for old, new, beside in edits:
        copy.write_text(own.replace(old, new))
        said = user.run("compare", str(copy), *few).stdout.partition("\nstudy io-engine")[2]
        table, _, published = said.partition("\nwhat the authors printed")
        found = {line.split()[0] for line in published.splitlines() if re.match("(before|after) ", line)}
        assert sorted(found) == beside, new
        assert ("not as in the study" in table) == (beside != both), new


def test_an_unknown_one_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(PlanError, match="there is no study") as caught:
        builtin("nvme-scalin")
    assert "nvme-scaling" in str(caught.value.hint)


PLACE = ("--span", "64M", "-q", "--rounds", "1", "--seconds", "300ms", "--ramp", "100ms", "-v")


@pytest.mark.real
@pytest.mark.long(always="report/test_study_tables.py has its table in each run, on a simulated rig")
def test_engines_end_in_their_table(user: User) -> None:
    said = user.run("compare", "study", "run", "fio-engines", "--scratch", str(user.scratch), *PLACE).stdout
    ending = said.partition("study fio-engines")[2]
    assert ending.split()[:6] == ["sync", "psync", "libaio", "mmap", "splice", "io_uring"]
    assert "slat mean" in ending
    assert "page cache" in said, "the author took it for the drive"


@pytest.mark.real
def test_one_of_them_ends_in_its_table_without_a_guest(user: User) -> None:
    place = ("--scratch", str(user.scratch), *PLACE)
    said = user.run("compare", "study", "run", "io-engine", "--rig", "storage-daemon", *place).stdout
    ending = said.partition("study io-engine")[2]
    assert [line.split()[0] for line in ending.splitlines()[2:5]] == ["IOPS", "bandwidth", "latency"]
    assert "too few rounds to compare" in ending, "one round decides nothing"
    assert user.run("show", "last").stdout.partition("study io-engine")[2] == ending
    listed = user.run("compare", "study", "list").stdout
    assert all(one.name in listed for one in builtins())
    assert "did you mean `datapath`" in user.run("compare", "study", "run", "datapth", status=2).stderr
