# SPDX-License-Identifier: Apache-2.0
"""A study with as many warnings as one likes."""

from dataclasses import replace

from virtune.model.evidence import StudyRecord
from virtune.model.remark import Remark, Weight


def with_warnings(kept: StudyRecord, count: int) -> StudyRecord:
    text = "a warning of some length: it needs more than one line of a terminal that is 80 columns wide"
    remarks = tuple(
        Remark(id=f"w{n}", weight=Weight.WARNING, text=f"{n} is {text} {n}", advice="") for n in range(count)
    )
    trials = [
        replace(one, measurement=None if one.measurement is None else replace(one.measurement, remarks=remarks))
        for one in kept.trials
    ]
    return replace(kept, trials=tuple(trials))
