# SPDX-License-Identifier: Apache-2.0
"""Several disks of one guest, or several files of the host: what each did by itself, and whether they are alike."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from virtune.analyse.trial.measure import measurement_of
from virtune.model.measurement import FioResult
from virtune.model.remark import Remark
from virtune.model.remark_kinds import UNLIKE_DISKS
from virtune.model.stack import Stack
from virtune.model.units import format_count
from virtune.model.workload import name_of_disk

UNLIKE = 2.0
"""Equal disks of one host with the same number of I/Os in flight differ by some percent; twice is no chance."""

_OF_EACH = ("iops", "latency.mean")


def disk_values(result: FioResult, stack: Stack) -> Iterator[tuple[str, float]]:
    """Yield the metrics of each of several disks; nothing where there is one."""
    if stack.disks == 1:
        return
    names = [load.name for load in result.loads]
    plain = {name for name in names if name_of_disk(name, 1) in names}
    for number in range(stack.disks):
        mine = {name_of_disk(name, number) for name in plain}
        loads = tuple(load for load in result.loads if load.name in mine)
        found = measurement_of(replace(result, loads=loads))
        for metric in _OF_EACH:
            if (value := found.get(metric)) is not None:
                yield f"disk.{number + 1}.{metric}", value


def unlike_disks(values: Sequence[tuple[str, float]]) -> Iterator[Remark]:
    """Yield the remark on disks of which one does far more than another."""
    rates = [(name, value) for name, value in values if name.startswith("disk.") and name.endswith(".iops")]
    each = {name.split(".")[1]: value for name, value in rates}
    if len(each) < 2:
        return
    most, least = max(each, key=lambda one: each[one]), min(each, key=lambda one: each[one])
    if each[most] < UNLIKE * each[least]:
        return
    yield UNLIKE_DISKS.remark(
        text=f"disk {least} did {format_count(each[least])} operations a second and disk {most}"
        f" {format_count(each[most])}",
        advice=f"the figures are those of all disks together; `--metric disk.{least}.iops` is one of them",
    )
