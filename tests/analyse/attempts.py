# SPDX-License-Identifier: Apache-2.0
"""Attempts of trials of which some were disturbed."""

from virtune.model.evidence import InForce, TrialRecord
from virtune.model.measurement import Measurement
from virtune.model.remark import Remark, Weight
from virtune.model.study import Trial


def attempt(
    number: int, arm: str, *causes: str, number_of_attempt: int = 1, failure: str | None = None
) -> TrialRecord:
    remarks = tuple(Remark(id=cause, weight=Weight.INVALID, text=f"{cause} disturbed it") for cause in causes)
    return TrialRecord(
        trial=Trial(number=number, round=1 + (number - 1) // 2, arm=arm, workload="randread-4k"),
        attempt=number_of_attempt,
        ended=f"2026-01-01T00:00:{number:02}+00:00",
        in_force=InForce(),
        measurement=None if failure else Measurement(values=(("iops", 1000.0 + number),), remarks=remarks),
        failure=failure,
    )


def attempts(*, rejected: dict[str, int], tried: dict[str, int], cause: str = "cpu-wait") -> list[TrialRecord]:
    found: list[TrialRecord] = []
    for arm, count in tried.items():
        found += [attempt(len(found) + n + 1, arm, *([cause] if n < rejected[arm] else [])) for n in range(count)]
    return found
