# SPDX-License-Identifier: Apache-2.0
"""The guidelines of the study nvme-scaling: every leaf is reached, its own figures give its own leaves."""

import itertools
from dataclasses import replace

import pytest

from virtune.advise.guidelines import (
    CONFIGURATION,
    TUNING,
    answers_of,
    free_drive,
    given_answers,
    not_applicable,
    requirements,
    tuning_for,
)
from virtune.model.bottleneck import Cause, DataPath, Fork, Guideline, Leaf, answered, open_ends, walk


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


def test_its_advice_can_be_called_for_a_libvirt_s_domain_whatever_was_answered() -> None:
    ours = tuning_for(uri="qemu:///system", vm="my vm", disk="vdb")
    seen = {"assigned": (False, ""), "free": (True, "seen"), "jobs": (True, "seen"), "iothreads": (False, "seen")}
    before = walk(ours, seen)
    assert before.leaf == TUNING.nodes["spread"]
    told = answered(before, given_answers(["free=no"])).leaf.written
    assert told == (
        "virtune apply advise --connect qemu:///system --domain 'my vm' --set iothread.count=1"
        " --set device.iothread@vdb=1"
    )
    leaf = tuning_for(uri="", vm="x", disk="vdb").nodes["use-iothreads"]
    assert isinstance(leaf, Leaf)
    assert leaf.written == "", "a QEMU started by hand has no configuration"


@pytest.mark.parametrize("tree", [CONFIGURATION, TUNING], ids=lambda one: one.id)
def test_an_answer_that_is_missing_leaves_open_exactly_what_some_answer_to_it_leads_to(tree: Guideline) -> None:
    names = [fork.id for fork in tree.forks]
    whole = [dict(zip(names, each, strict=True)) for each in itertools.product((True, False), repeat=len(names))]
    for asked in (0, 1, 2, len(names)):
        for known in itertools.combinations(names, asked):
            for values in itertools.product((True, False), repeat=asked):
                said = dict(zip(known, values, strict=True))
                reached = {
                    walk(tree, {name: (yes, "") for name, yes in each.items()}).leaf.id
                    for each in whole
                    if said.items() <= each.items()
                }
                ends = open_ends(tree, {name: (yes, "") for name, yes in said.items()})
                assert {leaf.id for leaf, _ in ends} == reached
                for leaf, where in ends:
                    more = dict(word.split("=") for word in where.split(", ") if word)
                    assert not more.keys() & said.keys()
                    all_of_them = {name: (yes, "") for name, yes in said.items()}
                    all_of_them |= {name: (yes == "yes", "") for name, yes in more.items()}
                    found = walk(tree, all_of_them)
                    assert found.leaf == leaf
                    assert not any(step.assumed for step in found.steps)


def test_every_published_share_says_what_it_was_measured_with() -> None:
    for node in CONFIGURATION.nodes.values():
        assert isinstance(node, Fork) or "as measured with" in node.expected, node.id


@pytest.mark.parametrize(
    ("idle", "below", "answer"),
    [
        ({}, ("sda",), None),
        ({"nvme0n1": True}, ("sda2", "sda"), True),
        ({"nvme0n1": True}, ("dm-0", "nvme0n1p2", "nvme0n1"), None),
        ({"nvme0n1": False, "nvme0n2": True}, ("nvme0n1",), None),
        ({"nvme0n1": False, "nvme1n1": True}, ("nvme0n1",), True),
        ({"nvme0n1": False, "nvme1n1": False}, ("nvme0n1",), False),
        ({"nvme0n1": False, "nvme1n1": None}, ("nvme0n1",), None),
        ({"nvme0n1": None, "nvme1n1": False, "nvme2n1": None}, ("nvme0n1",), None),
        ({"nvme1n1": True, "nvme1n2": False}, (), False),
        ({"nvme1n1": True, "nvme1n2": None}, (), None),
        ({"nvme1n1": None, "nvme1n2": False}, (), False),
        ({"nvme1n1": True, "nvme10n1": False}, ("nvme1n1",), False),
    ],
)
def test_another_drive_is_free_only_where_that_was_seen(
    idle: dict[str, bool | None], below: tuple[str, ...], answer: bool | None
) -> None:
    found = free_drive(idle, below)
    assert (found["free"][0] if found else None) is answer
    assert all(evidence.startswith("seen: ") for _, evidence in found.values())


def test_it_is_for_disks_at_work_without_a_limit_and_for_guests_on_kvm() -> None:
    path = published()
    assert not_applicable(path, Cause.DEVICE) == ""
    assert "a limit was set" in not_applicable(path, Cause.THROTTLE)
    assert not_applicable(replace(path, iops=0.0), Cause.UNDECIDED) == "no read and no write was completed"
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
