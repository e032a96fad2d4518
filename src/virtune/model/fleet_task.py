# SPDX-License-Identifier: Apache-2.0
"""A study that runs on a host of a fleet by itself, and how far it is."""

from dataclasses import dataclass
from enum import StrEnum

from virtune.model.fleet import FleetHost


class TaskState(StrEnum):
    """What is known of a task."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    KILLED = "killed"
    LOST = "lost"


TOLD = {
    TaskState.WAITING: "has not begun",
    TaskState.RUNNING: "runs on its host",
    TaskState.FINISHED: "ran to its end; conditions of --fail-if may be breached",
    TaskState.FAILED: "ended with an error",
    TaskState.KILLED: "was killed; the next call resumes it",
    TaskState.LOST: "its host gives no answer; it may still run there",
}
"""Every state in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProgress:
    """How far a task is, as its host says it.

    `left_seconds` is the expected time to its end; `code` the exit code of what ran; `said` its last sentence where
    it failed and `hint` the next thing to do then; `verdict` the verdicts so far, in words.
    """

    state: TaskState
    study: str = ""
    done: int = 0
    total: int = 0
    left_seconds: float | None = None
    verdict: str = ""
    code: int | None = None
    said: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetTask:
    """One study on one host. `name` is unique on every host; `part` counts what runs one after the other.

    `expected_seconds` is how long the host said beforehand that it takes; None where that is unknown.
    """

    name: str
    host: FleetHost
    part: int
    expected_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRun:
    """A study on many hosts: the words of its verb, its tasks in their order, and how they are shared out.

    Of hosts with one value of the label `shares` only one is measured at a time. `reference` is the host that is
    measured again in every other part.
    """

    name: str
    created: str
    words: tuple[str, ...]
    tasks: tuple[FleetTask, ...]
    at_once: int
    shares: str
    reference: str = ""
    virtune: str = "virtune"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDrift:
    """The level of the reference host from one time to the next: the ratio, its interval, and the hours between."""

    workload: str
    metric: str
    estimate: float
    low: float
    high: float
    hours: float
