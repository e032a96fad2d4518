# SPDX-License-Identifier: Apache-2.0
"""A simulated comparison that waits after a round: `python -m tests.web.paused_run STORE ROUND` waits for a line."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from virtune.cli.common.progress import Recorded
from virtune.flows.run.preconditions import Leave
from virtune.flows.run.question import Question, study_for
from virtune.flows.run.study import run_study
from virtune.model.event import Event, RoundJudged
from virtune.model.study import Study, StudyKind
from virtune.store.store import Store


def simulated(scratch: Path, *, candidate: str = "native") -> Study:
    """Return a noisy simulated study of two arms, which decides nothing in its 14 rounds."""
    arms = ("one:rig=simulated:noisy", "two:rig=simulated:noisy,disk.aio=native")
    asked = Question(kind=StudyKind.COMPARE, arms=arms, rounds=14, seed=3, scratch=scratch)
    study = study_for(asked)
    named = tuple(replace(arm, name=candidate) if arm.name == "two" else arm for arm in study.arms)
    moved = tuple(replace(one, arm=candidate) if one.arm == "two" else one for one in study.trials)
    return replace(study, arms=named, trials=moved, title=candidate if candidate != "native" else study.title)


def run_until(study: Study, store: Path, number: int, wait: Callable[[], object]) -> None:
    """Run a study and keep how far it is; `wait` is called when that round was judged and so kept."""

    def say(event: Event) -> None:
        recorded(event)
        if isinstance(event, RoundJudged) and event.round == number:
            wait()

    with Store(store) as kept, Recorded(lambda _: None, store=store, study=study) as recorded:
        run_study(study, store=kept, say=say, leave=Leave(), facts="")


if __name__ == "__main__":

    def wait() -> None:
        print("paused", flush=True)
        sys.stdin.readline()

    place = Path(sys.argv[1])
    run_until(simulated(place.parent), place, int(sys.argv[2]), wait)
