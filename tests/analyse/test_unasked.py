# SPDX-License-Identifier: Apache-2.0
"""What guests of arms show to be different though none asks for it is said, and what one asks for is not."""

import pytest

from virtune.analyse.study.unasked import FACTS, unasked_of
from virtune.model.evidence import GUEST_FACTS, InForce, TrialRecord
from virtune.model.measurement import Measurement
from virtune.model.study import Study, StudyKind, Trial
from virtune.plan.arms import arm_from_text, base_stack

NONE, DEADLINE = "none", "mq-deadline"


def said(arms: dict[str, dict[str, str]], *base: str) -> list[str]:
    """What is said of arms, each with what its guest showed."""
    stack, settings = base_stack(["rig=qemu", *base])
    made = tuple(arm_from_text(arm, stack, settings=settings) for arm in arms)
    study = Study(
        id="", created="", kind=StudyKind.COMPARE, arms=made, baseline=made[0].name, workloads=(), rounds=1,
        seconds=1.0, ramp_seconds=0.0, seed=1, scratch="/", span_bytes=1 << 26,
    )  # fmt: skip
    records = [
        TrialRecord(
            trial=Trial(number=number, round=number, arm=arm.name, workload="w"), ended="",
            in_force=InForce(guest=tuple(facts.items())), measurement=Measurement(values=()),
        )
        for number in (1, 2) for arm, facts in zip(made, arms.values(), strict=True)
    ]  # fmt: skip
    return list(unasked_of(study, records))


def test_a_scheduler_that_came_with_the_queues_is_said_once_with_its_remedy() -> None:
    few, many = {"scheduler": DEADLINE, "nr_requests": "256"}, {"scheduler": NONE, "nr_requests": "128"}
    (text,) = said({"one:device.num_queues=1": few, "two:device.num_queues=2": many})
    assert text.startswith(
        "the arms differ in the guest's I/O scheduler, which none asks for: mq-deadline in one; none in two."
    )
    assert text.endswith("guest.scheduler in each arm makes them alike")


@pytest.mark.parametrize(
    ("fact", "setting", "values"),
    [
        ("scheduler", "guest.scheduler=none", (DEADLINE, NONE)),
        ("nr_requests", "guest.nr_requests=64", ("128", "64")),
        ("nr_requests", "device.queue_size=64", ("128", "64")),
        ("nr_requests", "device.bus=nvme", ("128", "1023")),
        ("queues", "device.num_queues=1", ("2", "1")),
        ("queues", "machine.vcpus=4", ("2", "4")),
        ("write_cache", "disk.cache=writethrough", ("write back", "write through")),
        ("write_cache", "device.write_cache=off", ("write back", "write through")),
        ("rotational", "device.bus=ahci", ("0", "1")),
        ("logical_block_size", "device.logical_block_size=4096", ("512", "4096")),
        ("physical_block_size", "device.physical_block_size=4096", ("512", "4096")),
    ],
)
def test_what_an_arm_asks_for_is_not_said_and_the_same_unasked_is(
    fact: str, setting: str, values: tuple[str, str]
) -> None:
    before, after = ({fact: one} for one in values)
    base = ("device.physical_block_size=4096",) if fact == "logical_block_size" else ()
    assert said({"one:": before, f"two:{setting}": after}, *base) == []
    (text,) = said({"one:": before, "two:disk.aio=native": after}, *base)
    assert "which none asks for" in text
    assert said({"one:": before, "two:disk.aio=native": before}, *base) == []


def test_another_kernel_is_said_whatever_is_asked_for_and_guests_of_other_kinds_are_not_compared() -> None:
    old, new = {"kernel": "6.1"}, {"kernel": "6.12"}
    (text,) = said({"one:": old, "two:device.bus=ahci": new})
    assert text == (
        "the arms differ in the guest's kernel, which none asks for: 6.1 in one; 6.12 in two. A difference between"
        " them may be that, and not what is compared"
    )
    assert said({"one:": old, "two:rig=libvirt:web": new}) == []
    assert said({"one:": old, "two:guest.system=bare": new}) == []
    assert said({"one:": {}, "two:rig=metal": {}}) == []


def test_of_many_arms_a_few_are_named() -> None:
    arms = {f"a{number}:disk.throttle_iops={number}": {"kernel": "6.1"} for number in range(1, 9)}
    (text,) = said({**arms, "last:": {"kernel": "6.12"}})
    assert "6.1 in a1, a2, a3 and 5 more; 6.12 in last." in text


def test_what_is_kept_of_a_guest_is_what_is_compared() -> None:
    assert set(FACTS) == set(GUEST_FACTS)
