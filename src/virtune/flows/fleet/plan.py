# SPDX-License-Identifier: Apache-2.0
"""The plan of a study on many hosts, kept where it was begun, so that whoever comes next goes on with it."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import TypeAdapter

from virtune.bounded import read_bounded
from virtune.fleet.schedule import require_reference, tasks_of
from virtune.flows.fleet.here import require_words
from virtune.flows.stored.study_id import study_id
from virtune.model.errors import PreconditionError, UsageError
from virtune.model.fleet import FleetHost
from virtune.model.fleet_task import FleetRun
from virtune.model.text import printable
from virtune.shell import data_directory

_RUN = TypeAdapter(FleetRun)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
_BYTES_MAX = 16 * 1024**2


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
    path = _folder() / f"{name}.json"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_bytes(_RUN.dump_json(run))
        part.replace(path)
    except OSError as error:
        raise PreconditionError(f"cannot keep the plan in {path.parent}: {(error.strerror or '').lower()}") from None
    return run


def kept_run(name: str) -> FleetRun:
    """Return a kept plan by its name, the beginning of it, or `last`. Raises UsageError where there is none."""
    known = sorted(path.stem for path in _folder().glob("*.json") if _NAME.fullmatch(path.stem))
    fitting = known[-1:] if name == "last" else [one for one in known if name and one.startswith(name)]
    if len(fitting) > 1:
        raise UsageError(f"{name!r} fits {len(fitting)} runs", hint=f"write more of it: {', '.join(fitting[:5])}")
    if not fitting:
        raise UsageError(f"no run {printable(name, most=60)!r} of a fleet", hint="`virtune fleet run` makes one")
    try:
        return _RUN.validate_json(read_bounded(_folder() / f"{fitting[0]}.json", _BYTES_MAX))
    except (OSError, ValueError):
        raise PreconditionError(f"the plan of the run {fitting[0]} is damaged") from None


def _folder() -> Path:
    return data_directory() / "fleet-runs"
