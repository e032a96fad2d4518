# SPDX-License-Identifier: Apache-2.0
"""The guidelines of the study nvme-scaling: every leaf is reached, its own figures give its own leaves."""

import itertools
from dataclasses import replace

import pytest

from virtune.advise.guidelines import CONFIGURATION, TUNING, given_answers, leaf_for, requirements
from virtune.analyse.layers.tuning import answers_of, not_applicable
from virtune.model.bottleneck import Cause, DataPath
from virtune.model.guideline import Fork, Guideline, Leaf, answered, walk


@pytest.mark.parametrize("tree", [CONFIGURATION, TUNING], ids=lambda one: one.id)
def test_every_leaf_is_reached_and_every_question_asked(tree: Guideline) -> None:
    leaves, asked = set(), set()
    names = [fork.id for fork in tree.forks]
    for answers in itertools.product((True, False), repeat=len(names)):
        found = walk(tree, {name: (answer, "") for name, answer in zip(names, answers, strict=True)})
        leaves.add(found.leaf.id)
        asked |= {step.question.id for step in found.steps}
    assert leaves == {node.id for node in tree.nodes.values() if isinstance(node, Leaf)}
    assert asked == set(names)
    for node in tree.nodes.values():
        if isinstance(node, Fork):
            assert {node.yes, node.no} <= tree.nodes.keys()


@pytest.mark.parametrize(
    ("words", "leaf"),
    [
        ("scale-out=yes", "structure-1"),
        ("scale-out=no,own=yes", "structure-3"),
        ("scale-out=no,own=no,virtio=yes", "structure-4"),
        ("scale-out=no,own=no,virtio=no", "structure-2"),
    ],
)
def test_the_configuration_guideline_ends_in_the_study_s_structures(words: str, leaf: str) -> None:
    found = walk(CONFIGURATION, requirements(words.split(",")))
    assert found.leaf.id == leaf
    assert found.leaf.expected
    assert found.leaf.cost
    assert not any(step.assumed for step in found.steps)


def test_its_advice_can_be_called_for_a_libvirt_s_domain() -> None:
    leaf = TUNING.nodes["use-iothreads"]
    assert isinstance(leaf, Leaf)
    told = leaf_for(leaf, uri="qemu:///system", vm="my vm", disk="vdb").written
    assert told == (
        "virtune advise --connect qemu:///system --domain 'my vm' --set iothread.count=1 --set device.iothread@vdb=1"
    )
    assert leaf_for(leaf, uri="", vm="x", disk="vdb").written == "", "a QEMU started by hand has no configuration"
    spread = TUNING.nodes["spread"]
    assert isinstance(spread, Leaf)
    assert leaf_for(spread, uri="qemu:///system", vm="x", disk="vdb") == spread


def test_it_is_for_disks_at_work_without_a_limit_and_for_guests_on_kvm() -> None:
    path = published()
    assert not_applicable(path, Cause.DEVICE) == ""
    assert "a limit was set" in not_applicable(path, Cause.THROTTLE)
    assert not_applicable(replace(path, iops=0.0), Cause.UNDECIDED) == "no I/O was completed"
    assert "emulated (TCG)" in not_applicable(replace(path, emulated=True), Cause.DEVICE)


def test_what_is_no_requirement_is_said() -> None:
    for word in ("fast=yes", "own", "own=maybe"):
        with pytest.raises(ValueError, match="not a requirement"):
            requirements([word])


def published(*, iothreads: bool = False, busy: float = 0.5) -> DataPath:
    return DataPath(iops=89_000.0, serving="iothread" if iothreads else "main", device_busy=busy)


@pytest.mark.parametrize(
    ("path", "jobs", "writes", "usr", "sys", "known", "leaf"),
    [
        # one VM of many jobs: 0.21 of bare metal's reads without IOThreads, and its limit with them
        (published(), True, 0.0, 10, 20, {}, "use-iothreads"),
        (published(iothreads=True), True, 0.0, 10, 20, {}, "iothread-limit"),
        # read-only: busy reaches 100 % from 600k offered, and %sys overtakes %usr
        (published(busy=1.0), False, 0.0, 20, 30, {}, "read-limit"),
        (published(busy=0.8), False, 0.0, 30, 20, {}, "scale-reads"),
        # write-only: busy is always 100 %, so the CPU tells
        (published(busy=1.0), False, 1.0, 30, 20, {}, "scale-writes"),
        (published(busy=1.0), False, 1.0, 20, 30, {}, "write-limit"),
        (published(), True, 0.0, 10, 20, {"free": (True, "")}, "spread"),
        (published(), True, 0.0, 10, 20, {"own": (True, "")}, "assign"),
    ],
)
def test_the_study_s_signs_lead_to_the_study_s_leaves(
    path: DataPath, jobs: bool, writes: float, usr: float, sys: float, known: dict[str, tuple[bool, str]], leaf: str
) -> None:
    answers = answers_of(path, write_share=writes, host_usr=usr, host_sys=sys)
    found = walk(TUNING, answers | {"jobs": (jobs, "")} | known)
    assert found.leaf.id == leaf
    told = [step for step in found.steps if step.question.id not in ("own", "free", "jobs")]
    assert all(step.evidence and not step.assumed for step in told)


SEEN = ("jobs", "iothreads", "writes", "user", "busy")


def test_what_was_said_of_drives_leads_where_nobody_could_see_to() -> None:
    for answers in itertools.product((True, False), repeat=len(SEEN)):
        seen = {"assigned": (False, "seen")} | {name: (yes, "seen") for name, yes in zip(SEEN, answers, strict=True)}
        before = walk(TUNING, seen)
        assert {step.question.id for step in before.steps if step.assumed} == {"own", "free"}
        assert answered(before, given_answers(["own=yes"])).leaf.id == "assign"
        assert answered(before, given_answers(["own=no", "free=/dev/nvme1n1"])).leaf.id == "spread"
        same = answered(before, given_answers(["own=no", "free=no"]))
        assert same.leaf is before.leaf
        assert not any(step.assumed for step in same.steps)
        assert answered(before, {}) == before


@pytest.mark.parametrize("word", ["", "own", "own=maybe", "own=/dev/sdb", "free=nvme1n1", "jobs=yes", "free="])
def test_an_answer_to_another_question_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match="not an answer"):
        given_answers([word])
