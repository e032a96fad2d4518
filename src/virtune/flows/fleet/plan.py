# SPDX-License-Identifier: Apache-2.0
"""The plan of a study on many hosts, kept where it was begun, so that whoever comes next goes on with it."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from virtune.fleet.schedule import require_reference, tasks_of
from virtune.flows.fleet.here import require_words
from virtune.flows.fleet.kept_plans import RUNS
from virtune.flows.stored.study_id import study_id
from virtune.model.errors import PreconditionError
from virtune.model.fleet import FleetHost, FleetRun, FleetTask


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPolicy:
    """How hosts are shared out: so many at once, in batches, a reference host between them, what they share."""

    at_once: int = 1
    batch: int | None = None
    reference: str = ""
    shares: str = "shares"
    seed: int = 0


def plan_run(
    hosts: Sequence[FleetHost], words: Sequence[str], policy: FleetPolicy, *, now: datetime, virtune: str
) -> FleetRun:
    """Plan a study on these hosts and keep the plan. Raises UsageError for words that no fleet can run."""
    require_words(words)
    require_reference(hosts, policy.reference)
    name = study_id(now)
    tasks = tasks_of(name, hosts, reference=policy.reference, batch=policy.batch, seed=policy.seed)
    run = FleetRun(
        name=name, created=now.isoformat(timespec="seconds"), words=tuple(words), tasks=tasks, virtune=virtune,
        at_once=policy.at_once, shares=policy.shares, reference=policy.reference,
    )  # fmt: skip
    RUNS.keep(run)
    return run


class OpenTasks:
    """Which tasks of a run may still run on their hosts: noted here before each begins, and when its end was seen.

    So `--again` knows of a host that gives no answer whether it may still load what it shares with others.
    """

    def __init__(self, run: FleetRun) -> None:
        self._path = RUNS.place / f"{run.name}.open"
        self._names: set[str] = set()
        self._begun: set[str] = set()
        self._whole = True
        with contextlib.suppress(OSError):
            # what a crash of this host left of a line names no task, and the next line must not be joined to it
            text = self._path.read_text(errors="replace")
            self._whole = not text or text.endswith("\n")
            for line in text.splitlines():
                self._note(line)

    def __contains__(self, task: FleetTask) -> bool:
        return task.name in self._names

    def is_new(self, task: FleetTask) -> bool:
        """Whether a task never began."""
        return task.name not in self._begun

    def begins(self, task: FleetTask) -> None:
        """Note that a task begins. Raises PreconditionError where that cannot be kept."""
        try:
            self._keep(f"+{task.name}")
        except OSError as error:
            raise PreconditionError(f"cannot write {self._path}: {(error.strerror or '').lower()}") from None

    def ended(self, task: FleetTask) -> None:
        """Note that the end of a task was seen; where that cannot be kept, a later call asks its host once more."""
        with contextlib.suppress(OSError):
            self._keep(f"-{task.name}")

    def _keep(self, line: str) -> None:
        with self._path.open("a") as file:
            file.write(f"{line}\n" if self._whole else f"\n{line}\n")
        self._whole = True
        self._note(line)

    def _note(self, line: str) -> None:
        self._begun.add(line[1:])
        (self._names.add if line.startswith("+") else self._names.discard)(line[1:])
