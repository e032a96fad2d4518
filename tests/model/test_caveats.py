# SPDX-License-Identifier: Apache-2.0
"""vCPUs and memory that arms have more or less of without asking for it are said of every comparison."""

from pathlib import Path
from random import Random

import pytest

from virtune.cli import run
from virtune.cli.common.progress import CarriedStudy, EstimatedError
from virtune.model.evidence import compared_unseen
from virtune.model.study import Study, StudyKind
from virtune.plan.arms import arm_from_text, base_stack

SIZES = {"vcpus": ("machine.vcpus", (1, 2, 4, 8)), "memory": ("machine.memory", (2**28, 2**29, 2**30))}


def study(*arms: str, base: tuple[str, ...] = ()) -> Study:
    stack, settings = base_stack(["rig=qemu", *base])
    made = tuple(arm_from_text(arm, stack, settings=settings) for arm in arms)
    return Study(
        id="", created="", kind=StudyKind.COMPARE, arms=made, baseline=made[0].name, workloads=(), rounds=1,
        seconds=1.0, ramp_seconds=0.0, seed=1, scratch="/", span_bytes=1 << 26,
    )  # fmt: skip


def test_what_no_arm_asks_for_is_said_and_what_one_asks_for_is_not() -> None:
    chance = Random(8)
    seen = set()
    for _ in range(300):
        arms: list[str] = []
        for number in range(chance.randint(2, 4)):
            words = [f"guests.count={chance.choice((1, 2, 4))}"]
            for knob, values in SIZES.values():
                value = chance.choice((None, *values))
                words += [] if value is None else [f"{knob}={value}"]
            arms.append(f"a{number}:{','.join(words)}")
        found = study(*arms)
        for name, word in (("vcpus", "vCPUs"), ("memory", "memory")):
            said = [text for text in found.caveats if text.startswith(f"the arms differ in {word},")]
            totals = {getattr(arm.stack, name) for arm in found.arms}
            pairs = [
                (one, other)
                for one in found.arms
                for other in found.arms
                if dict(one.settings).get(SIZES[name][0]) == dict(other.settings).get(SIZES[name][0])
            ]
            unasked = any(getattr(one.stack, name) != getattr(other.stack, name) for one, other in pairs)
            assert bool(said) == unasked
            seen.add((name, unasked, len(totals) > 1))
    assert len(seen) == 6, "alike, unlike and asked, unlike and not asked, of both"


@pytest.mark.parametrize("base", [(), ("machine.vcpus=2", "machine.memory=1G")])
def test_a_setting_of_every_arm_asks_for_no_difference(base: tuple[str, ...]) -> None:
    said = study("one:", "many:guests.count=4", base=base).caveats
    assert [text.partition(",")[0] for text in said] == ["the arms differ in vCPUs", "the arms differ in memory"]


@pytest.mark.parametrize(
    ("arms", "base", "said"),
    [
        (("a:", "b:disk.aio=native"), ("disk.throttle_iops=500",), "disk.throttle_iops=500"),
        (("a:disk.throttle_bps=1M", "b:disk.throttle_bps=1M"), (), "disk.throttle_bps=1048576"),
        (("a:disk.throttle_iops=500", "b:disk.throttle_iops=600"), (), ""),
        (("a:disk.throttle_iops=500", "b:"), (), ""),
        (("a:",), ("disk.throttle_iops=500",), ""),
    ],
)
def test_a_limit_that_every_arm_has_is_said(arms: tuple[str, ...], base: tuple[str, ...], said: str) -> None:
    found = study(*arms, base=base).caveats
    assert [text.partition(":")[0] for text in found] == ([f"every arm has {said}"] if said else [])


def test_what_is_no_test_guest_has_neither() -> None:
    assert not study("one:", "metal:rig=metal", "daemon:rig=storage-daemon", "yours:rig=libvirt:web1").caveats


def test_it_is_said_before_anything_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def planned(_: Study, seconds: float | None) -> None:
        raise EstimatedError(f"{seconds}")

    words = ("--rig", "qemu", "--vary", "guests.count=1,2", "--workload", "randread-4k,numjobs=2", "--span", "64M")
    place = ("--store", str(tmp_path / "store.sqlite"), "--scratch", str(tmp_path / "scratch"))
    run(["compare", *words, *place], carried=CarriedStudy(begin=lambda _: None, planned=planned))
    said = capsys.readouterr().err
    assert "warning: the arms differ in vCPUs, which none asks for: count=1: " in said
    assert "guests of count=1 with " in said


@pytest.mark.parametrize("rig", ["storage-daemon", "vhost-user", "qemu"])
@pytest.mark.parametrize(("values", "hidden"), [(("none", "writethrough"), ["1"]), (("writeback", "none"), []),
                                               (("directsync", "none", "writethrough"), ["0", "2"]),
                                               (("writethrough", "writethrough"), [])])  # fmt: skip
def test_what_is_compared_and_cannot_be_verified_is_known_beforehand(
    rig: str, values: tuple[str, ...], hidden: list[str]
) -> None:
    stack, settings = base_stack([f"rig={rig}"])
    arms = [arm_from_text(f"{at}:disk.cache={value}", stack, settings=settings) for at, value in enumerate(values)]
    said = [*compared_unseen(arms)]
    if rig == "qemu" or not hidden:
        assert said == [], "a guest's disk tells whether it has a write cache"
    else:
        (text,) = said
        assert f"disk.cache of {', '.join(hidden)} cannot be verified on rig=storage-daemon" in text
        assert text.endswith("--rig qemu")


def test_what_no_rig_shows_names_none_and_few_arms() -> None:
    stack, settings = base_stack(["rig=qemu"])
    texts = [f"{at}:disk.discard={'unmap' if at else 'ignore'}" for at in range(8)]
    (text,) = compared_unseen([arm_from_text(one, stack, settings=settings) for one in texts])
    assert "disk.discard of 1, 2, 3, 4 and 3 more cannot be verified" in text
    assert "--rig" not in text
