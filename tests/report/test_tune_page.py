# SPDX-License-Identifier: Apache-2.0
"""What a search says on a page: only what happened."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console
from tests.analyse.test_tuning import World, searched, study_of

from virtune.model.evidence import Changeover, InForce, TrialRecord
from virtune.model.study import Trial
from virtune.model.tuning import Tuning
from virtune.report.tune import render

RATES = {"base": 40_000.0, "fast": 80_000.0}


class Started(World):
    """Says in which process each trial ran."""

    def __init__(self, process: Callable[[], int | None]) -> None:
        super().__init__(RATES, noise=0.01)
        self.process = process

    def run(self, trial: Trial) -> TrialRecord:
        process = self.process()
        change = None if process is None else Changeover(swapped=None, seconds=0.1, process=process, why="made up")
        return replace(super().run(trial), in_force=InForce(changeover=change))


def page(known: Tuning) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(render(known))
    return captured.get()


@pytest.mark.parametrize(
    ("process", "said", "count"),
    [
        (itertools.count(1).__next__, "6 new processes each", 6),
        (lambda: 4711, "6 disks made anew each, in one process", 1),
        (itertools.cycle([1, 1, 2, 2]).__next__, "6 disks made anew each, in 2 processes", 2),
        (lambda: None, "6 starts each", None),
    ],
)
def test_starts_are_called_what_they_were(process: Callable[[], int | None], said: str, count: int | None) -> None:
    found, _ = searched(study_of(list(RATES)), Started(process))
    assert found.confirmation is not None
    assert found.confirmation.processes == count
    text = page(found)
    assert said in text
    assert "restarts" not in text
    assert ("new processes" in text) == (count == 6)
