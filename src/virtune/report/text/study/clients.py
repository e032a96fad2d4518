# SPDX-License-Identifier: Apache-2.0
"""The load generators of a study's arms: where they differ, the arms differ in more than the disk."""

from collections.abc import Iterator

from virtune.model.result import ArmSummary, Result
from virtune.model.stack import Stack

_UNNOTED = {"vhost-user-blk": "virtune-load"}
"""The load generator of exports in older studies, which did not record it; everything else was loaded by fio."""


def loaded_by(result: Result) -> Iterator[str]:
    """Say which arms on this host were loaded by which program, if they differ."""
    ways: dict[str, dict[str, None]] = {}
    for summary in result.arms:
        way = _way(result.study.arm(summary.arm).stack)
        if way is not None and summary.rounds:
            for program in _programs(summary, way):
                ways.setdefault(program, {})[way] = None
    if len(ways) > 1:
        told = "; ".join(f"{', '.join(found)} by {program}" for program, found in ways.items())
        # measured on one file in alternation: see benchmarks/loadgen.md
        yield f"loaded by different programs: {told}; on one file the two agree to about 3 %"


def programs_of(result: Result) -> set[str]:
    """Return the programs that loaded the arms, as far as the trials noted them."""
    return {
        check.found
        for one in result.arms
        for check in one.in_force
        if check.setting == "load.program" and check.found is not None
    }


def _programs(summary: ArmSummary, way: str) -> set[str]:
    noted = {check.found for check in summary.in_force if check.setting == "load.program" and check.found}
    return noted or {_UNNOTED.get(way, "fio")}


def _way(stack: Stack) -> str | None:
    """The way to the disk, None where it is loaded in a guest."""
    return {"file": "metal", "export": stack.export}.get(stack.kind.front)
