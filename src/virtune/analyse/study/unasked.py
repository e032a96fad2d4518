# SPDX-License-Identifier: Apache-2.0
"""What the guests of arms show to be different though no arm asks for it.

A guest's kernel follows what it finds: a disk with one queue gets another I/O scheduler than one with several, and a
bus whose driver the usual kernel lacks another kernel. A difference between such arms may be that.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

from virtune.model.evidence import TrialRecord
from virtune.model.knobs import BY_ID
from virtune.model.stack import setting_of
from virtune.model.study import Arm, Study

_OF_THE_BUS = ("device.bus", "storage.vfio_pci", "machine.type", "machine.emulator")
"""What brings defaults of its own, which are then what is compared."""

FACTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "kernel": ("the guest's kernel", ()),
    "scheduler": ("the guest's I/O scheduler", ("guest.scheduler",)),
    "nr_requests": (
        "the requests that a queue of the guest holds",
        ("guest.nr_requests", "guest.scheduler", "device.queue_size", *_OF_THE_BUS),
    ),
    "queues": (
        "the queues of the guest's disk",
        ("device.num_queues", "scsi.num_queues", "nvme.max_ioqpairs", "machine.vcpus", *_OF_THE_BUS),
    ),
    "write_cache": (
        "the write cache that the guest sees", ("disk.cache", "device.write_cache", "disk.rbd", *_OF_THE_BUS)
    ),
    "rotational": ("whether the guest takes its disk for one that turns", _OF_THE_BUS),
    "logical_block_size": ("the guest's logical block size", ("device.logical_block_size", *_OF_THE_BUS)),
    "physical_block_size": (
        "the guest's physical block size", ("device.physical_block_size", "device.logical_block_size", *_OF_THE_BUS)
    ),
}  # fmt: skip
"""The facts that a guest shows of its disk: what each is, and the knobs by which arms ask for it."""


def unasked_of(study: Study, records: Iterable[TrialRecord]) -> Iterator[str]:
    """Yield a sentence for each fact in which arms differ that do not differ in a knob of it."""
    shown: dict[str, dict[str, set[str]]] = {}
    for one in records:
        if one.measurement is not None:
            for fact, value in one.in_force.guest:
                shown.setdefault(fact, {}).setdefault(one.trial.arm, set()).add(value)
    said = set[str]()
    for fact, (what, knobs) in FACTS.items():
        mine = shown.get(fact, {})
        have = _unasked([(arm, ", ".join(sorted(mine[arm.name]))) for arm in study.arms if arm.name in mine], knobs)
        # another scheduler holds another number of requests
        if not have or (fact == "nr_requests" and "scheduler" in said):
            continue
        said.add(fact)
        arms: dict[str, list[str]] = {}
        for arm, value in have:
            arms.setdefault(value, []).append(arm.name)
        told = "; ".join(f"{value} in {_few(names)}" for value, names in arms.items())
        knob = f"guest.{fact}"
        settable = knob in BY_ID and BY_ID[knob].place and not any(arm.stack.device.vfio_pci for arm, _ in have)
        remedy = f"; {knob} in each arm makes them alike" if settable else ""
        yield (
            f"the arms differ in {what}, which none asks for: {told}. A difference between them may be that, and not "
            f"what is compared{remedy}"
        )


_NAMED = 3
"""So many arms are named of each value: a search has dozens."""


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _unasked(have: Sequence[tuple[Arm, str]], knobs: Sequence[str]) -> list[tuple[Arm, str]]:
    """Return those that have something else than another one in the same kind of guest that asks for the same."""
    asking: dict[Hashable, list[tuple[Arm, str]]] = {}
    for arm, value in have:
        stack = arm.stack
        asked = tuple(setting_of(stack, BY_ID[knob]) for knob in knobs)
        asking.setdefault((stack.rig, stack.domain, stack.machine.system, asked), []).append((arm, value))
    return [one for alike in asking.values() if len({value for _, value in alike}) > 1 for one in alike]
